"""Graphs drawn at random whose labels follow from the order of each node's neighbours, and from little else.

On them a layer shows whether it can learn an order, and keep what stands where in it: in a network of one
layer in which only the layer differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.gat import GATConv
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.conv.pna import PNAConv
from node2seq.nn.conv.sage import SAGEConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Edges, Network, convolve
from node2seq.options import check_choice

#: What the label of a node is, by the name of the task.
TASKS = {
    "first": "the class of the first neighbour",
    "second": "the class of the second neighbour",
    "difference": "the class of the first neighbour minus that of the second, modulo 4",
    "second-by-pair": "the class of the second neighbour, by a score of both nodes",
}
CLASSES = 4
#: Columns of a node's features before they are mixed: key, class, two vectors, noise.
_KEY, _CLASS, _QUERY, _ANSWER, _NOISE = 1, CLASSES, 4, 4, 3
_FEWEST, _MOST = 3, 60
# Median and spread of the in-degrees before they are cut.
_MEDIAN, _SPREAD = 10.0, 0.8


def draw_order_task(task: str, nodes: int = 4_000, seed: int = 0) -> Data:
    """A graph with ``x``, ``edge_index``, ``y`` and ``edge_order``, by which neighbours are sorted.

    Each node has a key, one of four classes, two vectors of four numbers and noise. Its features are these,
    mixed by a random rotation, so that no column is one of them. In-degrees are log-normal, from 3 to 60, and
    neighbours are drawn evenly. They are sorted by their key, largest first; in the last task by the inner
    product of the node's first vector with the neighbour's second, an order that each node has for itself.

    Args:
        task (str): A key of :data:`TASKS`.
        nodes (int): How many nodes, 4 at least.
        seed (int): Which graph. Graphs of one seed differ in their labels and their order alone.
    """
    check_choice("task", task, TASKS)
    if nodes <= _FEWEST:
        raise Node2SeqError(
            f"nodes={nodes}", f"each node has {_FEWEST} neighbours or more", f"Give {_FEWEST + 1} or more"
        )
    generator = torch.Generator().manual_seed(seed)
    edge_index = _edges(nodes, generator)
    label = torch.randint(CLASSES, (nodes,), generator=generator)
    key, query, answer, noise = (
        torch.randn(nodes, width, generator=generator) for width in (_KEY, _QUERY, _ANSWER, _NOISE)
    )
    parts = torch.cat([key, F.one_hot(label, _CLASS).float(), query, answer, noise], dim=1)
    rotation = torch.linalg.qr(torch.randn(2 * (parts.size(1),), generator=generator)).Q
    source, target = edge_index
    is_by_pair = task == "second-by-pair"
    order = (query[target] * answer[source]).sum(1) if is_by_pair else key[source, 0]
    first, second = label[_two_largest(order, edge_index, nodes)]
    y = {"first": first, "difference": (first - second) % CLASSES}.get(task, second)
    return Data(x=parts @ rotation, edge_index=edge_index, y=y, edge_order=order)


def _edges(nodes: int, generator: torch.Generator) -> Tensor:
    """Each node's neighbours, drawn evenly among the others, none twice; sorted by target."""
    most = min(_MOST, nodes - 1)
    degree = (_MEDIAN * torch.exp(_SPREAD * torch.randn(nodes, generator=generator))).round()
    degree = degree.clamp(_FEWEST, most).long()
    drawn = torch.rand(nodes, nodes, generator=generator).fill_diagonal_(-1.0).topk(most).indices
    is_kept = torch.arange(most) < degree[:, None]
    target = torch.arange(nodes)[:, None].expand_as(drawn)
    return torch.stack([drawn[is_kept], target[is_kept]])


def _two_largest(order: Tensor, edge_index: Tensor, nodes: int) -> Tensor:
    """The two neighbours of each node with the largest numbers, [2, N]."""
    source, target = edge_index
    by_order = order.argsort(descending=True, stable=True)
    by_target = by_order[target[by_order].argsort(stable=True)]
    degree = torch.bincount(target, minlength=nodes)
    start = degree.cumsum(0) - degree
    return source[by_target][torch.stack([start, start + 1])]


_HEADS = 4
_RANKS: dict[str, Any] = {"readout": "ranks"}
#: The options of `Node2SeqConv` by the name of the layer. A layer of one soft rank is dot-product attention,
#: here with several heads and, as every layer of ranks, beside the mean of all neighbours.
SEQUENCES: dict[str, dict[str, Any]] = {
    "soft ranks": _RANKS,
    "soft ranks, 4 heads": _RANKS | {"heads": _HEADS},
    "soft ranks, shared scores": _RANKS | {"scores": "shared"},
    "attention": _RANKS | {"kernel_size": 1, "heads": _HEADS},
    "hard ranks, attention": _RANKS | {"soft": False},
    "hard ranks, random": _RANKS | {"order": "random"},
    "hard ranks, given": _RANKS | {"order": "edge"},
    "paper, max": {"readout": "max"},
    "paper, mean": {"readout": "mean"},
    "paper, max, random": {"readout": "max", "order": "random"},
    "paper, max, given": {"readout": "max", "order": "edge"},
}
LAYERS = (*SEQUENCES, "gat", "mean", "pna")


@dataclass(frozen=True)
class OneLayerOptions:
    """The options of :class:`OneLayer`."""

    hidden_channels: int
    layer: str
    target_columns: int = 0
    dropout: float = 0.0
    backend: str = "auto"

    def __post_init__(self) -> None:
        check_choice("layer", self.layer, LAYERS)


class OneLayer(Network):
    """A dense layer, the layer that is studied beside a node's own features, two dense layers.

    No node is its own neighbour, and no layer adds a node's own features by itself.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the output of each layer.
        out_channels (int): Number of classes.
        layer (str): One of :data:`LAYERS`.
        target_columns (int): How many of the last columns are what a node shows itself; its neighbours see
            the others. With 0 all columns are both. (default: :obj:`0`)
        dropout (float): Dropout behind the layer. (default: :obj:`0.0`)
        edge_dim (int, optional): Size of each edge's attributes. (default: :obj:`None`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = OneLayerOptions
    carried = ("edge_attr", "edge_order")
    target_columns: int

    def _make_layers(self, options: Any) -> None:
        width, targets = self.hidden_channels, options.target_columns
        self.lin = nn.Linear(self.in_channels - targets, width)
        self.lin_target = nn.Linear(targets, width) if targets else None
        self.conv = self._make_conv(options)
        self.lin_own = nn.Linear(width, width)
        self.dropouts = make_dropouts(options.dropout)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.out_channels))

    def _make_conv(self, options: Any) -> nn.Module:
        width, own = self.hidden_channels, {"bias": False, "backend": options.backend}
        if options.layer == "mean":
            return SAGEConv(width, width, root_weight=False, **own)
        if options.layer == "pna":
            return PNAConv(width, width, backend=options.backend)
        if options.layer == "gat":
            return GATConv(width, width // _HEADS, _HEADS, add_self_loops=False, **own)
        chosen = SEQUENCES[options.layer]
        sizes = (width, width) if options.target_columns else width
        own |= {"root": "none", "add_self_loops": False, "edge_dim": self.edge_dim}
        return Node2SeqConv(sizes, width // chosen.get("heads", 1), **own, **chosen)

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        shown = x[..., : x.size(-1) - self.target_columns]
        hidden = own = F.relu(ops.apply(self.lin, shown))
        if self.lin_target is not None:
            own = F.relu(ops.apply(self.lin_target, x[..., x.size(-1) - self.target_columns :]))
        both: Any = (hidden, own) if isinstance(self.conv, Node2SeqConv) and own is not hidden else hidden
        out = convolve(self.conv, both, edges, n_id) + ops.apply(self.lin_own, own)
        return self.dropouts[0](F.relu(out), n_id)

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return ops.apply(self.head, self._embed(x, edges, n_id))

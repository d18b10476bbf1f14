"""A network of one layer in which only the layer differs, for the study of when the order matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq import ops
from node2seq.nn.conv.gat import GATConv
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.conv.pna import PNAConv
from node2seq.nn.conv.sage import SAGEConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Edges, Network, convolve
from node2seq.options import check_choice

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

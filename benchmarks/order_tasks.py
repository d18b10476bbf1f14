"""Graphs drawn at random whose labels follow from the order of each node's neighbours, and from little else.

On them a layer shows whether it can learn an order, and keep what stands where in it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
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

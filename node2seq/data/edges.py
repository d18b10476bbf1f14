"""Lists of edges made clean: no self loops, no duplicates, both directions unless the graph is directed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class EdgeCounts:
    """What became of the edges that were given."""

    given: int
    self_loops: int
    duplicates: int


def clean_edges(edge_index: Tensor, num_nodes: int, *, directed: bool = False) -> tuple[Tensor, EdgeCounts]:
    """Drop self loops and duplicates; add the other direction of every edge unless ``directed``.

    Returns the edges [2, E] sorted by source, then target — the one order in which every graph of this
    package comes — and the counts. In an undirected graph the two directions of an edge are duplicates of one
    another.
    """
    source, target = edge_index
    kept = source != target
    self_loops = int((~kept).sum())
    source, target = source[kept], target[kept]
    if not directed:
        source, target = torch.minimum(source, target), torch.maximum(source, target)
    distinct = torch.unique(source * num_nodes + target)  # sorted
    counts = EdgeCounts(edge_index.size(1), self_loops, source.numel() - distinct.numel())
    if not directed:
        low, high = distinct // num_nodes, distinct % num_nodes
        distinct = torch.cat([distinct, high * num_nodes + low]).sort().values
    return torch.stack([distinct // num_nodes, distinct % num_nodes]), counts


def connected_components(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The component of each node [N], as the smallest node number in it. Edges count in both directions.

    Every node takes the smallest label among its neighbours' (hooked onto the label's own root), then all
    labels jump to their label's label; a handful of rounds even for long paths, each a few passes over the
    edges.
    """
    label = torch.arange(num_nodes)
    source, target = edge_index
    while source.numel():
        low = torch.minimum(label[source], label[target])
        # Hooking the roots, not only the nodes, is what makes the number of rounds logarithmic.
        label = label.scatter_reduce(0, label[source], low, "amin").scatter_reduce(
            0, label[target], low, "amin"
        )
        while not torch.equal(jumped := label[label], label):
            label = jumped
        open_edges = label[source] != label[target]
        source, target = source[open_edges], target[open_edges]
    return label

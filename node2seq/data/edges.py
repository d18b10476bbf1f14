"""Clean lists of edges: remove self loops and duplicates, add reverse edges; find connected components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class EdgeCounts:
    """How many edges were given, and how many of them were self loops and duplicates."""

    given: int
    self_loops: int
    duplicates: int


def clean_edges(edge_index: Tensor, num_nodes: int, *, directed: bool = False) -> tuple[Tensor, EdgeCounts]:
    """Remove self loops and duplicates; add the reverse of every edge unless ``directed``.

    Returns the edges [2, E] sorted by source, then target, as in every graph of this package, and the counts.
    In an undirected graph, the two directions of an edge count as duplicates.
    """
    source, target = edge_index.numpy()
    # Reuse large arrays: allocating memory costs more than the arithmetic that fills it.
    keys = source.copy() if directed else np.minimum(source, target)
    keys *= num_nodes
    keys += target if directed else np.maximum(source, target)
    self_loops = int(np.count_nonzero(source == target))
    if self_loops:
        keys = keys[source != target]
    # Sort and compare neighbours: np.unique would hash the keys, 50 times slower on 10 M edges.
    keys.sort()
    first = np.append(True, keys[1:] != keys[:-1]) if keys.size else np.empty(0, dtype=bool)
    distinct = keys if first.all() else keys[first]
    counts = EdgeCounts(edge_index.size(1), self_loops, keys.size - distinct.size)
    if directed:
        return _apart(distinct, num_nodes), counts
    both = np.empty(2 * distinct.size, dtype=np.int64)
    both[: distinct.size], other_way = distinct, both[distinct.size :]
    np.floor_divide(distinct, max(num_nodes, 1), out=other_way)
    distinct %= max(num_nodes, 1)
    distinct *= num_nodes
    other_way += distinct
    both.sort()
    return _apart(both, num_nodes), counts


def _apart(keys: np.ndarray, num_nodes: int) -> Tensor:
    edges = np.empty((2, keys.size), dtype=np.int64)
    np.floor_divide(keys, max(num_nodes, 1), out=edges[0])
    np.multiply(edges[0], -num_nodes, out=edges[1])
    edges[1] += keys
    return torch.from_numpy(edges)


def connected_components(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The component of each node [N], as the smallest node number in it. Edges count in both directions.

    A quarter of the edges already joins most of each component. Few of the other edges still join two
    components, and finding those is cheap.
    """
    label = torch.arange(num_nodes)
    for edges in (edge_index[:, ::4], edge_index):
        label = _join(label, edges[0], edges[1])
    return label


def _join(label: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Give both ends of every edge the same label: the smaller one, hooked onto the root of the larger.

    Hooking the roots, not the nodes, and jumping to the label's label make the number of rounds logarithmic.
    """
    while True:
        ends = label[source], label[target]
        open_edges = (ends[0] != ends[1]).nonzero().view(-1)
        if not open_edges.numel():
            return label
        source, target = source[open_edges], target[open_edges]
        one, other = ends[0][open_edges], ends[1][open_edges]
        label = label.scatter_reduce(0, torch.maximum(one, other), torch.minimum(one, other), "amin")
        while not torch.equal(jumped := label[label], label):
            label = jumped

"""Lists of edges and what they carry: cleaned of self loops and duplicates, with reverse edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from node2seq.data.tabular import first_few


@dataclass(frozen=True)
class EdgeCounts:
    """How many edges were given, and how many of them were self loops and duplicates."""

    given: int
    self_loops: int
    duplicates: int


@dataclass(frozen=True)
class CarriedColumns:
    """The columns of what edges carry."""

    weight: str | None
    features: list[str]
    order: str | None = None

    @property
    def numbers(self) -> list[str]:
        """Those of weight and features, each once."""
        return list(dict.fromkeys([*([self.weight] if self.weight else []), *self.features]))

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys([*self.numbers, *([self.order] if self.order else [])]))

    def __str__(self) -> str:
        parts = [] if self.weight is None else [f"{self.weight!r} as weight"]
        if self.features:
            parts.append(f"{first_few(self.features)} as features")
        if self.order is not None:
            parts.append(f"{self.order!r} as order")
        return " and ".join(parts)

    def apart(self, values: Tensor) -> dict[str, Tensor]:
        """The columns [E, V] as a graph has them; the order, if there is one, is the last."""
        place = {name: number for number, name in enumerate(self.numbers)}
        found = {}
        if self.weight is not None:
            found["edge_weight"] = values[:, place[self.weight]].float().contiguous()
        if self.features:
            found["edge_attr"] = values[:, [place[name] for name in self.features]].float()
        if self.order is not None:
            found["edge_order"] = values[:, -1].contiguous()
        return found


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


def clean_valued_edges(
    edge_index: Tensor, values: Tensor, num_nodes: int, *, directed: bool = False
) -> tuple[Tensor, Tensor, EdgeCounts]:
    """The same for edges that carry something, [E, V], where parallel edges stay what they are.

    In an undirected graph an edge has its values in both directions. Listed in both directions with the same
    values, it is one edge.

    Returns:
        The edges, sorted by source, then target, parallel ones as they are listed; their values; the counts.
    """
    source, target = edge_index.numpy()
    row = np.flatnonzero(source != target)
    counts = EdgeCounts(edge_index.size(1), source.size - row.size, 0)
    if not directed:
        row = _listed_once(source, target, values.numpy(), row, num_nodes)
        counts = EdgeCounts(counts.given, counts.self_loops, counts.given - counts.self_loops - row.size)
        source, target = np.append(source[row], target[row]), np.append(target[row], source[row])
        row = np.append(row, row)
    else:
        source, target = source[row], target[row]
    order = np.lexsort((row, target, source))
    edges = torch.from_numpy(np.stack([source[order], target[order]]))
    return edges, values[torch.from_numpy(row[order])], counts


def _listed_once(
    source: np.ndarray, target: np.ndarray, values: np.ndarray, row: np.ndarray, num_nodes: int
) -> np.ndarray:
    """The rows of an undirected graph without those that repeat another in the opposite direction."""
    pair = np.minimum(source, target)[row] * num_nodes + np.maximum(source, target)[row]
    alike = np.zeros(row.size, dtype=np.int64)  # a number for each pair and its values
    for column in (pair, *values[row].T):
        _, number = np.unique(column, return_inverse=True)
        _, alike = np.unique(alike * (row.size + 1) + number.reshape(-1), return_inverse=True)
        alike = alike.reshape(-1)
    # The first row of an edge in one direction and the first in the other are one edge, and so on.
    one_way = 2 * alike + (source > target)[row]
    order = np.argsort(one_way, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(one_way[order]) != 0)) if row.size else order
    lengths = np.diff(np.append(starts, row.size))
    occurrence = np.empty(row.size, dtype=np.int64)
    occurrence[order] = np.arange(row.size) - np.repeat(starts, lengths)
    _, first = np.unique(alike * (row.size + 1) + occurrence, return_index=True)
    return row[np.sort(first)]


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

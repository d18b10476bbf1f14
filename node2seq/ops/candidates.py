"""The nodes within several hops: the candidates for non-local neighbours, in blocks of rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq.ops.dispatch import compiled_loops
from node2seq.ops.dropout import pair_word
from node2seq.ops.sequences import Rows, Sequences, lasting

# A block's reach is marked in a [rows, N] table of bytes, and a hop touches at most this many edges at once.
_MARKS_PER_BLOCK = 2**25
_EDGES_PER_BLOCK = 2**23
_WALKS_PER_BLOCK = 2**22
# On a GPU a block costs a dozen launches and some waits, whatever its size.
_LARGER_ON_GPU = 8
# Candidates do not change while a graph is trained on: lists up to 2^27 entries (2 GiB) are kept, or on a GPU
# as many as take a fifth of its memory.
_KEPT_ENTRIES = 2**27
_MEMORY_PER_KEPT_ENTRY_ON_GPU = 64
# In parts they are numbers of 32 bits and nothing else, a quarter of the bytes; a part has about so many.
_MORE_IN_PARTS = 4
_ENTRIES_PER_PART = 2**28


class Part(NamedTuple):
    """The candidates of some successive nodes, one node's behind the other's."""

    first: int
    """The first of these nodes."""
    length: Tensor
    """How many candidates each has."""
    node: Tensor
    """They themselves, ascending for each node, int32."""


class Candidates:
    """For every node, the other nodes with a path of two to ``hops`` edges to it and none of one.

    Args:
        sequences (Sequences): The neighbours of each node in a square graph.
        hops (int): The largest number of edges of a path.
    """

    def __init__(self, sequences: Sequences, hops: int) -> None:
        self.sequences = sequences
        self.hops = hops
        self.plans: dict[str, Any] = {}  # what a backend keeps with them, by its name
        self._listed: Sequences | None = None
        self._too_large = self._too_large_in_parts = False

    @property
    def base(self) -> Candidates:
        """Those within one copy of the graph."""
        return self

    def copies(self, count: int) -> Candidates:
        """The same for the disjoint union of that many copies of the graph, without copying any list."""
        return self if count == 1 else CopiedCandidates(self, count)

    def listed(self) -> Sequences | None:
        """Every node's candidates, ascending; found once and kept, or None if they are too many to keep."""
        if self._listed is None and not self._too_large:
            with lasting():
                self._listed = self._list()
            self._too_large = self._listed is None
        return self._listed

    def parts(self) -> list[Part] | None:
        """The lists in parts, of which more can be kept, or None; found anew: who asks keeps them."""
        if self._too_large_in_parts:
            return None
        with lasting():
            found = self._list_parts(_MORE_IN_PARTS * self._most())
        if found is None:
            self._too_large = self._too_large_in_parts = True
        return found

    def blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Sequences]]:
        """The candidates of ``rows``, distinct and ascending: pairs of a block of them and its sequences."""
        listed = self.listed()
        if listed is None:
            yield from self._search(rows)
        elif rows.numel() == listed.rows.num_rows:
            yield rows, listed
        else:
            yield rows, _take(listed, rows)

    def _most(self) -> float:
        """How long the lists of all nodes together may be."""
        return most_kept(self.sequences.index.device)

    def _list(self) -> Sequences | None:
        """Every node's candidates, unless they are too many to keep."""
        loops = compiled_loops() if self.sequences.index.device.type == "cpu" else None
        if loops is None:
            return self._join_parts()
        lists = loops.find_lists(self.sequences, self.hops, self._most())
        if lists is None:
            return None
        rows = Rows.from_lengths(lists.ptr[1:] - lists.ptr[:-1])
        return Sequences(rows, lists.index.long(), self.sequences.num_sources)

    def _join_parts(self) -> Sequences | None:
        parts, none = self._list_parts(self._most()), self.sequences.index[:0]
        if parts is None:
            return None
        rows = Rows.from_lengths(torch.cat([none, *(part.length for part in parts)]))
        index = torch.cat([none, *(part.node for part in parts)])
        return Sequences(rows, index, self.sequences.num_sources)

    def _list_parts(self, most: float) -> list[Part] | None:
        """Every node's candidates in parts, unless there are more than ``most``."""
        parts: list[Part] = []
        lengths, indices, held, first, total = [], [], 0, 0, 0
        for length, index in self._successive():
            total += index.numel()
            if total > most:
                return None
            if lengths and held + index.numel() > _ENTRIES_PER_PART:
                parts.append(Part(first, torch.cat(lengths), torch.cat(indices)))
                first += parts[-1].length.numel()
                lengths, indices, held = [], [], 0
            lengths.append(length)
            indices.append(index.int())
            held += index.numel()
        return [*parts, Part(first, torch.cat(lengths), torch.cat(indices))] if lengths else parts

    def _successive(self) -> Iterator[tuple[Tensor, Tensor]]:
        """How many candidates some nodes have, and which; then the next nodes, to the last."""
        for _, block in self._search(self._everyone()):
            yield block.rows.length(), block.index

    def _everyone(self) -> Tensor:
        return torch.arange(self.sequences.rows.num_rows, device=self.sequences.index.device)

    def _search(self, rows: Tensor) -> Iterator[tuple[Tensor, Sequences]]:
        nodes = self.sequences.num_sources
        scale = _LARGER_ON_GPU if rows.is_cuda else 1
        for block in _blocks(rows, self.sequences, scale * _MARKS_PER_BLOCK // max(nodes, 1)):
            reached = torch.zeros(block.numel(), nodes, dtype=torch.bool, device=rows.device)
            near = reached.clone()
            frontier_row, frontier = torch.arange(block.numel(), device=rows.device), block
            reached[frontier_row, frontier] = True
            for hop in range(self.hops):
                new = _spread(frontier_row, frontier, self.sequences, reached.shape) & ~reached
                reached |= new
                if hop == 0:
                    near = reached.clone()
                if hop == self.hops - 1:
                    break
                frontier_row, frontier = new.nonzero(as_tuple=True)
                if not frontier.numel():
                    break
            found = reached & ~near
            index = found.nonzero(as_tuple=True)[1]
            yield block, Sequences(Rows.from_lengths(found.sum(1)), index, nodes)


class DrawnCandidates(Candidates):
    """Some of the candidates of every node: where random walks of two to ``hops`` edges against the edges'
    direction end, drawn once and kept.

    A node that many paths lead from is drawn more often than others. The same graph gives the same walks.

    Args:
        sequences (Sequences): The neighbours of each node in a square graph.
        hops (int): The largest number of edges of a walk.
        walks (int): How many walks start at each node; it has at most as many candidates.
    """

    def __init__(self, sequences: Sequences, hops: int, walks: int) -> None:
        super().__init__(sequences, hops)
        self.walks = walks

    def _most(self) -> float:
        return math.inf

    def _list(self) -> Sequences | None:
        return self._join_parts()

    def _successive(self) -> Iterator[tuple[Tensor, Tensor]]:
        sequences, nodes = self.sequences, max(self.sequences.num_sources, 1)
        near = (sequences.rows.target * nodes + sequences.index).sort().values
        for block in self._everyone().split(max(_WALKS_PER_BLOCK // self.walks, 1)):
            pair = (block[:, None] * nodes + self._walk(block)).flatten().unique()
            place = torch.searchsorted(near, pair).clamp_(max=max(near.numel() - 1, 0))
            is_near = near[place] == pair if near.numel() else torch.zeros_like(pair, dtype=torch.bool)
            row, index = pair // nodes, pair % nodes
            kept = ~is_near & (row != index)
            yield torch.bincount(row[kept] - block[:1], minlength=block.numel()), index[kept]

    def _walk(self, start: Tensor) -> Tensor:
        """Where the walks of some nodes end, [n, walks]; at once where a node has no neighbours."""
        rows, index = self.sequences.rows, self.sequences.index
        number = torch.arange(self.walks, device=start.device)
        steps = 2 + number % (self.hops - 1)
        at = start[:, None].expand(-1, self.walks)
        for step in range(self.hops if index.numel() else 0):
            first, length = rows.ptr[at], rows.length()[at]
            word = pair_word(number.new_full((), step), start[:, None], number).long()
            chosen = (first + word % length.clamp(min=1)).clamp(max=index.numel() - 1)
            at = torch.where((step < steps) & (length > 0), index[chosen], at)
        return at


class CopiedCandidates(Candidates):
    """The candidates within the disjoint union of several copies of a graph, by the lists of one.

    Args:
        base (Candidates): Those within one copy.
        count (int): The number of copies.
    """

    def __init__(self, base: Candidates, count: int) -> None:
        super().__init__(base.sequences.copies(count), base.hops)
        self._base = base
        self._count = count

    @property
    def base(self) -> Candidates:
        """Those within one copy of the graph."""
        return self._base

    def blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Sequences]]:
        """The candidates of ``rows``, distinct and ascending: a copy after the other."""
        nodes = self._base.sequences.num_sources
        rows_of_copies = torch.bincount(rows // max(nodes, 1), minlength=self._count).tolist()
        for number, mine in enumerate(rows.split(rows_of_copies)):
            offset = number * nodes
            for block, found in self._base.blocks(mine - offset):
                moved = Sequences(found.rows, found.index + offset, self.sequences.num_sources)
                yield block + offset, moved


def candidates_of(sequences: Sequences, hops: int, max_candidates: int | None = None) -> Candidates:
    """The nodes within ``hops`` hops of each node of a square graph, or some of them; found once and kept."""
    wanted = hops, max_candidates
    if wanted not in sequences.candidates:
        # What is kept must not hold its keeper: both would outlive the graph.
        twin = copy.copy(sequences)
        twin.candidates = {}
        all_of_them = max_candidates is None
        found = Candidates(twin, hops) if all_of_them else DrawnCandidates(twin, hops, max_candidates)
        sequences.candidates[wanted] = found
    return sequences.candidates[wanted]


def most_kept(device: torch.device) -> int:
    """How long the lists of all nodes together may be."""
    if device.type != "cuda":
        return _KEPT_ENTRIES
    return torch.cuda.get_device_properties(device).total_memory // _MEMORY_PER_KEPT_ENTRY_ON_GPU


def _blocks(rows: Tensor, sequences: Sequences, most: int) -> Iterator[Tensor]:
    """Cuts rows so that neither the marks nor the second hop's edges of a block grow too large."""
    length = sequences.rows.length()
    touched = torch.zeros_like(length).index_add_(0, sequences.rows.target, length[sequences.index])[rows]
    for part in _parts(touched, max(most, 1)):
        yield rows[part]


def _parts(edges: Tensor, most: int) -> Iterator[slice]:
    """Cuts places into parts: few edges together, and at most ``most`` places."""
    total, first = edges.cumsum(0), 0
    while first < edges.numel():
        spent = total[first - 1] if first else total.new_zeros(())
        last = int(torch.searchsorted(total, spent + _EDGES_PER_BLOCK, right=True))
        last = min(max(last, first + 1), first + most, edges.numel())
        yield slice(first, last)
        first = last


def _spread(row: Tensor, node: Tensor, sequences: Sequences, shape: torch.Size) -> Tensor:
    """Marks, for each row, the sources of all edges into its nodes."""
    marks = torch.zeros(shape, dtype=torch.bool, device=node.device)
    # A frontier of hubs touches many edges: a part of it at a time.
    for part in _parts(sequences.rows.length()[node], node.numel()):
        taken = _take(sequences, node[part])
        marks[row[part][taken.rows.target], taken.index] = True
    return marks


def _take(sequences: Sequences, rows: Tensor) -> Sequences:
    """The sequences of some rows, in the order given."""
    taken = Rows.from_lengths(sequences.rows.length()[rows])
    entry = taken.position() + sequences.rows.ptr[rows][taken.target]
    return Sequences(taken, sequences.index[entry], sequences.num_sources)

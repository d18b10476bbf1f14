"""What the kernels know of a graph: int32 rows, work of even size, the transposed graph. Built once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from node2seq.errors import Node2SeqError
from node2seq.ops.dispatch import is_tracing
from node2seq.ops.sequences import MOST_ENTRIES, Layout, Sequences, lasting
from node2seq.ops.triton.counting_sort import sort
from node2seq.ops.triton.launch import Repeated
from node2seq.ops.triton.partition import Order, Totals, read_totals, transpose

# A program works on at most so many entries of a row. A longer row is cut; its parts are reduced in order.
# A place in an item has to fit into 8 bits.
ITEM = 256
# Rows whose features fit into registers: scored and ranked at once.
SHORT_WIDTHS = (16, 32, 64)
# Longer rows are sorted in registers up to the last width; even longer ones in chunks that are merged.
SORT_WIDTHS = (128, 256, 512, 1024)
# Launches are what small graphs wait for. So many places for short rows, padding included, and all of them
# are worked on at the widest width that is needed: at 64, of 16,384 rows.
MOST_PADDED = 2**20
# So many comparisons at most, and rows of all lengths are ranked by comparing each entry with all of its row.
MOST_COMPARED = 2**29


@dataclass
class Chunks:
    """Rows that are too long to be sorted at once; the chunks of a row follow each other."""

    row: Tensor  # [P] the row of each chunk
    first: Tensor  # [P] its first entry


@dataclass(frozen=True)
class Bucket:
    """Rows that are worked on at one width: so many of ``Work.rows``, from the first on."""

    width: int
    first: int
    count: int


class Work:
    """Rows as the kernels walk over them, in groups of similar length, the longest first.

    It is complete once it is told how many rows there are of which length: :meth:`finish`.

    Args:
        ptr (torch.Tensor): Where each row starts, and where the last one ends, int32, [N + 1].
        order (Order): The rows by length.
    """

    def __init__(self, ptr: Tensor, order: Order) -> None:
        self.ptr = ptr
        self.item, self.short, self.longest_sorted = ITEM, SHORT_WIDTHS[-1], SORT_WIDTHS[-1]
        self._widths = SHORT_WIDTHS, SORT_WIDTHS
        self.launches: dict[Hashable, Repeated] = {}  # those over this work and the tensors of its plan
        self._order = order

    @staticmethod
    def cuts() -> tuple[int, int, tuple[int, ...]]:
        """What rows are cut at for work and for sorting, and all sizes that they are told apart by."""
        return ITEM, SORT_WIDTHS[-1], tuple(sorted({ITEM, *SHORT_WIDTHS, *SORT_WIDTHS}))

    @classmethod
    def begin(cls, ptr: Tensor, entries: int) -> tuple[Work, Totals]:
        """Work over rows with ``entries`` entries at most, and what to finish it with; waits for nothing."""
        item, chunk, sizes = cls.cuts()
        order, totals = Order.of(ptr, entries, sizes, item, chunk)
        return cls(ptr, order), totals

    @classmethod
    def of(cls, ptr: Tensor, entries: int) -> Work:
        """Complete work, for which it waits."""
        work, totals = cls.begin(ptr.int(), entries)
        work.finish(*read_totals([totals]))
        return work

    def finish(self, totals: list[int]) -> None:
        """Cuts the rows, now that it is known how many there are of which length."""
        found = self._order
        found.finish(totals)
        self.rows, self._longer = found.rows, found.longer
        self.hubs, self.parts, self.part_ptr = found.longer[self.item], found.parts, found.part_ptr
        # Hubs' parts first: the longest work starts earliest.
        self.item_row, self.item_first = found.item_row, found.item_first
        self.items = self.item_row.numel()
        # The items of rows that are not short; they come first.
        self.long_items = self.parts + found.longer[self.short] - self.hubs
        self.chunks = Chunks(found.chunk_row, found.chunk_first)
        short_widths, sort_widths = self._widths
        self.short_buckets = _merged(self._buckets(0, short_widths))
        self.sort_buckets = self._buckets(self.short, sort_widths)
        del self._order

    def _buckets(self, shortest: int, widths: tuple[int, ...]) -> list[Bucket]:
        """The rows longer than ``shortest`` by the width that they fit into."""
        found = []
        for width in widths:
            first = self._longer[width]
            last = self._longer[shortest] if shortest else self.rows.numel()
            found.append(Bucket(width, first, last - first))
            shortest = width
        return [bucket for bucket in found if bucket.count]

    def compares_few(self, entries: int) -> bool:
        """Whether it is little work to compare each of so many entries with all of its row, at most."""
        sorts, chunks = self.sort_buckets, self.chunks.row.numel()
        longest = sorts[-1].width if sorts else self.short
        if chunks:  # of the rows that are cut, all but one may be as short as two chunks
            longest = self.longest_sorted * (chunks - 2 * (self._longer[self.longest_sorted] - 1))
        return self.parts * self.item * longest + entries * self.item <= MOST_COMPARED


def _merged(buckets: list[Bucket]) -> list[Bucket]:
    """One bucket for all of the rows, which lie behind each other, where that is little work."""
    if len(buckets) < 2:
        return buckets
    count, widest = sum(bucket.count for bucket in buckets), buckets[-1]
    is_little = count * widest.width <= MOST_PADDED
    return [Bucket(widest.width, widest.first, count)] if is_little else buckets


@dataclass
class GpuTransposed:
    """The graph by source: for each source node the sequences that it stands in."""

    work: Work
    target: Tensor  # [E] the row of each entry
    entry: Tensor  # [E] its place among the graph's own entries


class GpuPlan:
    """Everything static that the kernels read of one graph.

    Args:
        sequences (Sequences): The graph's own sequences.
        index (torch.Tensor, optional): Their sources in 32 bits, [E].
        work (Work, optional): Their rows as work.
    """

    def __init__(self, sequences: Sequences, index: Tensor | None = None, work: Work | None = None) -> None:
        self.rows = sequences.rows
        self.num_sources = sequences.num_sources
        self.index = sequences.index.int() if index is None else index  # [E]
        self.work = work or Work.of(sequences.rows.ptr, self.rows.num_entries)

    @cached_property
    def transposed(self) -> GpuTransposed:
        """The graph by source, in the order of the entries; worked out once a backward pass is likely."""
        _check_not_capturing()
        with lasting():
            source, order = sort(self.index)
            bounds = torch.arange(self.num_sources + 1, device=source.device, dtype=torch.int32)
            ptr = torch.searchsorted(source, bounds, out_int32=True)
            return GpuTransposed(Work.of(ptr, self.rows.num_entries), *transpose(order, self.rows.target))

    def expect_backward(self) -> None:
        """Works out the transposed graph now; the backward pass would wait for the whole forward pass."""
        if "transposed" not in vars(self) and not is_tracing():
            _ = self.transposed

    @cached_property
    def compares_few(self) -> bool:
        """Whether its rows are ranked by comparing entries with each other; see :class:`Work`."""
        return self.work.compares_few(self.rows.num_entries)

    @cached_property
    def position(self) -> Tensor:
        """The place of each entry in its row as the graph has it, [E]."""
        with lasting():
            return self.rows.position().int()


def plan_of(sequences: Sequences) -> GpuPlan:
    """The plan of a graph, kept with its sequences."""
    if "triton" not in sequences.plans:
        _check_not_capturing()
        if sequences.rows.num_entries > MOST_ENTRIES:
            raise Node2SeqError(
                f"a graph of {sequences.rows.num_entries} entries",
                "the kernels number entries with 32 bits",
                "Use backend='eager', or mini-batches",
            )
        with lasting():
            sequences.plans["triton"] = GpuPlan(sequences)
    return sequences.plans["triton"]


def reordered(plan: GpuPlan, order: Tensor) -> Layout:
    """A graph's entries in a given order within their rows: position e holds the entry ``order[e]``."""
    place = torch.empty_like(plan.position)
    place[order] = plan.position
    return Layout(plan, plan.index[order], place)


def _check_not_capturing() -> None:
    if is_tracing():
        raise Node2SeqError(
            "a graph that is new while a CUDA graph is captured",
            "its plan cannot be built then, since the sizes of the work depend on values",
            "Run one training step with the same edge_index before the capture",
        )

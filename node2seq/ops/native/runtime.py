"""What the loops run on: threads, scratch memory, and the plan of a graph, by which its entries are ranked.

Numba has thread pools of its own; one of them ends a process that was forked after it was used, the other one
ends a process in which two threads use it at once. These threads are the calling one and as many plain ones
as PyTorch would use: a forked process starts its own, and callers share them.

A plan is built once for each graph. It has rows of 32 bits, cuts of even work, and the transposed graph. The
edges of its sequences are sorted by two sorts that count: first by source, then by target.
"""

from __future__ import annotations

import copy
import math
import os
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from node2seq.ops.native import kernels
from node2seq.ops.ranking import Convolution, Layout, Positions, Ranking
from node2seq.ops.sequences import Rows, Sequences, lasting

# How often each kernel was run: which path was taken cannot be seen in the results.
RUNS: Counter[str] = Counter()

# So many bytes are kept in all, for as long as the process lives.
_MOST_BYTES = 2**28

_kept: dict[int, Tensor] = {}  # bytes, by the id of their tensor; threads may take and leave at once

_helpers: ThreadPoolExecutor | None = None
_size = 0

# Ids and places are stored with 32 bits where they fit: half the memory traffic.
LARGEST_INT32 = 2**31 - 1
# Scores are sorted as whole numbers of the same width.
_KEY = {torch.float32: torch.int32, torch.float64: torch.int64}
# Work is cut so that a part is worth handing over, and that there are enough parts to even out.
_ENTRIES_PER_PART = 2**13
_MOST_PARTS = 64


def run(kernel: Any, cuts: Sequence[int], *arguments: Any) -> None:
    """Calls ``kernel(first, last, *arguments)`` for all neighbours in ``cuts``, on several threads.

    What a kernel writes for a row may depend on that row alone: then neither the number of threads nor who
    takes which cut can be seen in the results.

    Args:
        kernel: A compiled loop over the rows ``first`` to ``last - 1``.
        cuts: Where the work is cut: rows, ascending, from the first to the end of the last.
        *arguments: What it works on; tensors are handed over as arrays on the same memory.
    """
    RUNS[kernel.__name__] += 1
    arrays = [value.numpy(force=True) if isinstance(value, Tensor) else value for value in arguments]
    threads = min(torch.get_num_threads(), len(cuts) - 1)
    if threads <= 1:
        kernel(cuts[0], cuts[-1], *arrays)
        return
    parts = iter(list(pairwise(cuts)))
    others = [_pool(threads - 1).submit(_work, kernel, parts, arrays) for _ in range(threads - 1)]
    try:
        _work(kernel, parts, arrays)
    finally:
        _wait(others)


def _work(kernel: Any, parts: Iterator[tuple[int, int]], arrays: list[Any]) -> None:
    # The threads share the iterator: each takes the next part when it is done with one.
    for first, last in parts:
        kernel(first, last, *arrays)


def _wait(others: list[Future[None]]) -> None:
    for other in others:
        # One that has not begun has nothing left to do.
        if not other.cancel():
            other.result()


def _pool(size: int) -> ThreadPoolExecutor:
    global _helpers, _size
    if _helpers is None or _size < size:
        _helpers, _size = ThreadPoolExecutor(size, thread_name_prefix="node2seq"), size
    return _helpers


def _forget() -> None:
    """In a forked process: the threads of the pool stayed behind."""
    global _helpers
    _helpers = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Scratch:
    """A table that a pass works out and then throws away: a tensor of any content.

    Fresh memory comes in pages that the system has to clear, one by one: for a table that is written and read
    once this takes longer than the product that fills it. So a few are kept: the memory goes to the next one
    when this object is gone.

    Args:
        shape (sequence): Its shape.
        dtype (torch.dtype): Its type.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        size = math.prod(shape) * dtype.itemsize
        memory = _take(size)
        self.tensor = memory[:size].view(dtype).view(tuple(shape))
        weakref.finalize(self, _leave, memory).atexit = False


def _take(size: int) -> Tensor:
    for memory in sorted(_kept.values(), key=Tensor.numel):
        # Another thread may have taken it.
        if memory.numel() >= size and _kept.pop(id(memory), None) is not None:
            return memory
    with lasting():
        return torch.empty(size, dtype=torch.uint8)


def _leave(memory: Tensor) -> None:
    _kept[id(memory)] = memory
    total = sum(other.numel() for other in list(_kept.values()))
    for oldest in list(_kept):
        if total <= _MOST_BYTES:
            break
        dropped = _kept.pop(oldest, None)
        total -= 0 if dropped is None else dropped.numel()


def build(
    source: Tensor,
    target: Tensor,
    num_sources: int,
    num_targets: int,
    *,
    add_self_loops: bool,
    merge_duplicates: bool,
    expect_backward: bool = False,  # noqa: ARG001
) -> Sequences | None:
    """Sorts edges into sequences, sources ascending; nothing if an id does not exist.

    Args:
        source (torch.Tensor): The source of each edge, [E].
        target (torch.Tensor): Its target, [E].
        num_sources (int): The number of source nodes M.
        num_targets (int): The number of target nodes N.
        add_self_loops (bool): Whether each node is its own source; given self loops are left out then.
        merge_duplicates (bool): Whether an edge that is listed twice counts once.
        expect_backward (bool): Of no use here: the transposed graph is as quick to build later.
    """
    self_entries = min(num_sources, num_targets) if add_self_loops else 0
    fits = max(source.numel() + self_entries, num_sources, num_targets) <= LARGEST_INT32
    by_source = torch.empty(num_sources + 1, dtype=torch.int32 if fits else torch.int64)
    ptr = source.new_empty(num_targets + 1)
    edges = (source, target, self_entries)
    run(kernels.count_edges, [0, 1], *edges, by_source, ptr)
    entries = int(ptr[-1])
    if ptr[0] < 0:
        return None
    row, index = source.new_empty(entries), source.new_empty(entries)
    run(kernels.sort_edges, [0, 1], *edges, merge_duplicates, by_source, ptr, row, index)
    kept = int(ptr[-1])
    if kept < entries:  # copied: a view would hold the memory of the duplicates
        row, index = row[:kept].clone(), index[:kept].clone()
    return Sequences(Rows(ptr, row), index, num_sources)


def cut_evenly(ptr: Tensor) -> list[int]:
    """Rows at which to cut, so that the parts hold about as many entries; a row counts as one more."""
    rows = ptr.numel() - 1
    parts = min((int(ptr[-1]) + rows) // _ENTRIES_PER_PART, _MOST_PARTS)
    if parts <= 1:
        return [0, rows]
    work = ptr + torch.arange(rows + 1)
    cuts = torch.searchsorted(work, work[-1] * torch.arange(1, parts) // parts)
    return [0, *cuts.unique_consecutive().tolist(), rows]


@dataclass
class CpuTransposed:
    """The graph by source: for each source node the sequences that it stands in."""

    ptr: np.ndarray  # [M + 1]
    target: np.ndarray  # [E] the row of each entry
    entry: np.ndarray  # [E] its place among the graph's own entries
    cuts: list[int]


class CpuPlan:
    """Everything static that the loops read of one graph.

    Args:
        sequences (Sequences): The graph's own sequences.
    """

    def __init__(self, sequences: Sequences) -> None:
        self.rows = sequences.rows
        self.num_sources = sequences.num_sources
        entries = self.rows.num_entries
        self.dtype = torch.int32 if max(entries, self.num_sources) <= LARGEST_INT32 else torch.int64
        self.ptr = self.rows.ptr.to(self.dtype).numpy()
        self.index = sequences.index.to(self.dtype)
        self.longest = int(self.rows.length().max()) if self.rows.num_rows else 0
        self.cuts = cut_evenly(self.rows.ptr)
        self.source_cuts = cut_evenly(torch.arange(self.num_sources + 1))

    @cached_property
    def transposed(self) -> CpuTransposed:
        """The graph by source, in the order of the entries; worked out by the first backward pass."""
        with lasting():
            ptr = torch.empty(self.num_sources + 1, dtype=self.dtype)
            target, entry = torch.empty_like(self.index), torch.empty_like(self.index)
            run(kernels.transpose, [0, 1], self.ptr, self.index, ptr, target, entry)
            return CpuTransposed(ptr.numpy(), target.numpy(), entry.numpy(), cut_evenly(ptr))

    def with_sources(self, index: Tensor) -> CpuPlan:
        """The plan of the same rows with other sources."""
        _ = self.position  # shared, so worked out once
        plan = copy.copy(self)
        vars(plan).pop("transposed", None)
        plan.index = index.to(self.dtype)
        return plan

    @cached_property
    def position(self) -> Tensor:
        """The place of each entry in its row as the graph has it, [E]."""
        with lasting():
            return self.rows.position().to(self.dtype)


def plan_of(sequences: Sequences) -> CpuPlan:
    """The plan of a graph, kept with its sequences."""
    if "native" not in sequences.plans:
        with lasting():
            sequences.plans["native"] = CpuPlan(sequences)
    return sequences.plans["native"]


def layout_of(sequences: Sequences | Layout) -> Layout:
    """Sequences of any origin as the loops read them; those of a graph keep the graph's plan."""
    if isinstance(sequences, Layout):
        return sequences
    graph, order = sequences.origin or (sequences, None)
    plan = plan_of(graph)
    if order is None:
        plan = plan if graph is sequences else plan.with_sources(sequences.index)
        return Layout(plan, plan.index, plan.position)
    place = torch.empty_like(plan.position)
    place[order] = plan.position
    return Layout(plan, plan.index[order], place)


def score_and_place(query: Tensor, key: Tensor, plan: CpuPlan) -> tuple[Tensor, Tensor, Layout]:
    """Equations 2 to 4 for local neighbours in one pass over the rows: scores them and sorts them.

    Returns:
        Who goes first where scores tie, as whole numbers, the smaller first, [M]; the score of each of the
        graph's own entries, [E]; and the sequences in their new order.
    """
    own = torch.empty(key.size(0), dtype=_KEY[key.dtype])
    run(kernels.own_keys, plan.source_cuts, key, own)
    scores = query.new_empty(plan.rows.num_entries)
    layout = Layout(plan, torch.empty_like(plan.index), torch.empty_like(plan.index))
    given = (query, key, own, plan.ptr, plan.index, plan.longest)
    run(kernels.arrange, plan.cuts, *given, scores, layout.index, layout.place)
    return own, scores, layout


def score_and_rank(
    query: Tensor, key: Tensor, sequences: Sequences, _then: Convolution | None = None
) -> Ranking:
    """Scores each target's neighbours and ranks them. No gradient passes through."""
    plan = sequences.plans.get("native") or plan_of(sequences)
    _, scores, layout = score_and_place(query.contiguous(), key.contiguous(), plan)

    def find() -> Positions:
        order = layout.order()
        return Positions(layout.index.long(), scores[order], order)

    return Ranking(sequences, layout, find)

"""What the loops run on: threads, scratch memory, and the plan of a graph, by which its entries are ranked.

Numba has thread pools of its own; one of them ends a process that was forked after it was used, the other one
ends a process in which two threads use it at once. These threads are the calling one and as many plain ones
as PyTorch would use: a forked process starts its own, and callers share them.

A plan is built once for each graph. It has rows of 32 bits, cuts of even work, and the transposed graph. The
edges of its sequences are sorted by two sorts that count: first by source, then by target.

Products run on the threads too. A sum runs over its terms in order, a long one in parts of 64 that are then
added up: its bits depend neither on the threads nor on the number of rows, and it loses no more digits than
PyTorch's does. The projection that the order follows from is PyTorch's product, or adds up as that does.

Counter-based dropout runs on the threads alone, in one pass: words, choice and scale together, and no mask is
kept for the backward.
"""

from __future__ import annotations

import copy
import math
import os
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
from torch.autograd.function import once_differentiable

from node2seq.ops import dropout
from node2seq.ops.native import kernels
from node2seq.ops.sequences import Convolution, Layout, Positions, Ranking, Rows, Sequences, lasting

# How often each kernel was run: which path was taken cannot be seen in the results.
RUNS: Counter[str] = Counter()

# So many bytes are kept in all, for as long as the process lives.
_MOST_BYTES = 2**28

# Tables of any type fit into memory of whole cache lines.
_LINE = 64

_kept: dict[int, np.ndarray] = {}  # bytes, by the id of their array; threads may take and leave at once

_helpers: ThreadPoolExecutor | None = None
_size = 0

# Ids and places are stored with 32 bits where they fit: half the memory traffic.
LARGEST_INT32 = 2**31 - 1
# Scores are sorted as whole numbers of the same width.
_KEY = {torch.float32: torch.int32, torch.float64: torch.int64}
_NO_KEYS = {torch.float32: np.empty(0, np.int32), torch.float64: np.empty(0, np.int64)}
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
# Work is cut so that a part is worth handing over, and that there are enough parts to even out.
_ENTRIES_PER_PART = 2**13
_MOST_PARTS = 64
# So many multiplications are worth handing over to another thread: about 30 µs of work.
_TERMS_PER_PART = 2**22
_MOST_SUMS = 16
# So many terms of a product whose largest values are sought are added up in one go, as PyTorch does it.
ONE_SUM = 192
# Columns that fill no tile of vectors are slower than with the library's product; 256 rows of 64 by 64 even.
_LEAST_COLUMNS = 64
_LEAST_TERMS = 2**20
# What rows of features are cut into, for threads to take the next when they are done with one.
_FEATURE_PARTS = 16


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
    """A table that a pass works out and then throws away: an array of any content.

    Fresh memory comes in pages that the system has to clear, one by one: for a table that is written and read
    once this takes longer than the product that fills it. So a few are kept: the memory goes to the next one
    when this object is gone.

    Args:
        shape (sequence): Its shape.
        like (torch.Tensor): A tensor of its type.
    """

    def __init__(self, shape: Sequence[int], like: Tensor) -> None:
        self._memory = _take(math.prod(shape) * like.itemsize)
        self.array = np.ndarray(shape, _NUMPY[like.dtype], self._memory)

    @property
    def by_row(self) -> np.ndarray:
        """The same as a matrix: what belongs to the first dimension side by side."""
        return self.array.reshape(len(self.array), math.prod(self.array.shape[1:]))

    @property
    def tensor(self) -> Tensor:
        """The same as a tensor."""
        return torch.from_numpy(self.array)

    def __del__(self) -> None:
        _leave(self._memory)


def _take(size: int) -> np.ndarray:
    for memory in sorted(_kept.values(), key=len):
        # Another thread may have taken it.
        if len(memory) >= size and _kept.pop(id(memory), None) is not None:
            return memory
    with lasting():  # PyTorch's memory starts with a cache line, NumPy's does not
        return torch.empty(-(-size // _LINE) * _LINE, dtype=torch.uint8).numpy()


def _leave(memory: np.ndarray) -> None:
    _kept[id(memory)] = memory
    total = sum(map(len, list(_kept.values())))
    for oldest in list(_kept):
        if total <= _MOST_BYTES:
            break
        total -= len(_kept.pop(oldest, ()))


def by_run(parameter: Tensor | None, dims: int, like: Tensor) -> np.ndarray:
    """A parameter of one run or of R as an array with a leading dimension of runs; of length 0 for none."""
    if parameter is None:
        return np.empty((0,) * (dims + 1), _NUMPY[like.dtype])
    array = parameter.contiguous().numpy(force=True)
    return array[None] if array.ndim == dims else array


def multiply(
    rows: Tensor | np.ndarray,
    weight: Tensor,
    root: Tensor | None,
    form: int,
    out: Tensor | np.ndarray,
    longest: int = 0,
) -> None:
    """Rows times the taps and the root in one product, or each run's rows times its own.

    Args:
        rows (torch.Tensor or numpy.ndarray): The rows, one after the other in memory.
        weight (torch.Tensor): The taps, [K, C, D] or [R, K, C, D].
        root (torch.Tensor, optional): What own rows are multiplied with, [D, C] or [R, D, C].
        form (int): How both stand in the matrix: ``kernels.BESIDE``, ``BELOW`` or ``BACK``.
        out (torch.Tensor or numpy.ndarray): Where the result goes.
        longest (int): So many terms are added up in one go.
    """
    count, depth = rows.shape
    matrices = by_run(weight, 3, weight), by_run(root, 2, weight)
    run(kernels.multiply, row_cuts(count, count * depth * out.shape[1]), rows, *matrices, form, longest, out)


def row_cuts(rows: int, terms: int, others: list[int] | None = None) -> list[int]:
    """Where rows of a product are cut, by how many terms it has; or as ``others`` are, if these are more."""
    parts = _parts(terms)
    if others is not None and len(others) > parts:
        return others
    return [rows * part // parts for part in range(parts + 1)]


def _parts(terms: int) -> int:
    return max(min(terms // _TERMS_PER_PART, _MOST_SUMS), 1)


def gradients(
    needs: Sequence[bool], x: Tensor, table: Tensor | np.ndarray, weight: Tensor, root: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """What the rows, the taps and the root of a convolution get back.

    Parts of the rows have a sum each. How many there are depends on the shapes alone.

    Args:
        needs (sequence): Who needs a gradient.
        x (torch.Tensor): The rows that were multiplied, [M, C].
        table (torch.Tensor or numpy.ndarray): The gradients of all their products, [M, (K + 1) * D].
        weight (torch.Tensor): The taps, [K, C, D] or [R, K, C, D].
        root (torch.Tensor, optional): What own rows were multiplied with, [D, C] or [R, D, C].
    """
    count, depth = x.shape
    grad_x = grad_weight = grad_root = None
    if needs[0]:
        grad_x = torch.empty_like(x)
        multiply(table, weight, root, kernels.BACK, grad_x)
    if needs[1] or needs[2]:
        grad_weight = weight.new_empty(weight.shape)
        grad_root = None if root is None else root.new_empty(root.shape)
        taps, columns = by_run(grad_weight, 3, x), table.shape[1]
        runs, parts = len(taps), _parts(count * depth * columns // len(taps))
        sums = Scratch((runs, parts, depth, columns), x)
        whole = sums.array.reshape(-1, depth, columns)
        run(kernels.multiply_transposed, range(runs * parts + 1), x, table, whole)
        run(kernels.sum_parts, [0, runs], sums.array, taps, by_run(grad_root, 2, x))
    return grad_x, grad_weight, grad_root


def linear(x: Tensor, weight: Tensor) -> Tensor | None:
    """Rows times the transposed weight, [D, C], or those of each run or of all times its own, [R, D, C].

    Nothing where PyTorch's product is as quick. Each sum is one over all terms, in order, as that product's.
    """
    *runs, channels, depth = weight.shape
    terms = x.shape[:-1].numel() * channels * depth
    if channels < _LEAST_COLUMNS or depth > ONE_SUM or terms < _LEAST_TERMS:
        return None
    multiply: Any = _Linear.apply
    if runs and x.dim() == 2:  # one product for all runs
        out = multiply(x.contiguous(), weight.flatten(0, 1)).view(-1, *weight.shape[:-1])
        return out.transpose(0, 1).contiguous()
    return multiply(x.flatten(0, -2).contiguous(), weight).view(*x.shape[:-1], channels)


class _Linear(torch.autograd.Function):
    """The product of a convolution without taps: own rows alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        out = x.new_empty(x.size(0), weight.size(-2))
        multiply(x, _no_taps(weight), weight, kernels.BESIDE, out, longest=ONE_SUM)
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs = (ctx.needs_input_grad[0], False, ctx.needs_input_grad[1])
        grad_x, _, grad_weight = gradients(needs, x, grad.contiguous(), _no_taps(weight), weight)
        return grad_x, grad_weight


def _no_taps(weight: Tensor) -> Tensor:
    *runs, channels, depth = weight.shape
    return weight.new_empty(*runs, 0, depth, channels)


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
    most = source.numel() + self_entries
    short = np.int32 if max(most, num_sources, num_targets) <= LARGEST_INT32 else np.int64
    ptr, short_ptr = np.empty(num_targets + 1, np.int64), np.empty(num_targets + 1, short)
    row, index, short_index = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, short)
    facts = np.empty(2, np.int64)
    written = (ptr, row, index, short_ptr, short_index, facts)
    run(kernels.sort_edges, [0, 1], source, target, num_sources, self_entries, merge_duplicates, *written)
    kept, longest = facts.tolist()
    if kept < 0:
        return None
    if kept < most:  # copied: a view would hold the memory of the duplicates
        row, index, short_index = row[:kept].copy(), index[:kept].copy(), short_index[:kept].copy()
    rows = Rows(torch.from_numpy(ptr), torch.from_numpy(row))
    sequences = Sequences(rows, torch.from_numpy(index), num_sources)
    sequences.plans["native"] = CpuPlan(sequences, short_ptr, torch.from_numpy(short_index), longest)
    return sequences


def cut_evenly(ptr: Tensor, entries: int | None = None) -> list[int]:
    """Rows at which to cut, so that the parts hold about as many entries; a row counts as one more."""
    rows = ptr.numel() - 1
    parts = min(((int(ptr[-1]) if entries is None else entries) + rows) // _ENTRIES_PER_PART, _MOST_PARTS)
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
        ptr (numpy.ndarray): Where their rows start, in few bits, [N + 1].
        index (torch.Tensor): Their sources, in as few bits, [E].
        longest (int): The length of the longest row.
    """

    def __init__(self, sequences: Sequences, ptr: np.ndarray, index: Tensor, longest: int) -> None:
        self.rows, self.num_sources = sequences.rows, sequences.num_sources
        self.ptr, self.index, self.longest, self.dtype = ptr, index, longest, index.dtype
        self.cuts = cut_evenly(self.rows.ptr, self.rows.num_entries)

    @classmethod
    def of(cls, sequences: Sequences) -> CpuPlan:
        """The plan of sequences that were not built by a loop."""
        rows = sequences.rows
        fits = max(rows.num_entries, sequences.num_sources) <= LARGEST_INT32
        dtype = torch.int32 if fits else torch.int64
        longest = int(rows.length().max()) if rows.num_rows else 0
        return cls(sequences, rows.ptr.to(dtype).numpy(), sequences.index.to(dtype), longest)

    @cached_property
    def source_cuts(self) -> list[int]:
        """Where work over the sources is cut."""
        return cut_evenly(torch.arange(self.num_sources + 1))

    @cached_property
    def transposed(self) -> CpuTransposed:
        """The graph by source, in the order of the entries; worked out by the first backward pass."""
        with lasting():
            index = self.index.numpy()
            ptr = np.empty(self.num_sources + 1, index.dtype)
            target, entry = np.empty_like(index), np.empty_like(index)
            run(kernels.transpose, [0, 1], self.ptr, index, ptr, target, entry)
            return CpuTransposed(ptr, target, entry, cut_evenly(torch.from_numpy(ptr), index.size))

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
            sequences.plans["native"] = CpuPlan.of(sequences)
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


def score_and_place(query: Tensor, key: Tensor, plan: CpuPlan) -> tuple[Tensor, Layout]:
    """Equations 2 to 4 for local neighbours in one pass over the rows: scores them and sorts them.

    Returns:
        The score of each of the graph's own entries, [E], and the sequences in their new order.
    """
    scores = query.new_empty(plan.rows.num_entries)
    layout = Layout(plan, torch.empty_like(plan.index), torch.empty_like(plan.index))
    given = (query, key, plan.ptr, plan.index, plan.longest, scores, _NO_KEYS[key.dtype])
    run(kernels.arrange, plan.cuts, *given, layout.index, layout.place)
    return scores, layout


def own_keys(key: Tensor, plan: CpuPlan) -> Tensor:
    """Who goes first where scores tie, as whole numbers, the smaller first, [M]."""
    own = torch.empty(key.size(0), dtype=_KEY[key.dtype])
    run(kernels.own_keys, plan.source_cuts, key, own)
    return own


def score_and_rank(
    query: Tensor, key: Tensor, sequences: Sequences, _then: Convolution | None = None
) -> Ranking:
    """Scores each target's neighbours and ranks them. No gradient passes through."""
    plan = sequences.plans.get("native") or plan_of(sequences)
    scores, layout = score_and_place(query.contiguous(), key.contiguous(), plan)

    def find() -> Positions:
        order = layout.order()
        return Positions(layout.index.long(), scores[order], order)

    return Ranking(sequences, layout, find)


def drop(
    x: Tensor,
    p: float | Tensor,
    seed: Tensor,
    step: Tensor,
    layer: int,
    nodes: Tensor | None,
    whole_rows: bool,
) -> Tensor:
    """What :func:`node2seq.ops.counter_dropout` does, for float32 and float64, bit for bit; no gradient."""
    stream = dropout.streams(seed.reshape(-1), step.reshape(-1), layer)
    runs, (rows, channels) = stream.numel(), x.shape[-2:]
    features = x.contiguous().view(-1, rows, channels)
    out = features.new_empty(runs, rows, channels)
    node = torch.arange(rows) if nodes is None else nodes
    least = torch.as_tensor(dropout.least_word(p)).long().expand(runs) + dropout.WORD // 2
    scale = torch.as_tensor(dropout.scale_of(p, x.dtype), dtype=x.dtype).reshape(-1).expand(runs)
    words = (stream.long() % dropout.WORD).numpy().view("uint64")
    thresholds = least.contiguous().numpy().view("uint64")
    run(
        kernels.drop,
        [runs * rows * part // _FEATURE_PARTS for part in range(_FEATURE_PARTS + 1)],
        features,
        node.contiguous(),
        whole_rows,
        words,
        thresholds,
        scale.contiguous(),
        out,
    )
    return out if seed.dim() else out[0]

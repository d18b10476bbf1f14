"""From edges to sequences and their plan, for graphs that are new at every step: one wait for the device.

Sizes that only the device knows, such as the number of duplicates, are read at the end, all together; until
then arrays have room for the most that there can be, and what is left over stands at their ends.
"""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.sequences import Rows, Sequences
from node2seq.ops.triton.build_few import build_few, is_few
from node2seq.ops.triton.counting_sort import sort
from node2seq.ops.triton.launch import cdiv, launch
from node2seq.ops.triton.partition import Totals, read_totals, transpose
from node2seq.ops.triton.plan import GpuPlan, GpuTransposed, Work

_BLOCK = 1024


@triton.jit(do_not_specialize=["E", "T", "M", "N", "span", "dropped"])
def key_kernel(
    source,  # [E]
    target,  # [E]
    key,  # [T]
    is_wrong,  # [1]
    E,
    T,
    M,
    N,
    span,
    dropped,
    DROP_LOOPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some edges, and behind them loops: numbers that sort by target, then source; dropped ones come last.

    An edge whose ids do not exist is dropped too, and reported.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_edge = place < E
    j = tl.load(source + place, mask=is_edge, other=0)
    i = tl.load(target + place, mask=is_edge, other=0)
    wrong = is_edge & ((j < 0) | (j >= M) | (i < 0) | (i >= N))
    tl.store(is_wrong + tl.zeros([BLOCK], dtype=tl.int32), tl.full([BLOCK], 1, tl.int32), mask=wrong)
    j = tl.where(is_edge, j, place - E)
    i = tl.where(is_edge, i, place - E)
    if DROP_LOOPS:
        wrong = wrong | (is_edge & (i == j))
    tl.store(key + place, tl.where(wrong, dropped, i * span + j), mask=place < T)


@triton.jit(do_not_specialize=["T", "dropped"])
def count_kernel(
    key,  # [T] ascending
    counts,  # [T]
    T,
    dropped,
    MERGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some of the sorted edges: whether each is an entry, or dropped or a duplicate."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(key + place, mask=place < T, other=0)
    counts_here = mine < dropped
    if MERGE:
        before = tl.load(key + place - 1, mask=(place > 0) & (place < T), other=-1)
        counts_here = counts_here & (mine != before)
    tl.store(counts + place, counts_here.to(tl.int32), mask=place < T)


@triton.jit(do_not_specialize=["T", "M", "N", "span"])
def entries_kernel(
    key,  # [T] ascending
    ends,  # [T] the counts, added up
    index,  # [T]
    short_index,  # [T] the same in 32 bits
    target,  # [T]
    T,
    M,
    N,
    span,
    BLOCK: tl.constexpr,
):
    """Some of the sorted edges: entries go to their places, all others behind them from the end on."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = place < T
    before = tl.load(ends + place - 1, mask=real & (place > 0), other=0)
    is_entry = tl.load(ends + place, mask=real, other=0) > before
    mine = tl.load(key + place, mask=real, other=0)
    i = mine // span
    j = tl.where(is_entry, mine - i * span, M)
    at = tl.where(is_entry, before.to(tl.int64), T - 1 - (place - before))
    tl.store(index + at, j, mask=real)
    tl.store(short_index + at, j.to(tl.int32), mask=real)
    tl.store(target + at, tl.where(is_entry, i, N), mask=real)


@triton.jit(do_not_specialize=["T", "rows", "span", "steps"])
def starts_kernel(
    key,  # [T] ascending
    ends,  # [T]
    ptr,  # [rows]
    short_ptr,  # [rows] the same in 32 bits
    T,
    rows,
    span,
    steps,
    BY_ENDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some rows: where the first number stands that is not below the row's, or how many entries before."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    low = tl.zeros([BLOCK], dtype=tl.int32)
    high = tl.zeros([BLOCK], dtype=tl.int32) + T
    for _ in range(steps):
        middle = (low + high) // 2
        is_open = low < high
        is_below = tl.load(key + middle, mask=is_open, other=0) < row * span
        high = tl.where(is_open & (is_below == 0), middle, high)
        low = tl.where(is_open & is_below, middle + 1, low)
    if BY_ENDS:
        low = tl.load(ends + low - 1, mask=low > 0, other=0)
    tl.store(short_ptr + row, low, mask=row < rows)
    tl.store(ptr + row, low.to(tl.int64), mask=row < rows)


def build(
    source: Tensor,
    target: Tensor,
    num_sources: int,
    num_targets: int,
    *,
    add_self_loops: bool,
    merge_duplicates: bool,
    expect_backward: bool,
) -> Sequences | None:
    """What :func:`node2seq.ops.build_sequences` gives, with its plan; nothing if an id does not exist."""
    choices = {"add_self_loops": add_self_loops, "merge_duplicates": merge_duplicates}
    if is_few(source.numel(), num_sources, num_targets):
        return build_few(source, target, num_sources, num_targets, **choices, expect_backward=expect_backward)
    device, edges = source.device, source.numel()
    total = edges + (min(num_sources, num_targets) if add_self_loops else 0)
    span = max(num_sources, 1)
    dropped = num_targets * span
    grid = (cdiv(total, _BLOCK),)

    def new(size: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    key, is_wrong = new(total, torch.int64), torch.zeros(1, dtype=torch.int32, device=device)
    drop_loops = add_self_loops and not merge_duplicates
    sizes = (edges, total, num_sources, num_targets, span, dropped)
    meta = {"BLOCK": _BLOCK, "num_warps": 4}
    both = (source.contiguous(), target.contiguous())
    launch(key_kernel, grid, *both, key, is_wrong, *sizes, DROP_LOOPS=drop_loops, **meta)
    key, _ = sort(key)
    counts = new(total)
    launch(count_kernel, grid, key, counts, total, dropped, MERGE=merge_duplicates, **meta)
    ends = counts.cumsum(0, dtype=torch.int32)
    index, row_of, short_index = new(total, torch.int64), new(total, torch.int64), new(total)
    sizes = (total, num_sources, num_targets, span)
    launch(entries_kernel, grid, key, ends, index, short_index, row_of, *sizes, **meta)

    ptr, short_ptr = _starts(key, ends, num_targets, span)
    work, rows_of_each = Work.begin(short_ptr, total)
    unread: list[Totals | Tensor] = [is_wrong, ends[-1:], rows_of_each]
    by_source = None
    if expect_backward:
        ordered, order = sort(short_index)
        by, rows_of_each = Work.begin(_starts(ordered, None, num_sources, 1)[1], total)
        by_source = GpuTransposed(by, *transpose(order, row_of))
        unread.append(rows_of_each)
    wrong, entries, *totals = read_totals(unread)
    if wrong[0]:
        return None
    count = entries[0] if entries else 0
    work.finish(totals[0])
    sequences = Sequences(Rows(ptr, row_of[:count]), index[:count], num_sources)
    plan = GpuPlan(sequences, short_index[:count], work)
    if by_source is not None:
        by_source.work.finish(totals[1])
        plan.transposed = GpuTransposed(by_source.work, by_source.target[:count], by_source.entry[:count])
    sequences.plans["triton"] = plan
    return sequences


def _starts(key: Tensor, ends: Tensor | None, rows: int, span: int) -> tuple[Tensor, Tensor]:
    """Where each row of sorted numbers starts, and where the last one ends, in 64 and in 32 bits."""
    total, count = key.numel(), rows + 1
    ptr = torch.empty(count, dtype=torch.int64, device=key.device)
    short_ptr = torch.empty(count, dtype=torch.int32, device=key.device)
    launch(
        starts_kernel,
        (cdiv(count, 256),),
        key,
        key if ends is None else ends,
        ptr,
        short_ptr,
        total,
        count,
        span,
        total.bit_length(),
        BY_ENDS=ends is not None,
        BLOCK=256,
        num_warps=4,
    )
    return ptr, short_ptr

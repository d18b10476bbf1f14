"""From few edges to sequences and their plan in three launches: each edge and row counts what goes before it.

A new graph of a few thousand nodes is bound by the host: it waits for launches, not for comparisons.
"""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.sequences import Rows, Sequences
from node2seq.ops.triton.counting_sort import FEW
from node2seq.ops.triton.launch import cdiv, launch
from node2seq.ops.triton.partition import GROUPS, Order, sizes_on
from node2seq.ops.triton.plan import GpuPlan, GpuTransposed, Work

_ROWS = 32  # edges or rows that a program places
_META = {"ROWS": _ROWS, "BLOCK": 128, "num_warps": 4}
_FACTS = 2  # whether an id does not exist, and the number of entries
_TOTALS = 3 * GROUPS  # of each side
_ALIGNED = 16  # numbers: kernels are compiled for tensors that begin at a multiple of 16 bytes


@triton.jit
def number_of(source, target, place, E, M, N, span, dropped, DROP_LOOPS: tl.constexpr):
    """Some edges, and behind them loops: numbers that sort by target, then source.

    Those of dropped edges are larger, and those of edges whose ids do not exist are larger still.
    """
    is_edge = place < E
    j = tl.load(source + place, mask=is_edge, other=0)
    i = tl.load(target + place, mask=is_edge, other=0)
    wrong = is_edge & ((j < 0) | (j >= M) | (i < 0) | (i >= N))
    j = tl.where(is_edge, j, place - E)
    i = tl.where(is_edge, i, place - E)
    number = i * span + j
    if DROP_LOOPS:
        number = tl.where(is_edge & (i == j), dropped, number)
    return tl.where(wrong, dropped + 1, number).to(tl.int32)


@triton.jit(do_not_specialize=["E", "T", "M", "N", "span", "dropped"])
def number_few_kernel(
    source,  # [E]
    target,  # [E]
    numbers,  # [T]
    E,
    T,
    M,
    N,
    span,
    dropped,
    DROP_LOOPS: tl.constexpr,
    MERGE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some edges and loops: their numbers; a duplicate is dropped."""
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = number_of(source, target, at, E, M, N, span, dropped, DROP_LOOPS)
    if MERGE:
        same = tl.zeros([ROWS, BLOCK], dtype=tl.int32)
        for first in range(0, tl.minimum(tl.program_id(0) * ROWS + ROWS, T), BLOCK):
            other = first + tl.arange(0, BLOCK)
            theirs = number_of(source, target, other, E, M, N, span, dropped, DROP_LOOPS)
            same += ((theirs[None, :] == mine[:, None]) & (other[None, :] < at[:, None])).to(tl.int32)
        mine = tl.where((tl.sum(same, axis=1) > 0) & (mine < dropped), dropped, mine)
    tl.store(numbers + at, mine, mask=at < T)


@triton.jit(do_not_specialize=["T", "M", "N", "span", "height", "dropped", "edge_blocks", "ptr_at", "by_at"])
def place_edges_few_kernel(
    numbers,  # [T]
    index,  # [T]
    short_index,  # [T] the same in 32 bits
    target,  # [T]
    ptr,  # [N + 1]
    entry,  # [T] by source
    entry_target,  # [T] by source
    numbers_of_plan,
    T,
    M,
    N,
    span,
    height,
    dropped,
    edge_blocks,
    ptr_at,
    by_at,
    BACKWARD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some edges, or some rows: how many entries go before each, by target and by source."""
    is_edges = tl.program_id(0) < edge_blocks
    block = tl.where(is_edges, tl.program_id(0), tl.program_id(0) - edge_blocks)
    at = block * ROWS + tl.arange(0, ROWS)
    real = at < tl.where(is_edges, T, 0)
    number = tl.load(numbers + at, mask=real, other=0)
    i = number // span
    j = number - i * span
    mine = tl.where(is_edges, number, at * span)
    mine_by_source = tl.where(is_edges, j * height + i, at * height)
    # No row stands behind an edge that is equal.
    until = tl.where(is_edges, at, 0)
    before = tl.zeros([ROWS, BLOCK], dtype=tl.int32)
    before_by_source = tl.zeros([ROWS, BLOCK], dtype=tl.int32)
    wrong = tl.zeros([BLOCK], dtype=tl.int32)
    for first in range(0, T, BLOCK):
        other = first + tl.arange(0, BLOCK)
        theirs = tl.load(numbers + other, mask=other < T, other=dropped)
        wrong += (theirs > dropped).to(tl.int32)
        is_entry = (theirs < dropped)[None, :]
        is_earlier = (theirs[None, :] == mine[:, None]) & (other[None, :] < until[:, None])
        before += (is_entry & ((theirs[None, :] < mine[:, None]) | is_earlier)).to(tl.int32)
        if BACKWARD:
            their_row = theirs // span
            by_source = (theirs - their_row * span) * height + their_row
            is_earlier = (by_source[None, :] == mine_by_source[:, None]) & (other[None, :] < until[:, None])
            is_before = (by_source[None, :] < mine_by_source[:, None]) | is_earlier
            before_by_source += (is_entry & is_before).to(tl.int32)
    place = tl.sum(before, axis=1)
    real = real & (number < dropped)
    tl.store(index + place, j.to(tl.int64), mask=real)
    tl.store(short_index + place, j, mask=real)
    tl.store(target + place, i.to(tl.int64), mask=real)
    is_row = at <= tl.where(is_edges, -1, N)
    tl.store(ptr + at, place.to(tl.int64), mask=is_row)
    tl.store(numbers_of_plan + ptr_at + at, place, mask=is_row)
    tl.store(numbers_of_plan + 1 + at - at, place, mask=is_row & (at == N))
    if BACKWARD:
        place_by_source = tl.sum(before_by_source, axis=1)
        tl.store(entry + place_by_source, place, mask=real)
        tl.store(entry_target + place_by_source, i, mask=real)
        tl.store(numbers_of_plan + by_at + at, place_by_source, mask=at <= tl.where(is_edges, -1, M))
    if tl.program_id(0) == 0:
        tl.store(numbers_of_plan, tl.sum(wrong, axis=0))


@triton.jit
def lengths_of(ptr, row, count, size, ITEM: tl.constexpr, CHUNK: tl.constexpr, GROUPS: tl.constexpr):
    """Some rows: where each starts, the group that its length is in, its parts and its chunks."""
    start = tl.load(ptr + row, mask=row < count, other=0)
    length = tl.load(ptr + row + 1, mask=row < count, other=0) - start
    # Longest first, as in `partition.grouped`.
    group = GROUPS - 1 - tl.sum((length[:, None] > size[None, :]).to(tl.int32), axis=1)
    parts = tl.where(length > ITEM, (length + ITEM - 1) // ITEM, 0)
    chunks = tl.where(length > CHUNK, (length + CHUNK - 1) // CHUNK, 0)
    return start, group, parts, chunks


@triton.jit(
    do_not_specialize=[
        "N",
        "M",
        "first_side",
        "side_size",
        "rows",
        "item_row",
        "item_first",
        "parts",
        "chunks",
    ]
)
def work_few_kernel(
    numbers_of_plan,
    sizes,  # [G]
    N,
    M,
    first_side,
    side_size,
    rows,
    item_row,
    item_first,
    parts,
    chunks,
    FACTS: tl.constexpr,
    ITEM: tl.constexpr,
    CHUNK: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some rows of the graph by target or by source: their places, their items, where their parts end."""
    side = tl.program_id(1)
    count = tl.where(side == 0, N, M)
    ptr = numbers_of_plan + first_side + side * side_size
    size = tl.load(sizes + tl.arange(0, GROUPS))
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start, group, row_parts, row_chunks = lengths_of(ptr, row, count, size, ITEM, CHUNK, GROUPS)
    rows_before = tl.zeros([ROWS, BLOCK], dtype=tl.int32)
    parts_before = tl.zeros([ROWS, BLOCK], dtype=tl.int32)
    chunks_before = tl.zeros([ROWS, BLOCK], dtype=tl.int32)
    hubs = tl.zeros([BLOCK], dtype=tl.int32)
    all_parts = tl.zeros([BLOCK], dtype=tl.int32)
    for first in range(0, count, BLOCK):
        other = first + tl.arange(0, BLOCK)
        _, their_group, their_parts, their_chunks = lengths_of(ptr, other, count, size, ITEM, CHUNK, GROUPS)
        is_earlier = (their_group[None, :] == group[:, None]) & (other[None, :] < row[:, None])
        is_before = (other < count)[None, :] & ((their_group[None, :] < group[:, None]) | is_earlier)
        rows_before += is_before.to(tl.int32)
        parts_before += tl.where(is_before, their_parts[None, :], 0)
        chunks_before += tl.where(is_before, their_chunks[None, :], 0)
        hubs += (their_parts > 0).to(tl.int32)
        all_parts += their_parts
    real = row < count
    place = tl.sum(rows_before, axis=1)
    tl.store(ptr + rows + place, row, mask=real)
    part = tl.sum(parts_before, axis=1)
    tl.store(ptr + parts + place + 1, part + row_parts, mask=real & (row_parts > 0))
    chunk = tl.sum(chunks_before, axis=1)
    tl.store(ptr + chunks + place + 1, chunk + row_chunks, mask=real & (row_chunks > 0))
    # An item stands behind the parts of all hubs; the rows before it that are no hubs have an item each.
    item = place - tl.sum(hubs, axis=0) + tl.sum(all_parts, axis=0)
    tl.store(ptr + item_row + item, row, mask=real & (row_parts == 0))
    tl.store(ptr + item_first + item, start, mask=real & (row_parts == 0))
    if tl.program_id(0) == 0:
        tl.store(ptr + parts, 0)
        tl.store(ptr + chunks, 0)
        number = tl.arange(0, GROUPS)
        group_rows = tl.zeros([GROUPS], dtype=tl.int32)
        group_parts = tl.zeros([GROUPS], dtype=tl.int32)
        group_chunks = tl.zeros([GROUPS], dtype=tl.int32)
        for first in range(0, count, BLOCK):
            other = first + tl.arange(0, BLOCK)
            _, their_group, their_parts, their_chunks = lengths_of(
                ptr, other, count, size, ITEM, CHUNK, GROUPS
            )
            # In this or an earlier group.
            within = (their_group[:, None] <= number[None, :]) & (other < count)[:, None]
            group_rows += tl.sum(within.to(tl.int32), axis=0)
            group_parts += tl.sum(tl.where(within, their_parts[:, None], 0), axis=0)
            group_chunks += tl.sum(tl.where(within, their_chunks[:, None], 0), axis=0)
        # The ends go on from one count to the next.
        totals = numbers_of_plan + FACTS + side * (3 * GROUPS) + number
        tl.store(totals, group_rows)
        tl.store(totals + GROUPS, group_parts + count)
        tl.store(totals + 2 * GROUPS, group_chunks + count + tl.sum(all_parts, axis=0))


def is_few(edges: int, num_sources: int, num_targets: int) -> bool:
    """Whether a graph, self entries included, is so small that everything is compared with everything."""
    return max(edges + min(num_sources, num_targets), num_sources, num_targets) <= FEW


class _Side:
    """Where the numbers of one side's plan lie: its rows, and then its :class:`Order`."""

    def __init__(self, rows: int, entries: int, item: int, chunk: int) -> None:
        most = rows + entries // item
        cut, chunked = (min(rows, entries // size) + 1 for size in (item, chunk))
        sizes = (rows + 1, rows, most, most, cut, chunked)
        self.lengths = [cdiv(size, _ALIGNED) * _ALIGNED for size in sizes]
        self.size = sum(self.lengths)
        _, *self.places = accumulate(self.lengths[:-1], initial=0)


def build_few(
    source: Tensor,
    target: Tensor,
    num_sources: int,
    num_targets: int,
    *,
    add_self_loops: bool,
    merge_duplicates: bool,
    expect_backward: bool,
) -> Sequences | None:
    """What :func:`node2seq.ops.triton.build` gives, for graphs of few nodes and edges."""
    device, edges = source.device, source.numel()
    total = edges + (min(num_sources, num_targets) if add_self_loops else 0)
    span, height, most_rows = max(num_sources, 1), max(num_targets, 1), max(num_sources, num_targets)
    dropped = num_targets * span
    sides, blocks = 1 + expect_backward, cdiv(total, _ROWS)

    # One piece of memory for whole numbers of each width: fewer calls.
    item, chunk, sizes = Work.cuts()
    side, room = _Side(most_rows, total, item, chunk), cdiv(total, _ALIGNED) * _ALIGNED
    facts = cdiv(_FACTS + sides * _TOTALS, _ALIGNED) * _ALIGNED
    short = torch.empty(facts + sides * side.size + 4 * room, dtype=torch.int32, device=device)
    found, *parts = short.split([facts, *(side.lengths * sides), *([room] * 4)])
    numbers, short_index, entry, entry_target = parts[-4:]
    long = torch.empty(cdiv(num_targets + 1, 2) * 2 + 2 * room, dtype=torch.int64, device=device)
    ptr, index, row_of = long.split([cdiv(num_targets + 1, 2) * 2, room, room])

    choices = {"DROP_LOOPS": add_self_loops and not merge_duplicates, "MERGE": merge_duplicates}
    ids = (edges, total, num_sources, num_targets, span, dropped)
    both = (source.contiguous(), target.contiguous())
    launch(number_few_kernel, (blocks,), *both, numbers, *ids, **choices, **_META)
    written = (index, short_index, row_of, ptr, entry, entry_target, short)
    ids = (total, num_sources, num_targets, span, height, dropped, blocks, facts, facts + side.size)
    grid = (blocks + cdiv(most_rows + 1, _ROWS),)
    launch(place_edges_few_kernel, grid, numbers, *written, *ids, BACKWARD=expect_backward, **_META)
    grid = (max(cdiv(most_rows, _ROWS), 1), sides)
    cut = {"FACTS": _FACTS, "ITEM": item, "CHUNK": chunk, "GROUPS": GROUPS}
    ids = (num_targets, num_sources, facts, side.size, *side.places)
    launch(work_few_kernel, grid, short, sizes_on(device, sizes), *ids, **cut, **_META)

    wrong, count, *totals = found.tolist()
    if wrong:
        return None

    def work(number: int, rows: int) -> Work:
        rows_ptr, *placed = parts[6 * number : 6 * number + 6]
        rows_ptr, placed[0] = rows_ptr.narrow(0, 0, rows + 1), placed[0].narrow(0, 0, rows)
        order = Order(rows_ptr, sizes, item, chunk, *placed)
        done = Work(rows_ptr, order)
        done.finish(totals[number * _TOTALS : (number + 1) * _TOTALS])
        return done

    rows = Rows(ptr.narrow(0, 0, num_targets + 1), row_of.narrow(0, 0, count))
    sequences = Sequences(rows, index.narrow(0, 0, count), num_sources)
    plan = GpuPlan(sequences, short_index.narrow(0, 0, count), work(0, num_targets))
    if expect_backward:
        by_source = (entry_target.narrow(0, 0, count), entry.narrow(0, 0, count))
        plan.transposed = GpuTransposed(work(1, num_sources), *by_source)
    sequences.plans["triton"] = plan
    return sequences

"""Equation 3 for longer rows: sorted in registers, by keys of score, precedence and slot in 64 bits."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.sequences import Layout
from node2seq.ops.triton.counting_sort import FEW, place_few
from node2seq.ops.triton.launch import Tile, cdiv, launch
from node2seq.ops.triton.plan import Bucket, GpuPlan, Work
from node2seq.ops.triton.short_rows import order_key, rank_short_rows

# By width: the keys that a program sorts at once, since short rows share one, and its warps; the fastest
# of five measured on an H200.
SORT_TILES = {
    128: Tile(512, 4),
    256: Tile(512, 2),
    512: Tile(512, 4),
    1024: Tile(1024, 2),
}


def packs(plan: GpuPlan) -> bool:
    """Whether a precedence and the slot within the widest sort fit into 32 bits."""
    return plan.num_sources << (plan.work.longest_sorted - 1).bit_length() <= 2**32


@triton.jit
def packed(score, index, precedence, entry, slot, real, LOG_W: tl.constexpr):
    """Integers that sort as the entries do: score descending, then precedence; the slot rides along."""
    value = tl.load(score + entry, mask=real, other=0.0)
    source = tl.load(index + entry, mask=real, other=0)
    first = tl.load(precedence + source, mask=real, other=0).to(tl.int64)
    return order_key(value, (first << LOG_W) + slot, real)


@triton.jit(do_not_specialize=["first_row", "count"])
def rank_kernel(
    score,  # [E]
    index,  # [E]
    precedence,  # [M]
    rows,  # [N]
    ptr,  # [N + 1]
    ranked,  # [E]
    place,  # [E]
    first_row,
    count,
    LOG_W: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Some rows of one width, sorted in registers."""
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = tl.load(rows + first_row + number, mask=number < count, other=0)
    start = tl.load(ptr + row)
    length = tl.where(number < count, tl.load(ptr + row + 1) - start, 0)
    slot = tl.arange(0, 1 << LOG_W)[None, :]
    real = slot < length[:, None]
    key = packed(score, index, precedence, start[:, None] + slot, slot, real, LOG_W)
    key = tl.sort(key, dim=1)
    # Padding sorts behind every entry: position p is real where slot p is.
    entry = start[:, None] + (key & ((1 << LOG_W) - 1)).to(tl.int32)
    tl.store(ranked + start[:, None] + slot, tl.load(index + entry, mask=real, other=0), mask=real)
    tl.store(place + entry, tl.broadcast_to(slot, entry.shape), mask=real)


@triton.jit
def sort_chunk_kernel(
    score,  # [E]
    index,  # [E]
    precedence,  # [M]
    chunk_row,  # [P]
    chunk_first,  # [P]
    ptr,  # [N + 1]
    keys,  # [P, W]
    LOG_W: tl.constexpr,
):
    """One chunk of a long row, sorted in registers."""
    chunk = tl.program_id(0)
    first = tl.load(chunk_first + chunk)
    slot = tl.arange(0, 1 << LOG_W)
    real = first + slot < tl.load(ptr + tl.load(chunk_row + chunk) + 1)
    key = packed(score, index, precedence, first + slot, slot, real, LOG_W)
    tl.store(keys + (chunk.to(tl.int64) << LOG_W) + slot, tl.sort(key, dim=0))


@triton.jit
def merge_chunks_kernel(
    keys,  # [P, W]
    index,  # [E]
    chunk_row,  # [P]
    chunk_first,  # [P]
    ptr,  # [N + 1]
    ranked,  # [E]
    place,  # [E]
    LOG_W: tl.constexpr,
):
    """One chunk: each entry's place in the whole row."""
    chunk = tl.program_id(0)
    row = tl.load(chunk_row + chunk)
    first = tl.load(chunk_first + chunk)
    start = tl.load(ptr + row)
    end = tl.load(ptr + row + 1)
    slot = tl.arange(0, 1 << LOG_W)
    mine = tl.load(keys + (chunk.to(tl.int64) << LOG_W) + slot)
    # An entry stands behind those of its chunk before it and, in every other chunk, those with smaller keys.
    position = slot
    first_chunk = chunk - ((first - start) >> LOG_W)
    chunks = (end - start + (1 << LOG_W) - 1) >> LOG_W
    for other in range(first_chunk, first_chunk + chunks):
        theirs = keys + tl.cast(other, tl.int64) * (1 << LOG_W)
        below = tl.zeros_like(slot)
        for bit in tl.static_range(LOG_W):
            step = 1 << (LOG_W - 1 - bit)
            below = tl.where(tl.load(theirs + below + step - 1) < mine, below + step, below)
        below += (tl.load(theirs + below) < mine).to(tl.int32)
        position += tl.where(other == chunk, 0, below)
    real = first + slot < end
    entry = first + (mine & ((1 << LOG_W) - 1)).to(tl.int32)
    tl.store(ranked + start + position, tl.load(index + entry, mask=real, other=0), mask=real)
    tl.store(place + entry, position, mask=real)


@triton.jit(do_not_specialize=["N"])
def invert_kernel(
    order,  # [N] int64
    place,  # [N]
    N,
    BLOCK: tl.constexpr,
):
    """Some places of a permutation: who stands there is told where it stands."""
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    node = tl.load(order + number, mask=number < N, other=0)
    tl.store(place + node, number, mask=number < N)


def precedence(own_score: Tensor) -> Tensor:
    """Who goes first where scores tie: the larger own score, then the smaller id. Rank of each node, [M]."""
    if own_score.numel() <= FEW:
        return place_few(own_score)
    order = own_score.sort(descending=True, stable=True).indices
    place = torch.empty_like(order, dtype=torch.int32)
    nodes = order.numel()
    launch(invert_kernel, (cdiv(nodes, 1024),), order, place, nodes, BLOCK=1024, num_warps=4)
    return place


def sort_rows(scores: Tensor, order_of_ties: Tensor, plan: GpuPlan) -> Layout:
    """Every row in the order of its keys."""
    scores, order_of_ties = scores.contiguous(), order_of_ties.int()
    ranked, place = torch.empty_like(plan.index), torch.empty_like(plan.index)
    for bucket in plan.work.short_buckets:
        rank_short_rows(scores, scores, scores[:, None], order_of_ties, plan, bucket, ranked, place)
    sort_long_rows(scores, order_of_ties, plan, ranked, place)
    return Layout(plan, ranked, place)


def sort_long_rows(
    scores: Tensor, order_of_ties: Tensor, plan: GpuPlan, ranked: Tensor, place: Tensor
) -> None:
    """The rows that are not short."""
    for bucket in plan.work.sort_buckets:
        sort_bucket(scores, order_of_ties, plan, bucket, ranked, place)
    _sort_chunked_rows(scores, order_of_ties, plan.index, plan.work, ranked, place)


def sort_bucket(
    scores: Tensor, order_of_ties: Tensor, plan: GpuPlan, bucket: Bucket, ranked: Tensor, place: Tensor
) -> None:
    """The rows that are sorted at one width."""
    tile = SORT_TILES.get(bucket.width, Tile(max(1024, bucket.width), 4))
    rows = tile.block // bucket.width
    launch(
        rank_kernel,
        (cdiv(bucket.count, rows),),
        scores,
        plan.index,
        order_of_ties,
        plan.work.rows,
        plan.work.ptr,
        ranked,
        place,
        bucket.first,
        bucket.count,
        LOG_W=bucket.width.bit_length() - 1,
        ROWS=rows,
        num_warps=tile.warps,
    )


def _sort_chunked_rows(
    scores: Tensor, order_of_ties: Tensor, index: Tensor, work: Work, ranked: Tensor, place: Tensor
) -> None:
    chunks, width = work.chunks, work.longest_sorted
    if not chunks.row.numel():
        return
    grid, log_width = (chunks.row.numel(),), width.bit_length() - 1
    keys = torch.empty(*grid, width, dtype=torch.int64, device=scores.device)
    cut = (chunks.row, chunks.first, work.ptr)
    launch(sort_chunk_kernel, grid, scores, index, order_of_ties, *cut, keys, LOG_W=log_width, num_warps=4)
    launch(merge_chunks_kernel, grid, keys, index, *cut, ranked, place, LOG_W=log_width, num_warps=8)

"""Equations 2 and 3 for rows that fit into registers: gathered once, scored, and ranked by counting."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportOperatorIssue=false

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.triton.launch import channel_blocks, launch
from node2seq.ops.triton.plan import Bucket, GpuPlan
from node2seq.ops.triton.work_items import descending, rows_at

# Features that a warp holds: 32 in each thread.
PER_WARP = 1024


@triton.jit
def order_key(score, tie, real):
    """Integers that sort as entries do: score descending, then tie ascending; the rest falls to the slot."""
    key = (descending(score).to(tl.int64) << 32) + tie
    return tl.where(real, key, 0x7FFFFFFFFFFFFFFF)


@triton.jit
def tie_of(own):
    """Integers that grow as a node's score with itself falls, which is never negative.

    They start at 1: the smallest key of all belongs to no entry, not even to one that is NaN.
    """
    return 0x7FFFFFFF - tl.minimum(own.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0x7FFFFFFE)


@triton.jit
def places(key, slot):
    """The position of each key among all: how many stand before it. Padding stands last."""
    theirs = key[None, :]
    mine = key[:, None]
    before = (theirs < mine) | ((theirs == mine) & (slot[None, :] < slot[:, None]))
    return tl.sum(before.to(tl.int32), axis=1)


@triton.jit(do_not_specialize=["first_row"])
def rank_short_kernel(
    score,  # [E], or anything if the features are scored here
    query,  # [N, C]
    key,  # [M, C]
    index,  # [E]
    precedence,  # [M], or anything if the features are scored here: their own scores are at hand then
    rows,  # [N]
    ptr,  # [N + 1]
    ranked,  # [E]
    place,  # [E]
    first_row,
    C,
    IS_SCORED: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One short row: the source at each position and the position of each entry."""
    row = tl.load(rows + first_row + tl.program_id(0))
    start = tl.load(ptr + row)
    slot = tl.arange(0, WIDTH)
    real = slot < tl.load(ptr + row + 1) - start
    source = tl.load(index + start + slot, mask=real, other=0)
    if IS_SCORED:
        tie = tl.load(precedence + source, mask=real, other=0)
        value = tl.load(score + start + slot, mask=real, other=0.0)
    else:
        value = tl.zeros([WIDTH], dtype=tl.float32)
        own = tl.zeros([WIDTH], dtype=tl.float32)
        for c0 in range(0, C, BLOCK_C):
            channel = c0 + tl.arange(0, BLOCK_C)
            mine = tl.load(query + row.to(tl.int64) * C + channel, mask=channel < C, other=0.0)
            theirs = rows_at(key, source, channel, real, channel < C, C)
            value += tl.sum(theirs * mine[None, :], axis=1)
            own += tl.sum(theirs * theirs, axis=1)
        tie = tie_of(own)
    position = places(order_key(value, tie, real), slot)
    tl.store(ranked + start + position, source, mask=real)
    tl.store(place + start + slot, position, mask=real)


def warps(width: int, channels: int) -> int:
    """So many that a row's features do not fill up the registers of a thread."""
    return max(1, min(8, width * channels // PER_WARP))


def rank_short_rows(
    scores: Tensor | None,
    query: Tensor,
    key: Tensor,
    order_of_ties: Tensor | None,
    plan: GpuPlan,
    bucket: Bucket,
    ranked: Tensor,
    place: Tensor,
) -> None:
    """The rows of one width, by given scores and order of ties, or by the features."""
    work, (_, width) = plan.work, channel_blocks(key.size(-1))
    launch(
        rank_short_kernel,
        (bucket.count,),
        query if scores is None else scores,
        query,
        key,
        plan.index,
        plan.index if order_of_ties is None else order_of_ties,
        work.rows,
        work.ptr,
        ranked,
        place,
        bucket.first,
        key.size(-1),
        IS_SCORED=scores is not None,
        WIDTH=bucket.width,
        BLOCK_C=width,
        num_warps=warps(bucket.width, width if scores is None else bucket.width),
    )

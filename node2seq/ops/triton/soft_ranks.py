"""Soft ranks: rows of up to an item are held in registers, hubs take a launch for each rank.

What a share of more than a half leaves is the sum of the others: close to one, the share itself does not
tell. What comes back through such a share may dwarf all else. It is held apart from the sum over the others,
and multiplied by their shares before it is added to theirs.
"""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.reference import LEAST_LEFT
from node2seq.ops.sequences import Layout, Sequences
from node2seq.ops.triton.attention import entries_here, rows_here
from node2seq.ops.triton.launch import cdiv, launch, plain
from node2seq.ops.triton.plan import Work, plan_of
from node2seq.ops.triton.work_items import item

# So many entries are held by a program, of several rows where they are short: 8 in each thread.
_PER_PROGRAM, _WARPS = 512, 2
# What is known of each part of a hub: the largest value, how often it occurs and the sum of the others; and
# backward the others' shares and gradients, and the share, the gradient and what came back of a large one.
_TOPS, _SUMS = 3, 5
# As many parts of a hub are read at once.
_BLOCK_P = 128


@triton.jit
def what_is_left(share, others, LEAST: tl.constexpr):
    """What shares leave for later ranks, in the form of a logarithm."""
    return tl.log(tl.where(share > 0.5, tl.maximum(others, LEAST), 1.0 - share))


@triton.jit(do_not_specialize=["first", "last"])
def soft_ranks_kernel(
    rows,  # [N] hubs first
    ptr,  # [N + 1]
    score,  # [E]
    out,  # [E, K]
    first,
    last,
    K: tl.constexpr,
    LEAST: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Some rows: the share of each entry at each rank."""
    _, _, start, length = rows_here(rows, ptr, first, last, BLOCK_R)
    entry, real = entries_here(start, length, 0, BLOCK_E)
    value = tl.load(score + entry, mask=real, other=float("-inf"))
    at = out + entry.to(tl.int64) * K
    for t in range(K):
        best = tl.max(value, axis=1)[:, None]
        is_top = real & (value == best)
        share = tl.where(real, tl.exp(value - best), 0.0)
        others = tl.sum(tl.where(is_top, 0.0, share), axis=1)[:, None]
        total = others + tl.sum(is_top.to(tl.float32), axis=1)[:, None]
        share = tl.div_rn(share, tl.broadcast_to(total, share.shape))
        # A rank that the row is too short for holds nothing.
        tl.store(at + t, tl.where(length[:, None] > t, share, 0.0), mask=real)
        value += what_is_left(share, tl.div_rn(others, total), LEAST)


@triton.jit(do_not_specialize=["t", "num_parts"])
def soft_ranks_hub_kernel(
    score,  # [E]
    out,  # [E, K]; behind the ranks that are done, it holds the values of the next one
    tops,  # [K, P, 3] the largest value of each part, how often it occurs, the sum of the others
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    t,
    num_parts,
    K: tl.constexpr,
    IS_START: tl.constexpr,
    IS_FIRST: tl.constexpr,
    IS_LAST: tl.constexpr,
    LEAST: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """One part of a hub: its shares of rank t, and what the next rank has to know of it."""
    _, start, end, first, last = item(item_row, item_first, ptr, ITEM)
    entry = first + tl.arange(0, ITEM)
    real = entry < last
    number = tl.program_id(0)
    at = out + entry.to(tl.int64) * K + t
    if IS_START or IS_FIRST:
        value = tl.load(score + entry, mask=real, other=float("-inf"))
    else:
        value = tl.load(at, mask=real, other=float("-inf"))
    if not IS_START:
        # The parts of a hub follow each other.
        part = tl.arange(0, BLOCK_P)
        here = tops + (t * num_parts + number - (first - start) // ITEM).to(tl.int64) * 3
        count = (end - start + ITEM - 1) // ITEM
        highest = tl.full([BLOCK_P], float("-inf"), dtype=tl.float32)
        for p0 in range(0, count, BLOCK_P):
            found = tl.load(here + (p0 + part) * 3, mask=p0 + part < count, other=float("-inf"))
            highest = tl.maximum(highest, found)
        best = tl.max(highest, axis=0)
        top_sum = tl.zeros([BLOCK_P], dtype=tl.float32)
        other_sum = tl.zeros([BLOCK_P], dtype=tl.float32)
        for p0 in range(0, count, BLOCK_P):
            is_part = p0 + part < count
            highest = tl.load(here + (p0 + part) * 3, mask=is_part, other=float("-inf"))
            times = tl.load(here + (p0 + part) * 3 + 1, mask=is_part, other=0.0)
            rest = tl.load(here + (p0 + part) * 3 + 2, mask=is_part, other=0.0)
            scale = tl.where(is_part, tl.exp(highest - best), 0.0)
            top_sum += tl.where(highest == best, times, 0.0)
            other_sum += rest * scale + tl.where(highest == best, 0.0, times * scale)
        others = tl.sum(other_sum, axis=0)
        total = others + tl.sum(top_sum, axis=0)
        share = tl.where(real, tl.exp(value - best), 0.0)
        share = tl.div_rn(share, tl.broadcast_to(total, share.shape))
        tl.store(at, tl.where(end - start > t, share, 0.0), mask=real)
        value += what_is_left(share, tl.div_rn(others, total), LEAST)
    if not IS_LAST:
        following = t
        if not IS_START:
            following += 1
            tl.store(at + 1, value, mask=real)
        best = tl.max(value, axis=0)
        is_top = real & (value == best)
        rest = tl.where(real & (value != best), tl.exp(value - best), 0.0)
        here = tops + (following * num_parts + number).to(tl.int64) * 3
        tl.store(here, best)
        tl.store(here + 1, tl.sum(is_top.to(tl.float32), axis=0))
        tl.store(here + 2, tl.sum(rest, axis=0))


@triton.jit
def others_gradient(share, grad, back):
    """The gradient of each share as the others see it; those of more than a half count for nothing."""
    return tl.where(share > 0.5, 0.0, grad - back / tl.where(share > 0.5, 1.0, 1.0 - share))


@triton.jit(do_not_specialize=["first", "last"])
def soft_ranks_grad_kernel(
    rows,  # [N] hubs first
    ptr,  # [N + 1]
    ranks,  # [E, K]
    grad,  # [E, K]
    out,  # [E]
    first,
    last,
    K: tl.constexpr,
    LEAST: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Some rows: the gradient of each score, from the last rank to the first."""
    _, _, start, length = rows_here(rows, ptr, first, last, BLOCK_R)
    entry, real = entries_here(start, length, 0, BLOCK_E)
    offset = entry.to(tl.int64) * K
    back = tl.zeros([BLOCK_R, BLOCK_E], dtype=tl.float32)
    for step in range(K):
        t = K - 1 - step
        share = tl.load(ranks + offset + t, mask=real, other=0.0)
        given = tl.load(grad + offset + t, mask=real, other=0.0)
        is_large = share > 0.5
        value = others_gradient(share, given, back)
        others = tl.sum(tl.where(is_large, 0.0, share), axis=1)[:, None]
        mean = tl.sum(share * value, axis=1)[:, None]
        kept = tl.where(others >= LEAST, back, 0.0)
        large = tl.where(is_large, share * (given - kept / tl.maximum(others, LEAST)), 0.0)
        whole = mean + tl.sum(large, axis=1)[:, None]
        back += share * tl.where(is_large, others * given - kept - mean, value - whole)
    tl.store(out + entry, back, mask=real)


@triton.jit(do_not_specialize=["t", "num_parts"])
def soft_ranks_grad_hub_kernel(
    ranks,  # [E, K]
    grad,  # [E, K]
    out,  # [E]
    sums,  # [K, P, 5] the others' shares and gradients; the share, gradient and what came back of a large one
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    t,
    num_parts,
    K: tl.constexpr,
    IS_START: tl.constexpr,
    IS_FIRST: tl.constexpr,
    IS_LAST: tl.constexpr,
    LEAST: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """One part of a hub: what comes back through rank t, and what the rank before has to know of it."""
    _, start, end, first, last = item(item_row, item_first, ptr, ITEM)
    entry = first + tl.arange(0, ITEM)
    real = entry < last
    number = tl.program_id(0)
    offset = entry.to(tl.int64) * K + t
    back = tl.zeros([ITEM], dtype=tl.float32)
    if not IS_START:
        if not IS_FIRST:
            back = tl.load(out + entry, mask=real, other=0.0)
        part = tl.arange(0, BLOCK_P)
        here = sums + (t * num_parts + number - (first - start) // ITEM).to(tl.int64) * 5
        count = (end - start + ITEM - 1) // ITEM
        other_sum = tl.zeros([BLOCK_P], dtype=tl.float32)
        mean_sum = tl.zeros([BLOCK_P], dtype=tl.float32)
        # At most one entry of a row has a large share: sums of the only one and of zeros.
        share_sum = tl.zeros([BLOCK_P], dtype=tl.float32)
        grad_sum = tl.zeros([BLOCK_P], dtype=tl.float32)
        back_sum = tl.zeros([BLOCK_P], dtype=tl.float32)
        for p0 in range(0, count, BLOCK_P):
            is_part = p0 + part < count
            at = here + (p0 + part) * 5
            other_sum += tl.load(at, mask=is_part, other=0.0)
            mean_sum += tl.load(at + 1, mask=is_part, other=0.0)
            share_sum += tl.load(at + 2, mask=is_part, other=0.0)
            grad_sum += tl.load(at + 3, mask=is_part, other=0.0)
            back_sum += tl.load(at + 4, mask=is_part, other=0.0)
        others = tl.sum(other_sum, axis=0)
        mean = tl.sum(mean_sum, axis=0)
        large_kept = tl.where(others >= LEAST, tl.sum(back_sum, axis=0), 0.0)
        large = tl.sum(grad_sum, axis=0) - large_kept / tl.maximum(others, LEAST)
        whole = mean + tl.sum(share_sum, axis=0) * large
        share = tl.load(ranks + offset, mask=real, other=0.0)
        given = tl.load(grad + offset, mask=real, other=0.0)
        value = others_gradient(share, given, back)
        kept = tl.where(others >= LEAST, back, 0.0)
        back += share * tl.where(share > 0.5, others * given - kept - mean, value - whole)
        tl.store(out + entry, back, mask=real)
    if not IS_LAST:
        share = tl.load(ranks + offset - 1, mask=real, other=0.0)
        given = tl.load(grad + offset - 1, mask=real, other=0.0)
        is_large = share > 0.5
        here = sums + ((t - 1) * num_parts + number).to(tl.int64) * 5
        tl.store(here, tl.sum(tl.where(is_large, 0.0, share), axis=0))
        tl.store(here + 1, tl.sum(share * others_gradient(share, given, back), axis=0))
        tl.store(here + 2, tl.sum(tl.where(is_large, share, 0.0), axis=0))
        tl.store(here + 3, tl.sum(tl.where(is_large, given, 0.0), axis=0))
        tl.store(here + 4, tl.sum(tl.where(is_large, back, 0.0), axis=0))


def soft_ranks(score: Tensor, sequences: Sequences | Layout, count: int) -> Tensor:
    """How much of each entry stands at each of the first ranks, [count, E].

    See :func:`reference.soft_ranks`. The ranks of an entry lie next to each other in memory.
    """
    if isinstance(sequences, Layout):
        plan = sequences.plan
    else:  # those of a graph have its lengths
        graph, _ = sequences.origin or (sequences, None)
        plan = plan_of(graph)
    return _SoftRanks.apply(score, plan.work, count)  # pyright: ignore[reportReturnType]


class _SoftRanks(torch.autograd.Function):
    """Keeps its own result alone: the gradient of each softmax and of what it left depends on no more."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, work: Work, count: int) -> Tensor:
        ctx.work = work
        score = plain(score)
        out = score.new_empty(score.numel(), count)
        constants = {"K": count, "LEAST": LEAST_LEFT}
        _launch_rows(soft_ranks_kernel, work, score, out, **constants)
        if work.hubs:
            tops = score.new_empty(count, work.parts, _TOPS)
            hubs = (work, score, out, tops)
            _launch_hubs(soft_ranks_hub_kernel, *hubs, 0, IS_START=True, **constants)
            for t in range(count):
                at_end = {"IS_FIRST": t == 0, "IS_LAST": t == count - 1}
                _launch_hubs(soft_ranks_hub_kernel, *hubs, t, **at_end, **constants)
        ctx.save_for_backward(out)
        return out.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (ranks,), work, grad = ctx.saved_tensors, ctx.work, plain(grad.t())
        entries, count = ranks.shape
        out = ranks.new_empty(entries)
        constants = {"K": count, "LEAST": LEAST_LEFT}
        _launch_rows(soft_ranks_grad_kernel, work, ranks, grad, out, **constants)
        if work.hubs:
            sums = ranks.new_empty(count, work.parts, _SUMS)
            hubs = (work, ranks, grad, out, sums)
            _launch_hubs(soft_ranks_grad_hub_kernel, *hubs, count, IS_START=True, **constants)
            for t in reversed(range(count)):
                at_end = {"IS_FIRST": t == count - 1, "IS_LAST": t == 0}
                _launch_hubs(soft_ranks_grad_hub_kernel, *hubs, t, **at_end, **constants)
        return out, None, None


def _launch_rows(kernel: Any, work: Work, *tensors: Tensor, **constants: Any) -> None:
    """Starts a kernel for all rows of up to an item, by their widths."""
    for bucket in (*work.short_buckets, *work.sort_buckets):
        if bucket.width > work.item:
            continue
        rows = max(_PER_PROGRAM // bucket.width, 1)
        launch(
            kernel,
            (cdiv(bucket.count, rows),),
            work.rows,
            work.ptr,
            *tensors,
            bucket.first,
            bucket.first + bucket.count,
            **constants,
            BLOCK_R=rows,
            BLOCK_E=bucket.width,
            num_warps=_WARPS,
        )


def _launch_hubs(
    kernel: Any,
    work: Work,
    *given: Any,
    IS_START: bool = False,
    IS_FIRST: bool = False,
    IS_LAST: bool = False,
    **constants: Any,
) -> None:
    """Starts a kernel for all parts of hubs."""
    *tensors, t = given
    launch(
        kernel,
        (work.parts,),
        *tensors,
        work.item_row,
        work.item_first,
        work.ptr,
        t,
        work.parts,
        **constants,
        IS_START=IS_START,
        IS_FIRST=IS_FIRST,
        IS_LAST=IS_LAST,
        ITEM=work.item,
        BLOCK_P=_BLOCK_P,
        num_warps=_WARPS,
    )

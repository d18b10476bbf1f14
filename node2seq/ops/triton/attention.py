"""Attention weights over each sequence: short rows share a program, hubs have one each."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.sequences import Sequences
from node2seq.ops.triton.launch import cdiv, launch, plain
from node2seq.ops.triton.plan import Work, plan_of


class RowTile(NamedTuple):
    """The rows that a program walks over together, the entries of each that it holds, and its warps."""

    rows: int
    entries: int
    warps: int


# One number an entry: a row alone would leave most threads of a program idle.
ROWS = RowTile(32, 8, 2)
HUBS = RowTile(1, 1024, 4)


@triton.jit
def rows_here(rows, ptr, first, last, BLOCK_R: tl.constexpr):
    """This program's rows, which of them there are, where each starts, and its length or zero."""
    place = first + tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    is_row = place < last
    row = tl.load(rows + place, mask=is_row, other=0)
    start = tl.load(ptr + row, mask=is_row, other=0)
    return row, is_row, start, tl.load(ptr + row + 1, mask=is_row, other=0) - start


@triton.jit
def entries_here(start, length, e0, BLOCK_E: tl.constexpr):
    """The next entries of each row, [R, E], and which of them there are."""
    slot = e0 + tl.arange(0, BLOCK_E)
    return start[:, None] + slot[None, :], slot[None, :] < length[:, None]


@triton.jit
def summed_terms(source, index, mine, entry, real):
    """What is activated: the source's term and the target's own."""
    node = tl.load(index + entry, mask=real, other=0)
    return tl.load(source + node, mask=real, other=0.0) + mine[:, None]


@triton.jit
def activated(value, by, SLOPE: tl.constexpr):
    """A value, times the slope where what it is activated by is not above zero."""
    return tl.where(by > 0, value, value * SLOPE)


@triton.jit(do_not_specialize=["first", "last"])
def attention_kernel(
    rows,  # [N] hubs first
    ptr,  # [N + 1]
    index,  # [E]
    source,  # [M]
    target,  # [N]
    weight,  # [E]
    first,
    last,
    SLOPE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Some rows: the weight of each entry. What is read again comes from the cache."""
    row, is_row, start, length = rows_here(rows, ptr, first, last, BLOCK_R)
    mine = tl.load(target + row, mask=is_row, other=0.0)
    longest = tl.max(length, axis=0)
    top = tl.full([BLOCK_R, BLOCK_E], float("-inf"), dtype=tl.float32)
    for e0 in range(0, longest, BLOCK_E):
        entry, real = entries_here(start, length, e0, BLOCK_E)
        value = summed_terms(source, index, mine, entry, real)
        top = tl.maximum(top, tl.where(real, activated(value, value, SLOPE), float("-inf")))
    # A NaN need not be found here: it makes the total NaN, and so the whole row.
    best = tl.max(top, axis=1)[:, None]
    total = tl.zeros([BLOCK_R, BLOCK_E], dtype=tl.float32)
    for e0 in range(0, longest, BLOCK_E):
        entry, real = entries_here(start, length, e0, BLOCK_E)
        value = summed_terms(source, index, mine, entry, real)
        total += tl.where(real, tl.exp(activated(value, value, SLOPE) - best), 0.0)
    whole = tl.broadcast_to(tl.sum(total, axis=1)[:, None], total.shape)
    for e0 in range(0, longest, BLOCK_E):
        entry, real = entries_here(start, length, e0, BLOCK_E)
        value = summed_terms(source, index, mine, entry, real)
        share = tl.div_rn(tl.exp(activated(value, value, SLOPE) - best), whole)
        tl.store(weight + entry, share, mask=real)


@triton.jit(do_not_specialize=["first", "last"])
def attention_grad_kernel(
    rows,  # [N] hubs first
    ptr,  # [N + 1]
    index,  # [E]
    source,  # [M]
    target,  # [N]
    weight,  # [E]
    grad,  # [E]
    entry_grad,  # [E]
    target_grad,  # [N]
    first,
    last,
    SLOPE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Some rows: the gradient of each entry's sum of terms, and of the target's own term."""
    row, is_row, start, length = rows_here(rows, ptr, first, last, BLOCK_R)
    mine = tl.load(target + row, mask=is_row, other=0.0)
    longest = tl.max(length, axis=0)
    shared = tl.zeros([BLOCK_R, BLOCK_E], dtype=tl.float32)
    for e0 in range(0, longest, BLOCK_E):
        entry, real = entries_here(start, length, e0, BLOCK_E)
        share = tl.load(weight + entry, mask=real, other=0.0)
        shared += share * tl.load(grad + entry, mask=real, other=0.0)
    mean = tl.sum(shared, axis=1)[:, None]
    total = tl.zeros([BLOCK_R, BLOCK_E], dtype=tl.float32)
    for e0 in range(0, longest, BLOCK_E):
        entry, real = entries_here(start, length, e0, BLOCK_E)
        share = tl.load(weight + entry, mask=real, other=0.0)
        value = share * (tl.load(grad + entry, mask=real, other=0.0) - mean)
        value = activated(value, summed_terms(source, index, mine, entry, real), SLOPE)
        tl.store(entry_grad + entry, value, mask=real)
        total += value
    tl.store(target_grad + row, tl.sum(total, axis=1), mask=is_row)


@triton.jit(do_not_specialize=["first", "last"])
def entry_sum_kernel(
    rows,  # [M] hubs first
    ptr,  # [M + 1] by source
    entry_of,  # [E] by source
    value,  # [E]
    out,  # [M]
    first,
    last,
    BLOCK_R: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Some sources: the sum over the entries that each stands in."""
    row, is_row, start, length = rows_here(rows, ptr, first, last, BLOCK_R)
    total = tl.zeros([BLOCK_R, BLOCK_E], dtype=tl.float32)
    for e0 in range(0, tl.max(length, axis=0), BLOCK_E):
        place, real = entries_here(start, length, e0, BLOCK_E)
        entry = tl.load(entry_of + place, mask=real, other=0)
        total += tl.load(value + entry, mask=real, other=0.0)
    tl.store(out + row, tl.sum(total, axis=1), mask=is_row)


def launch_by_length(kernel: Any, work: Work, *tensors: Tensor, **constants: Any) -> None:
    """Starts a kernel for the hubs and for all other rows, whose lengths are similar within a program."""
    for first, last, tile in ((0, work.hubs, HUBS), (work.hubs, work.rows.numel(), ROWS)):
        launch(
            kernel,
            (cdiv(last - first, tile.rows),),
            work.rows,
            work.ptr,
            *tensors,
            first,
            last,
            **constants,
            BLOCK_R=tile.rows,
            BLOCK_E=tile.entries,
            num_warps=tile.warps,
        )


def attention(source: Tensor, target: Tensor, sequences: Sequences, slope: float) -> Tensor:
    """The softmax over each target's entries of ``leaky_relu(source[j] + target[i])``, [E]."""
    return _Attention.apply(source, target, sequences, slope)  # pyright: ignore[reportReturnType]


class _Attention(torch.autograd.Function):
    """Keeps the weights and both terms; which sums were above zero is worked out again."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, sequences: Sequences, slope: float) -> Tensor:
        plan, source, target = plan_of(sequences), plain(source), plain(target)
        weight = source.new_empty(plan.index.numel())
        launch_by_length(attention_kernel, plan.work, plan.index, source, target, weight, SLOPE=float(slope))
        ctx.plan, ctx.slope = plan, float(slope)
        ctx.save_for_backward(source, target, weight)
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        source, target, weight = ctx.saved_tensors
        plan, transposed = ctx.plan, ctx.plan.transposed
        grad_entry, grad_source, grad_target = (torch.empty_like(x) for x in (weight, source, target))
        given = (plan.index, source, target, weight, plain(grad), grad_entry, grad_target)
        launch_by_length(attention_grad_kernel, plan.work, *given, SLOPE=ctx.slope)
        launch_by_length(entry_sum_kernel, transposed.work, transposed.entry, grad_entry, grad_source)
        return grad_source, grad_target, None, None

"""Weighted sums of rows, and the ordered reduction of hubs that all sums share."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.sequences import Sequences
from node2seq.ops.triton.launch import TILES, Given, Prepared, Repeated, channel_blocks, given, launch, plain
from node2seq.ops.triton.plan import Work, plan_of
from node2seq.ops.triton.scores import score
from node2seq.ops.triton.work_items import item, rows_at


@triton.jit(do_not_specialize=["num_parts"])
def segment_sum_kernel(
    x,  # [M, C]
    index,  # [E] the row of x that each entry takes
    weight,  # [E] by the graph's own entries
    entry_of,  # [E] the graph's own entry behind each one here
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    out,  # [N, C]
    parts,  # [P, C]
    num_parts,
    C,
    IS_TRANSPOSED: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item and a block of channels: the weighted sum of its entries' rows."""
    row, _, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < C
    total = tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32)
    for e0 in range(first, last, BLOCK_E):
        entry = e0 + tl.arange(0, BLOCK_E)
        real = entry < last
        source = tl.load(index + entry, mask=real, other=0)
        if IS_TRANSPOSED:
            entry = tl.load(entry_of + entry, mask=real, other=0)
        scale = tl.load(weight + entry, mask=real, other=0.0)
        total += rows_at(x, source, channel, real, inside, C) * scale[:, None]
    store_item(out, parts, row, num_parts, tl.sum(total, axis=0), channel, inside, C)


@triton.jit
def store_item(out, parts, row, num_parts, values, column, inside, width):
    """Writes an item's result to its row, or among the parts if it is one of a hub's."""
    number = tl.program_id(0)
    if number < num_parts:
        tl.store(parts + number.to(tl.int64) * width + column, values, mask=inside)
    else:
        tl.store(out + row.to(tl.int64) * width + column, values, mask=inside)


@triton.jit
def sum_parts_kernel(
    parts,  # [P, W]
    part_ptr,  # [H + 1]
    rows,  # [N] hubs first
    out,  # [N, S]
    W,
    S,
    BLOCK_P: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """One hub and a block of columns: the sum of its parts."""
    hub = tl.program_id(0)
    column = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    inside = column < W
    first = tl.load(part_ptr + hub)
    last = tl.load(part_ptr + hub + 1)
    total = tl.zeros([BLOCK_P, BLOCK_W], dtype=tl.float32)
    for p0 in range(first, last, BLOCK_P):
        part = p0 + tl.arange(0, BLOCK_P)
        total += rows_at(parts, part, column, part < last, inside, W)
    row = tl.load(rows + hub).to(tl.int64)
    # A place that is left over for a hub has no parts.
    has_parts = column < tl.where(first < last, W, 0)
    tl.store(out + row * S + column, tl.sum(total, axis=0), mask=has_parts)


def sum_parts(parts: Tensor, work: Work, out: Tensor) -> None:
    """Adds up the parts of each hub, in the same order every time; its row of ``out`` may be wider."""
    if not work.hubs:
        return
    width, stride = parts.shape[1:].numel(), out.stride(0)
    about = "sum_parts", width, stride
    if about not in work.launches:
        work.launches[about] = Repeated(prepare_parts(work, width, stride, *given(2)))
    work.launches[about](parts, out)


def prepare_parts(work: Work, width: int, stride: int, parts: Given, out: Given) -> Prepared:
    """The launch that does so, for parts of a width and rows of ``out`` that lie so far apart."""
    blocks, block = channel_blocks(max(width, 1))
    grid, args = (work.hubs, blocks), (parts, work.part_ptr, work.rows, out, width, stride)
    return Prepared(sum_parts_kernel, grid, *args, BLOCK_P=8, BLOCK_W=block, num_warps=2)


def segment_sum(x: Tensor, index: Tensor, weight: Tensor, work: Work, entry_of: Tensor | None) -> Tensor:
    """The weighted sum of each row's entries of ``x``, [N, C]."""
    channels = x.size(-1)
    out = x.new_empty(work.ptr.numel() - 1, channels)
    parts = x.new_empty(work.parts, channels)
    tile, (blocks, width) = TILES["segment_sum"], channel_blocks(max(channels, 1))
    launch(
        segment_sum_kernel,
        (work.items, blocks),
        x,
        index,
        weight,
        index if entry_of is None else entry_of,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        parts,
        work.parts,
        channels,
        IS_TRANSPOSED=entry_of is not None,
        ITEM=work.item,
        BLOCK_E=tile.block,
        BLOCK_C=width,
        num_warps=tile.warps,
    )
    sum_parts(parts, work, out)
    return out


def aggregate(x: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
    """The weighted sum of each target's source rows, [N, D]; its backward is the same sum transposed."""
    return _Aggregate.apply(x, sequences, weight)  # pyright: ignore[reportReturnType]


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
        plan = plan_of(sequences)
        ctx.sequences = sequences
        ctx.save_for_backward(weight, x if weight.requires_grad else None)
        return segment_sum(plain(x), plan.index, plain(weight), plan.work, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, x = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            transposed = plan_of(ctx.sequences).transposed
            grad_x = segment_sum(
                plain(grad), transposed.target, plain(weight), transposed.work, transposed.entry
            )
        if ctx.needs_input_grad[2]:
            grad_weight = score(grad, x, ctx.sequences)
        return grad_x, None, grad_weight

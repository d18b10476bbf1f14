"""The largest values of each sequence, channel by channel: one pass, no sort, no scatter."""

# Triton's own language, which its annotations do not describe.
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.sequences import Sequences
from node2seq.ops.triton.aggregate import store_item, sum_parts
from node2seq.ops.triton.launch import Tile, cdiv, channel_blocks, launch, plain
from node2seq.ops.triton.plan import GpuPlan, plan_of
from node2seq.ops.triton.window_max import packed, unpacked
from node2seq.ops.triton.work_items import item, rows_at

_WARP = 32
# Values of a row that are under way at once.
_AT_ONCE = 4
GRAD_TILE = Tile(4, 1)


@triton.jit
def insert(kept, key, COUNT: tl.constexpr):
    """The descending list of packed values with one more; the smallest drops out."""
    found = (tl.maximum(kept[0], key),)
    key = tl.minimum(kept[0], key)
    for k in tl.static_range(1, COUNT):
        found += (tl.maximum(kept[k], key),)
        key = tl.minimum(kept[k], key)
    return found


@triton.jit
def store_kept(kept, out, winner, row, channel, inside, C, COUNT: tl.constexpr):
    """Writes a row's values and where they stand in it; −1 where nothing is above zero, or it is NaN."""
    for k in tl.static_range(COUNT):
        at = (row.to(tl.int64) * COUNT + k) * C + channel
        value, place = unpacked(kept[k])
        tl.store(out + at, value, mask=inside)
        tl.store(winner + at, tl.where(value > 0, place, -1), mask=inside)


@triton.jit(do_not_specialize=["num_parts"])
def largest_kernel(
    x,  # [M, C]
    index,  # [E]
    weight,  # [E]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    out,  # [N, COUNT, C]
    winner,  # [N, COUNT, C]
    parts,  # [P, COUNT, C] packed
    num_parts,
    C,
    COUNT: tl.constexpr,
    ITEM: tl.constexpr,
    AT_ONCE: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item and a block of channels: the largest values of its entries."""
    row, start, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < C
    kept = (tl.zeros(inside.shape, dtype=tl.int64),) * COUNT  # no negative number exceeds them
    for e0 in range(first, last, AT_ONCE):
        # Several entries are under way at once; none waits for the list.
        for step in tl.static_range(AT_ONCE):
            entry = e0 + step
            real = entry < last
            source = tl.load(index + entry, mask=real, other=0).to(tl.int64)
            scale = tl.load(weight + entry, mask=real, other=0.0)
            use = channel < tl.where(real, C, 0)
            value = tl.load(x + source * C + channel, mask=use, other=0.0) * scale
            place = tl.zeros(inside.shape, dtype=tl.int32) + (entry - start)
            kept = insert(kept, packed(value, place), COUNT)
    number = tl.program_id(0)
    if number < num_parts:
        for k in tl.static_range(COUNT):
            tl.store(parts + (number.to(tl.int64) * COUNT + k) * C + channel, kept[k], mask=inside)
    else:
        store_kept(kept, out, winner, row, channel, inside, C, COUNT)


@triton.jit
def largest_parts_kernel(
    parts,  # [P, COUNT, C] packed
    part_ptr,  # [H + 1]
    rows,  # [N] hubs first
    out,  # [N, COUNT, C]
    winner,  # [N, COUNT, C]
    C,
    COUNT: tl.constexpr,
    AT_ONCE: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One hub and a block of channels: the largest of its parts' values."""
    hub = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < C
    kept = (tl.zeros(inside.shape, dtype=tl.int64),) * COUNT
    first = tl.load(part_ptr + hub).to(tl.int64) * COUNT
    last = tl.load(part_ptr + hub + 1).to(tl.int64) * COUNT
    for p0 in range(first, last, AT_ONCE):
        for step in tl.static_range(AT_ONCE):
            use = channel < tl.where(p0 + step < last, C, 0)
            kept = insert(kept, tl.load(parts + (p0 + step) * C + channel, mask=use, other=0), COUNT)
    store_kept(kept, out, winner, tl.load(rows + hub), channel, inside, C, COUNT)


@triton.jit(do_not_specialize=["num_parts"])
def largest_grad_kernel(
    grad,  # [N, COUNT, C]
    winner,  # [N, COUNT, C]
    weight,  # [E]
    target,  # [E] by source
    entry_of,  # [E] by source
    target_ptr,  # [N + 1]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [M + 1]
    out,  # [M, C]
    parts,  # [P, C]
    num_parts,
    C,
    COUNT: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item of a source and a block of channels: the gradients of the places that it won."""
    row, _, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < C
    total = tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32)
    for e0 in range(first, last, BLOCK_E):
        at = e0 + tl.arange(0, BLOCK_E)
        real = at < last
        node = tl.load(target + at, mask=real, other=0).to(tl.int64)
        entry = tl.load(entry_of + at, mask=real, other=0)
        place = entry - tl.load(target_ptr + node, mask=real, other=0)
        # An entry wins one place at most: one gradient is read instead of all.
        rank = tl.full([BLOCK_E, BLOCK_C], -1, dtype=tl.int32)
        for k in tl.static_range(COUNT):
            won = rows_at(winner, node * COUNT + k, channel, real, inside, C)
            rank = tl.where(won == place[:, None], k, rank)
        use = (rank >= 0) & real[:, None] & inside[None, :]
        value = tl.load(grad + (node[:, None] * COUNT + rank) * C + channel[None, :], mask=use, other=0.0)
        total += value * tl.load(weight + entry, mask=real, other=0.0)[:, None]
    store_item(out, parts, row, num_parts, tl.sum(total, axis=0), channel, inside, C)


def largest(x: Tensor, sequences: Sequences, weight: Tensor, count: int) -> Tensor:
    """Each target's ``count`` largest weighted source values per channel, descending, [N, count, C].

    What is not above zero counts as zero, and zeros fill up what is missing; NaN counts as the largest, so
    that it is seen. No gradient passes to the weights.
    """
    return _Largest.apply(x, sequences, weight, count)  # pyright: ignore[reportReturnType]


class _Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sequences: Sequences, weight: Tensor, count: int) -> Tensor:
        ctx.plan, weight = plan_of(sequences), plain(weight)
        out, winner = keep_largest(plain(x), weight, ctx.plan, count)
        ctx.save_for_backward(winner, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        winner, weight = ctx.saved_tensors
        return keep_largest_grad(plain(grad), winner, weight, ctx.plan), None, None, None


def keep_largest(x: Tensor, weight: Tensor, plan: GpuPlan, count: int) -> tuple[Tensor, Tensor]:
    """The largest values and where in its row each of them stands, both [N, count, C]."""
    work, channels = plan.work, x.size(-1)
    out = x.new_empty(plan.rows.num_rows, count, channels)
    # Without hubs, 16 bits are enough for a place.
    winner = torch.empty_like(out, dtype=torch.int32 if work.hubs else torch.int16)
    parts = torch.empty(work.parts, count, channels, dtype=torch.int64, device=x.device)
    blocks, width = channel_blocks(max(channels, 1))
    warps = cdiv(width, _WARP)  # a thread keeps one channel's list
    launch(
        largest_kernel,
        (work.items, blocks),
        x,
        plan.index,
        weight,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        winner,
        parts,
        work.parts,
        channels,
        COUNT=count,
        ITEM=work.item,
        AT_ONCE=_AT_ONCE,
        BLOCK_C=width,
        num_warps=warps,
    )
    launch(
        largest_parts_kernel,
        (work.hubs, blocks),
        parts,
        work.part_ptr,
        work.rows,
        out,
        winner,
        channels,
        COUNT=count,
        AT_ONCE=_AT_ONCE,
        BLOCK_C=width,
        num_warps=warps,
    )
    return out, winner


def keep_largest_grad(grad: Tensor, winner: Tensor, weight: Tensor, plan: GpuPlan) -> Tensor:
    """The gradient of the sources, [M, C]: each one looks up what it won."""
    transposed, (_, count, channels) = plan.transposed, grad.shape
    work = transposed.work
    out = grad.new_empty(plan.num_sources, channels)
    parts = grad.new_empty(work.parts, channels)
    blocks, width = channel_blocks(max(channels, 1))
    launch(
        largest_grad_kernel,
        (work.items, blocks),
        grad,
        winner,
        weight,
        transposed.target,
        transposed.entry,
        plan.work.ptr,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        parts,
        work.parts,
        channels,
        COUNT=count,
        ITEM=work.item,
        BLOCK_E=GRAD_TILE.block,
        BLOCK_C=width,
        num_warps=GRAD_TILE.warps,
    )
    sum_parts(parts, work, out)
    return out

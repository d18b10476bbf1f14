"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops import reference
from node2seq.ops.sequences import Sequences
from node2seq.ops.triton.items import item, rows_at
from node2seq.ops.triton.launch import TILES, channel_blocks, launch, plain, tap_blocks
from node2seq.ops.triton.plan import GraphPlan, Ranked, Scored, ranked_of
from node2seq.ops.triton.row_ends import fits, scored_window_sum
from node2seq.ops.triton.segments import store_item, sum_parts

_CORE_BLOCK = 16


@triton.jit(do_not_specialize=["num_parts"])
def window_sum_kernel(
    x,  # [M, C]
    index,  # [E]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    out,  # [N, K, C]
    parts,  # [P, K, C]
    num_parts,
    C,
    K: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item, a block of channels and of taps: what each tap meets over all windows."""
    row, start, end, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    tap = tl.program_id(2) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = channel < C
    windows = tl.maximum(end - start - K + 1, 1)
    low = first - start
    high = last - start

    # The core, positions K − 1 … o − 1, lies under every tap and is summed once.
    core_end = tl.minimum(high, windows)
    core = tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32)
    for q0 in range(tl.maximum(low, K - 1), core_end, BLOCK_E):
        position = q0 + tl.arange(0, BLOCK_E)
        real = position < core_end
        source = tl.load(index + start + position, mask=real, other=0)
        core += rows_at(x, source, channel, real, inside, C)

    # The K − 1 positions before and behind it lie under some taps only.
    edge_sums = tl.zeros([BLOCK_T, BLOCK_S, BLOCK_C], dtype=tl.float32)
    head = tl.maximum(tl.minimum(high, K - 1) - low, 0)
    tail_start = tl.maximum(low, tl.maximum(windows, K - 1))
    edges = head + tl.maximum(high - tail_start, 0)
    for s0 in range(0, edges, BLOCK_S):
        edge = s0 + tl.arange(0, BLOCK_S)
        real = edge < edges
        position = tl.where(edge < head, low + edge, tail_start + edge - head)
        source = tl.load(index + start + position, mask=real, other=0)
        value = rows_at(x, source, channel, real, inside, C)
        under = (tap[:, None] <= position[None, :]) & (position[None, :] < tap[:, None] + windows)
        edge_sums += tl.where(under[:, :, None], value[None, :, :], 0.0)
    total = tl.sum(edge_sums, axis=1) + tl.sum(core, axis=0)[None, :]

    at = tap[:, None] * C + channel[None, :]
    use = (tap < K)[:, None] & inside[None, :]
    number = tl.program_id(0)
    if number < num_parts:
        tl.store(parts + number.to(tl.int64) * (K * C) + at, total, mask=use)
    else:
        tl.store(out + row.to(tl.int64) * (K * C) + at, total, mask=use)


@triton.jit(do_not_specialize=["num_parts"])
def window_sum_grad_kernel(
    prefix,  # [N, K, C] gradients of the taps' sums, added up from tap 0
    target,  # [E] by source
    entry,  # [E] by source
    place,  # [E] the position of each entry, or the taps that it lies under
    target_ptr,  # [N + 1]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [M + 1]
    out,  # [M, C]
    parts,  # [P, C]
    num_parts,
    C,
    IS_UNDER: tl.constexpr,
    K: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item of a source and a block of channels: what the taps hand back."""
    row, _, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < C
    total = tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32)
    for e0 in range(first, last, BLOCK_E):
        at = e0 + tl.arange(0, BLOCK_E)
        real = at < last
        node = tl.load(target + at, mask=real, other=0)
        position = tl.load(place + tl.load(entry + at, mask=real, other=0), mask=real, other=0)
        # Position q lies under taps max(0, q − o + 1) … min(q, K − 1): a difference of two prefix sums.
        if IS_UNDER:
            position = position.to(tl.int32)
            below = position // K - 1
            above = position % K
        else:
            length = tl.load(target_ptr + node + 1) - tl.load(target_ptr + node)
            below = position - tl.maximum(length - K + 1, 1)
            above = tl.minimum(position, K - 1)
        node = node.to(tl.int64) * K
        total += rows_at(prefix, node + above, channel, real, inside, C)
        total -= rows_at(prefix, node + below, channel, real & (below >= 0), inside, C)
    store_item(out, parts, row, num_parts, tl.sum(total, axis=0), channel, inside, C)


def convolve_sum(x: Tensor, weight: Tensor, sequences: Sequences | Ranked | Scored) -> Tensor:
    """Equations 5 and 6 with the sum over windows, [N, D]."""
    return _WindowSum.apply(x, weight, sequences)  # pyright: ignore[reportReturnType]


class _WindowSum(torch.autograd.Function):
    """The taps' sums P [N, K, C], projected. Keeps P, which the gradient of the weights needs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, sequences: Sequences | Ranked | Scored) -> Tensor:
        summed, place, ctx.plan = _tap_sums(plain(x), sequences, weight.size(-3))
        summed = summed.flatten(1)  # [N, K * C]
        ctx.save_for_backward(summed if weight.requires_grad else None, weight, place)
        return reference.project(summed, weight.flatten(-3, -2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        summed, weight, place = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[1]:
            runs = weight.shape[:-3] if weight.dim() > 3 else ()
            by_run = summed.view(*runs, -1, summed.size(-1)).transpose(-2, -1)
            grad_weight = (by_run @ grad.reshape(*runs, -1, grad.size(-1))).view(weight.shape)
            del summed, by_run
        if ctx.needs_input_grad[0]:
            # Prefix sums over taps commute with the projection: of K small matrices instead of N · K rows.
            taps = weight.cumsum(-3).flatten(-3, -2).transpose(-2, -1)  # [D, K * C]
            prefix = reference.project(grad, taps).view(-1, *weight.shape[-3:-1])
            grad_x = window_sum_grad(prefix, place, ctx.plan)
        return grad_x, grad_weight, None


def _tap_sums(
    x: Tensor, sequences: Sequences | Ranked | Scored, kernel_size: int
) -> tuple[Tensor, Tensor, GraphPlan]:
    """The taps' sums, what the backward pass knows of each entry, and the graph."""
    if isinstance(sequences, Scored) and sequences.is_scored_by(x):
        plan = sequences.plan
        if fits(plan.work, kernel_size, x.size(-1)):
            return *scored_window_sum(sequences.query, x, plan, kernel_size), plan
    ranked = ranked_of(sequences)
    return window_sum(x, ranked, kernel_size), ranked.place, ranked.plan


def window_sum(x: Tensor, ranked: Ranked, kernel_size: int) -> Tensor:
    """What each tap meets over all windows, [N, K, C]."""
    work, channels = ranked.plan.work, x.size(-1)
    out = x.new_empty(ranked.rows.num_rows, kernel_size, channels)
    parts = x.new_empty(work.parts, kernel_size, channels)
    tile, (blocks, width) = TILES["window_sum"], channel_blocks(channels)
    taps, tap_width = tap_blocks(kernel_size)
    launch(
        window_sum_kernel,
        (work.items, blocks, taps),
        x,
        ranked.index,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        parts,
        work.parts,
        channels,
        K=kernel_size,
        ITEM=work.item,
        BLOCK_E=_CORE_BLOCK,
        BLOCK_S=tile.block,
        BLOCK_T=tap_width,
        BLOCK_C=width,
        num_warps=tile.warps if tap_width <= 4 else 2 * tile.warps,
    )
    sum_parts(parts, work, out)
    return out


def window_sum_grad(prefix: Tensor, place: Tensor, plan: GraphPlan) -> Tensor:
    """The gradient of the sources' rows, [M, C], from prefix sums of the taps' gradients [N, K, C].

    Of each entry it needs the position (32 bits) or the taps that it lies under (8 bits).
    """
    transposed = plan.transposed
    work, (_, kernel_size, channels) = transposed.work, prefix.shape
    out = prefix.new_empty(plan.num_sources, channels)
    parts = prefix.new_empty(work.parts, channels)
    tile, (blocks, width) = TILES["window_sum_grad"], channel_blocks(channels)
    launch(
        window_sum_grad_kernel,
        (work.items, blocks),
        prefix,
        transposed.target,
        transposed.entry,
        place,
        plan.work.ptr,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        parts,
        work.parts,
        channels,
        IS_UNDER=place.dtype == torch.uint8,
        K=kernel_size,
        ITEM=work.item,
        BLOCK_E=tile.block,
        BLOCK_C=width,
        num_warps=tile.warps,
    )
    sum_parts(parts, work, out)
    return out

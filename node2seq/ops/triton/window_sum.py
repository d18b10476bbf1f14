"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.sequences import Layout, Sequences, multiply, product_of_runs
from node2seq.ops.triton.aggregate import prepare_parts, store_item, sum_parts
from node2seq.ops.triton.dynamic_plan import layout_of
from node2seq.ops.triton.fused_window_sum import Sums, TapSums
from node2seq.ops.triton.launch import (
    TILES,
    Prepared,
    Repeated,
    Tile,
    channel_blocks,
    given,
    launch,
    plain,
    tap_blocks,
)
from node2seq.ops.triton.plan import GpuPlan
from node2seq.ops.triton.root_features import add_product, cast, matrix_of
from node2seq.ops.triton.work_items import item, rows_at

_CORE_BLOCK = 16


@triton.jit(do_not_specialize=["num_parts"])
def window_sum_kernel(
    x,  # [M, C]
    index,  # [E]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    out,  # [N, K, C], or [N, K + 1, C] with the targets' own rows behind
    parts,  # [P, K, C]
    num_parts,
    C,
    K: tl.constexpr,
    WITH_OWN: tl.constexpr,
    IS_MEAN: tl.constexpr,
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
        core += rows_at(x, source, channel, real, inside, C).to(tl.float32)

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
        value = rows_at(x, source, channel, real, inside, C).to(tl.float32)
        under = (tap[:, None] <= position[None, :]) & (position[None, :] < tap[:, None] + windows)
        edge_sums += tl.where(under[:, :, None], value[None, :, :], 0.0)
    total = tl.sum(edge_sums, axis=1) + tl.sum(core, axis=0)[None, :]
    if IS_MEAN:
        total = tl.div_rn(total, windows.to(tl.float32))

    at = tap[:, None] * C + channel[None, :]
    use = (tap < K)[:, None] & inside[None, :]
    number = tl.program_id(0)
    if number < num_parts:
        tl.store(parts + number.to(tl.int64) * (K * C) + at, total, mask=use)
    else:
        tl.store(out + row.to(tl.int64) * ((K + WITH_OWN) * C) + at, total, mask=use)


@triton.jit(do_not_specialize=["num_parts"])
def window_sum_grad_kernel(
    prefix,  # [N, K, C] gradients of the taps' sums, added up from tap 0; [N, K + 1, C] with the own rows'
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
    WITH_OWN: tl.constexpr,
    IS_MEAN: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item of a source and a block of channels: what the taps hand back."""
    row, start, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < C
    total = tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32)
    for e0 in range(first, last, BLOCK_E):
        at = e0 + tl.arange(0, BLOCK_E)
        real = at < last
        node = tl.load(target + at, mask=real, other=0)
        position = tl.load(place + tl.load(entry + at, mask=real, other=0), mask=real, other=0)
        # Position q lies under taps max(0, q − o + 1) … min(q, K − 1): a difference of two prefix sums.
        length = tl.load(target_ptr + node + 1) - tl.load(target_ptr + node)
        windows = tl.maximum(length - K + 1, 1)
        if IS_UNDER:
            position = position.to(tl.int32)
            below = position // K - 1
            above = position % K
        else:
            below = position - windows
            above = tl.minimum(position, K - 1)
        node = node.to(tl.int64) * (K + WITH_OWN)
        value = rows_at(prefix, node + above, channel, real, inside, C).to(tl.float32)
        value -= rows_at(prefix, node + below, channel, real & (below >= 0), inside, C).to(tl.float32)
        if IS_MEAN:
            value *= (1.0 / windows.to(tl.float32))[:, None]
        total += value
    total = tl.sum(total, axis=0)
    if WITH_OWN:  # in the first of a hub's parts only
        at = prefix + (row.to(tl.int64) * (K + 1) + K) * C + channel
        total += tl.load(at, mask=channel < tl.where(first == start, C, 0), other=0.0).to(tl.float32)
    store_item(out, parts, row, num_parts, total, channel, inside, C)


def convolve_sum(
    x: Tensor,
    weight: Tensor,
    sequences: Sequences | Layout | TapSums,
    root: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    is_mean: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Equations 5 and 6 with the sum or the mean over windows, [N, D].

    Args:
        x (torch.Tensor): The sources' rows, [M, C].
        weight (torch.Tensor): The taps, [K, C, D], or those of R runs, [R, K, C, D].
        sequences: The sources of each target.
        root (torch.Tensor, optional): Where the sources are the targets, what their own rows are multiplied
            with before they are added, [D, C] or [R, D, C]: equation 7.
        bias (torch.Tensor, optional): What is added to all, with the own rows only, [D] or [R, D].
        is_mean (bool): Whether to divide by the number of windows.
        dtype (torch.dtype): The type of what is multiplied and gathered. Rows that are gathered for their
            scores too are of 32 bits, and so are all sums while they are added up.
    """
    if is_recorded(x, weight, root, bias):
        return _WindowSum.apply(x, weight, root, bias, sequences, is_mean, dtype)  # pyright: ignore[reportReturnType]
    return sum_forward(x, weight, sequences, root, bias, is_mean, dtype)[0]


class SumPass(NamedTuple):
    """What a forward pass over the windows' sums leaves to the backward pass, but for tensors."""

    plan: GpuPlan
    shape: torch.Size
    sums: Sums


def sum_forward(
    x: Tensor,
    weight: Tensor,
    sequences: Sequences | Layout | TapSums,
    root: Tensor | None,
    bias: Tensor | None,
    is_mean: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, SumPass, list[Tensor | None]]:
    """The sums over windows, and for :func:`sum_gradients` what they come from: the taps' sums come first."""
    sums = Sums(is_mean, root is not None, dtype)
    weight, root, bias = cast(weight, dtype), cast(root, dtype), cast(bias, dtype)
    summed, place, plan = _tap_sums(x, sequences, weight.size(-3), sums)
    about, summed = SumPass(plan, summed.shape[1:], sums), summed.flatten(1)  # [N, K * C], or (K + 1) * C
    out = cast(add_product(bias, summed, matrix_of(weight, root)), x.dtype)
    return out, about, [summed, place, weight, root]


def sum_gradients(
    about: SumPass, kept: list[Tensor | None], given: Tensor, needs: Sequence[bool]
) -> list[Tensor | None]:
    """Of the features, the taps, the root and the bias, those that are needed.

    The taps' sums are kept for the second and the third. They are let go before their gradients are made.
    """
    summed, place, weight, root = kept
    kept.clear()
    assert place is not None
    assert weight is not None
    needs_x, needs_weight, needs_root, needs_bias = needs
    runs, grad = weight.shape[:-3], cast(given, about.sums.dtype)
    gradients: list[Tensor | None] = [None] * 4
    if summed is not None and (needs_weight or needs_root):
        found = product_of_runs(summed, grad, runs)
        taps = weight.size(-3) * weight.size(-2)
        gradients[1] = found[..., :taps, :].reshape(weight.shape) if needs_weight else None
        gradients[2] = found[..., taps:, :].mT if needs_root else None
    del summed
    if needs_x:
        # Prefix sums over taps commute with the projection: of K small matrices instead of N · K rows.
        matrix = matrix_of(weight.cumsum(-3), root).mT  # [D, K * C], or (K + 1) * C
        prefix = multiply(grad, matrix).view(grad.size(0), *about.shape)
        gradients[0] = window_sum_grad(prefix, place, about.plan, weight.size(-3), about.sums)
    if needs_bias:
        gradients[3] = (given.reshape(*runs, -1, given.size(-1)) if runs else given).sum(-2)
    return [cast(value, given.dtype) for value in gradients]


class _WindowSum(torch.autograd.Function):
    """The taps' sums P [N, K, C], projected. Keeps P, which the gradient of the weights needs.

    The own features are an extra tap, applied to the node itself.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        root: Tensor | None,
        bias: Tensor | None,
        sequences: Sequences | Layout | TapSums,
        is_mean: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        out, ctx.about, (summed, *others) = sum_forward(x, weight, sequences, root, bias, is_mean, dtype)
        needs_weight = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
        ctx.save_for_backward(summed if needs_weight else None, *others)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        kept = [*ctx.saved_tensors]
        ctx.maybe_clear_saved_tensors()
        return *sum_gradients(ctx.about, kept, grad, ctx.needs_input_grad[:4]), None, None, None


def _tap_sums(
    x: Tensor, sequences: Sequences | Layout | TapSums, kernel_size: int, sums: Sums
) -> tuple[Tensor, Tensor, GpuPlan]:
    """The taps' sums, what the backward pass knows of each entry, and the graph."""
    if isinstance(sequences, TapSums):
        assert sequences.serves(x, kernel_size, sums), "ranked for another convolution"
        return sequences.summed, sequences.under, sequences.plan
    layout = layout_of(sequences)
    return window_sum(plain(x.to(sums.dtype)), layout, kernel_size, sums), layout.place, layout.plan


def window_sum(x: Tensor, layout: Layout, kernel_size: int, sums: Sums) -> Tensor:
    """What each tap meets over all windows, [N, K, C]."""
    work, channels = layout.plan.work, x.size(-1)
    out = sums.empty(x, layout.rows.num_rows, kernel_size)
    if sums.with_own:
        out[:, kernel_size] = x
    parts = torch.empty(work.parts, kernel_size, channels, device=x.device)
    tile, (blocks, width) = TILES["window_sum"], channel_blocks(channels)
    taps, tap_width = tap_blocks(kernel_size)
    launch(
        window_sum_kernel,
        (work.items, blocks, taps),
        x,
        layout.index,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        parts,
        work.parts,
        channels,
        K=kernel_size,
        WITH_OWN=sums.with_own,
        IS_MEAN=sums.is_mean,
        ITEM=work.item,
        BLOCK_E=_CORE_BLOCK,
        BLOCK_S=tile.block,
        BLOCK_T=tap_width,
        BLOCK_C=width,
        num_warps=tile.warps if tap_width <= 4 else 2 * tile.warps,
    )
    sum_parts(parts, work, out)
    return out


def window_sum_grad(prefix: Tensor, place: Tensor, plan: GpuPlan, kernel_size: int, sums: Sums) -> Tensor:
    """The gradient of the sources' rows, [M, C], from prefix sums of the taps' gradients [N, K, C].

    Of each entry it needs the position (32 bits) or the taps that it lies under (8 bits).
    """
    transposed = plan.transposed
    work, channels = transposed.work, prefix.size(-1)
    out = torch.empty(plan.num_sources, channels, device=prefix.device)
    parts = out.new_empty(work.parts, channels)
    is_under, tile = place.dtype == torch.uint8, TILES["window_sum_grad"]
    about = "window_sum_grad", kernel_size, channels, is_under, sums, tile
    if about not in work.launches:
        work.launches[about] = _prepare_grad(plan, *about[1:])
    work.launches[about](prefix, place, out, parts)
    return out


def _prepare_grad(
    plan: GpuPlan, kernel_size: int, channels: int, is_under: bool, sums: Sums, tile: Tile
) -> Repeated:
    transposed = plan.transposed
    work = transposed.work
    blocks, width = channel_blocks(channels)
    prefix, place, out, parts = given(4)
    items = Prepared(
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
        IS_UNDER=is_under,
        K=kernel_size,
        WITH_OWN=sums.with_own,
        IS_MEAN=sums.is_mean,
        ITEM=work.item,
        BLOCK_E=tile.block,
        BLOCK_C=width,
        num_warps=tile.warps,
    )
    return Repeated(items, prepare_parts(work, channels, channels, parts, out))

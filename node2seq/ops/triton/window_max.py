"""Equations 5 and 6 with the largest window: gathers of projected rows, winners instead of windows."""

# Triton's own language, which its annotations do not describe.
# pyright: reportGeneralTypeIssues=false

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
from node2seq.ops.triton.aggregate import prepare_parts
from node2seq.ops.triton.dynamic_plan import layout_of
from node2seq.ops.triton.launch import (
    TILES,
    Prepared,
    Repeated,
    Tile,
    channel_blocks,
    given,
    plain,
    tap_blocks,
)
from node2seq.ops.triton.plan import GpuPlan, Work
from node2seq.ops.triton.root_features import cast
from node2seq.ops.triton.work_items import item, rows_at

# Longer kernels loop over their taps: unrolled, they would take long to compile.
_UNROLLED_TAPS = 16
# The backward pass, by what the graph and the kernel are like; the fastest of nine measured on an H200.
GRAD_TILES = {"short rows": Tile(4, 2, 1), "long rows": Tile(8, 2, 2), "many taps": Tile(4, 2, 3)}
_FEW_TAPS = 4
_LONG_ROW = 32  # entries of a source, on average


@triton.jit
def is_better(value, best):
    """Whether a later window beats the best so far; NaN beats every number, so that it is seen."""
    return (value > best) | ((value != value) & (best == best))


@triton.jit
def packed(value, at):
    """Integers whose maximum is the largest value and, among equals, the first window; NaN is the largest."""
    bits = value.to(tl.int32, bitcast=True)
    bits = tl.where(bits == -2147483648, 0, bits)  # −0.0 equals +0.0
    ascending = tl.where(value != value, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
    return (ascending.to(tl.int64) << 32) + (0x7FFFFFFF - at)


@triton.jit
def unpacked(key):
    """The value and the window of a packed integer."""
    ascending = (key >> 32).to(tl.int32)
    value = (ascending ^ ((ascending >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    return value, 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def under_tap(table, index, window, tap, real, start, length, channel, inside, D, TAPS: tl.constexpr):
    """What stands under one tap of some windows, [P, C]; zeros behind the end of a short sequence."""
    position = window + tap
    use = real & (position < length)
    source = tl.load(index + start + position, mask=use, other=0).to(tl.int64)
    return rows_at(table, source * TAPS + tap, channel, use, inside, D).to(tl.float32)


@triton.jit
def own_row(table, bias, row, per_run, channel, inside, D, K: tl.constexpr, WITH_BIAS: tl.constexpr):
    """What a target's own features and its run's bias add: features lie behind its rows for the taps."""
    at = table + (row.to(tl.int64) * (K + 1) + K) * D + channel
    value = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    if WITH_BIAS:
        value += tl.load(bias + row // per_run * D + channel, mask=inside, other=0.0).to(tl.float32)
    return value


@triton.jit(do_not_specialize=["num_parts", "per_run"])
def window_max_kernel(
    table,  # [M, K, D], or [M, K + 1, D] with what the own features add behind
    bias,  # [R, D] what is added to those
    index,  # [E]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    out,  # [N, D]
    winner,  # [N, D]
    short_winner,  # [N, D] the same in 8 bits for rows of one item
    parts,  # [P, D] the best value and its window, packed
    num_parts,
    per_run,
    D,
    K: tl.constexpr,
    WITH_OWN: tl.constexpr,
    WITH_BIAS: tl.constexpr,
    UNROLL: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item and a block of channels: the best of the windows that begin in it."""
    row, start, end, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < D
    length = end - start
    begin = first - start
    stop = tl.minimum(last - start, tl.maximum(length - K + 1, 1))  # windows that begin in this item
    best = tl.full([BLOCK_P, BLOCK_C], float("-inf"), dtype=tl.float32)
    at = tl.zeros([BLOCK_P, BLOCK_C], dtype=tl.int32) + begin
    for p0 in range(begin, stop, BLOCK_P):
        window = p0 + tl.arange(0, BLOCK_P)
        real = window < stop
        value = tl.zeros([BLOCK_P, BLOCK_C], dtype=tl.float32)
        TAPS: tl.constexpr = K + WITH_OWN
        if UNROLL:
            for tap in tl.static_range(K):
                value += under_tap(table, index, window, tap, real, start, length, channel, inside, D, TAPS)
        else:
            for tap in range(K):
                value += under_tap(table, index, window, tap, real, start, length, channel, inside, D, TAPS)
        take = is_better(value, best) & real[:, None]
        best = tl.where(take, value, best)
        at = tl.where(take, tl.broadcast_to(window[:, None], at.shape), at)
    key = tl.max(packed(best, at), axis=0)
    number = tl.program_id(0)
    if number < num_parts:
        tl.store(parts + number.to(tl.int64) * D + channel, key, mask=inside)
    else:
        value, at_window = unpacked(key)
        value = tl.where(length > 0, value, 0.0)
        if WITH_OWN:
            value += own_row(table, bias, row, per_run, channel, inside, D, K, WITH_BIAS)
        place = row.to(tl.int64) * D + channel
        tl.store(out + place, value, mask=inside)
        tl.store(winner + place, at_window, mask=inside)
        tl.store(short_winner + place, at_window.to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize=["per_run"])
def max_parts_kernel(
    parts,  # [P, D] the best value of each and its window, packed
    part_ptr,  # [H + 1]
    rows,  # [N] hubs first
    table,  # [M, K, D], or [M, K + 1, D]
    bias,  # [R, D]
    out,  # [N, D]
    winner,  # [N, D]
    per_run,
    D,
    K: tl.constexpr,
    WITH_OWN: tl.constexpr,
    WITH_BIAS: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One hub and a block of channels: the best of its parts."""
    hub = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < D
    last = tl.load(part_ptr + hub + 1)
    best = tl.full([BLOCK_P, BLOCK_C], -9223372036854775808, dtype=tl.int64)
    for p0 in range(tl.load(part_ptr + hub), last, BLOCK_P):
        part = p0 + tl.arange(0, BLOCK_P)
        use = (part < last)[:, None] & inside[None, :]
        place = part.to(tl.int64)[:, None] * D + channel[None, :]
        best = tl.maximum(best, tl.load(parts + place, mask=use, other=-9223372036854775808))
    value, at_window = unpacked(tl.max(best, axis=0))
    row = tl.load(rows + hub)
    if WITH_OWN:
        value += own_row(table, bias, row, per_run, channel, inside, D, K, WITH_BIAS)
    place = row.to(tl.int64) * D + channel
    tl.store(out + place, value, mask=inside)
    tl.store(winner + place, at_window, mask=inside)


@triton.jit(do_not_specialize=["num_parts"])
def window_max_grad_kernel(
    grad,  # [N, D]
    winner,  # [N, D]
    short_winner,  # [N, D]
    target,  # [E] by source
    entry,  # [E] by source
    place,  # [E]
    target_ptr,  # [N + 1]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [M + 1]
    out,  # [M, K, D], or [M, K + 1, D] with the targets' own gradients behind
    parts,  # [P, K, D]
    num_parts,
    D,
    K: tl.constexpr,
    WITH_OWN: tl.constexpr,
    ITEM: tl.constexpr,
    STAGES: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item of a source, a block of channels and of taps: the gradients of the windows that it won."""
    row, start, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    tap = tl.program_id(2) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = channel < D
    total = tl.zeros([BLOCK_T, BLOCK_E, BLOCK_C], dtype=tl.float32)
    for e0 in tl.range(first, last, BLOCK_E, num_stages=STAGES):
        at = e0 + tl.arange(0, BLOCK_E)
        real = at < last
        node = tl.load(target + at, mask=real, other=0)
        position = tl.load(place + tl.load(entry + at, mask=real, other=0), mask=real, other=0)
        # A quarter of the bytes wherever 8 bits are enough.
        is_hub = tl.load(target_ptr + node + 1) - tl.load(target_ptr + node) > ITEM
        won = rows_at(short_winner, node, channel, real & (is_hub == 0), inside, D).to(tl.int32)
        won += rows_at(winner, node, channel, real & is_hub, inside, D)
        value = rows_at(grad, node, channel, real, inside, D).to(tl.float32)
        # This entry stood under tap t of the winning window where the window began t positions earlier.
        under = (position[:, None] - won)[None, :, :] == tap[:, None, None]
        total += tl.where(under, value[None, :, :], 0.0)
    total = tl.sum(total, axis=1)
    at = tap[:, None] * D + channel[None, :]
    use = (tap < K)[:, None] & inside[None, :]
    number = tl.program_id(0)
    if number < num_parts:
        tl.store(parts + number.to(tl.int64) * (K * D) + at, total, mask=use)
    else:
        tl.store(out + row.to(tl.int64) * ((K + WITH_OWN) * D) + at, total, mask=use)
    if WITH_OWN:
        # Once for each row: with its first item and the first block of taps.
        here = channel < tl.where(first - start + tl.program_id(2) == 0, D, 0)
        own = tl.load(grad + row.to(tl.int64) * D + channel, mask=here, other=0.0)
        tl.store(out + (row.to(tl.int64) * (K + 1) + K) * D + channel, own, mask=here)


def convolve_max(
    x: Tensor,
    weight: Tensor,
    sequences: Sequences | Layout,
    root: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Equations 5 and 6 with the largest window per channel; the winners are int32.

    Root, bias and type are those of :func:`node2seq.ops.triton.window_sum.convolve_sum`.
    """
    layout = layout_of(sequences)
    if is_recorded(x, weight, root, bias):
        return _WindowMax.apply(x, weight, root, bias, layout, dtype)  # pyright: ignore[reportReturnType]
    out, winner, _ = window_max(_project(x, weight, root, dtype)[0], layout, weight.size(-3), bias)
    return out, winner


def _project(
    x: Tensor, weight: Tensor, root: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows for each tap and behind them what the own features add, [M, K + 1, D]; and what was multiplied."""
    x, weight, root, channels = cast(x, dtype), cast(weight, dtype), cast(root, dtype), weight.size(-1)
    taps = weight.transpose(-3, -2)
    taps = taps if root is None else torch.cat((taps, root.mT.unsqueeze(-2)), dim=-2)
    beside = taps.flatten(-2)  # [C, (K + 1) * D]: one product projects for every tap
    return multiply(x, beside).view(-1, taps.size(-2), channels), x, beside


class MaxPass(NamedTuple):
    """What a forward pass over the largest windows leaves to the backward pass, but for tensors."""

    plan: GpuPlan
    table_shape: torch.Size
    weight_shape: torch.Size
    dtype: torch.dtype


def max_forward(
    x: Tensor, weight: Tensor, layout: Layout, root: Tensor | None, bias: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, MaxPass, list[Tensor | None]]:
    """The largest windows, and for :func:`max_gradients` what they come from: the winners come first.

    It keeps these and the places, never the projected rows.
    """
    table, x, taps = _project(x, weight, root, dtype)
    out, winner, short_winner = window_max(table, layout, weight.size(-3), bias)
    about = MaxPass(layout.plan, table.shape, weight.shape, dtype)
    return out, about, [winner, short_winner, layout.place, x, taps]


def max_gradients(
    about: MaxPass, kept: list[Tensor | None], grad: Tensor, needs: Sequence[bool]
) -> list[Tensor | None]:
    """Of the features, the taps, the root and the bias, those that are needed.

    The features themselves are kept for the second and the third, the taps side by side for the first.
    """
    winner, short_winner, place, x, taps = kept
    assert winner is not None
    assert short_winner is not None
    assert place is not None
    (*runs, kernel_size, inputs, channels), grad = about.weight_shape, plain(grad)
    gathered = cast(grad, about.dtype)
    table = window_max_grad(gathered, winner, short_winner, place, about.plan, about.table_shape, kernel_size)
    needs_x, needs_weight, needs_root, needs_bias = needs
    found: list[Tensor | None] = [None] * 4
    if needs_x and taps is not None:
        found[0] = multiply(table, taps.mT)
    if x is not None and (needs_weight or needs_root):
        by_tap = product_of_runs(table, x, runs).view(*runs, -1, channels, inputs)  # K taps, or K + 1
        found[1] = by_tap.narrow(-3, 0, kernel_size).mT if needs_weight else None
        found[2] = by_tap.select(-3, kernel_size) if needs_root else None
    if needs_bias:
        found[3] = (grad.view(*runs, -1, channels) if runs else grad).sum(-2)
    return [cast(value, grad.dtype) for value in found]


class _WindowMax(torch.autograd.Function):
    """The largest window sum per channel.

    The own rows' projection lies behind those for the taps: one product for all. What is multiplied and
    gathered is of the type asked for; sums are always of 32 bits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        root: Tensor | None,
        bias: Tensor | None,
        layout: Layout,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        out, ctx.about, (winner, *others, multiplied, taps) = max_forward(
            x, weight, layout, root, bias, dtype
        )
        assert winner is not None
        needs_x, needs_weight, needs_root, *_ = ctx.needs_input_grad
        kept = (multiplied if needs_weight or needs_root else None, taps if needs_x else None)
        ctx.save_for_backward(winner, *others, *kept)
        ctx.mark_non_differentiable(winner)
        ctx.set_materialize_grads(False)  # no zeros for the winners
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor, _grad_winner: Tensor
    ) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[:4]
        return *max_gradients(ctx.about, [*ctx.saved_tensors], grad, needs), None, None


def window_max(
    table: Tensor, layout: Layout, kernel_size: int, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest window sum over projected rows [M, K, D], and where its window begins, all [N, D].

    Where it begins is told in 32 bits and, for rows of one item, in 8: what the backward pass mostly reads.
    A table of one more row for each node holds what its own features add, and a bias [D] or [R, D] is added
    to those.
    """
    with_own, channels = table.size(1) > kernel_size, table.size(-1)
    work = layout.plan.work
    out = torch.empty(layout.rows.num_rows, channels, device=table.device)
    winner, short_winner = torch.empty_like(out, dtype=torch.int32), torch.empty_like(out, dtype=torch.uint8)
    parts = torch.empty(work.parts, channels, dtype=torch.int64, device=table.device)
    with_bias = with_own and bias is not None
    bias = table if bias is None else plain(bias)
    per_run = max(layout.rows.num_rows * channels // bias.numel(), 1) if with_bias else 1
    about = "window_max", kernel_size, channels, with_own, with_bias, per_run, TILES["window_max"]
    if about not in work.launches:
        work.launches[about] = _prepare(work, *about[1:])
    work.launches[about](table, bias, layout.index, out, winner, short_winner, parts)
    return out, winner, short_winner


def _prepare(
    work: Work, kernel_size: int, channels: int, with_own: bool, with_bias: bool, per_run: int, tile: Tile
) -> Repeated:
    """The launches over the items and over the parts of hubs."""
    blocks, width = channel_blocks(channels)
    flags = {"K": kernel_size, "WITH_OWN": with_own, "WITH_BIAS": with_bias, "BLOCK_C": width}
    table, bias, index, out, winner, short_winner, parts = given(7)
    items = Prepared(
        window_max_kernel,
        (work.items, blocks),
        table,
        bias,
        index,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        winner,
        short_winner,
        parts,
        work.parts,
        per_run,
        channels,
        UNROLL=kernel_size <= _UNROLLED_TAPS,
        ITEM=work.item,
        BLOCK_P=tile.block,
        num_warps=tile.warps,
        **flags,
    )
    hubs = Prepared(
        max_parts_kernel,
        (work.hubs, blocks),
        parts,
        work.part_ptr,
        work.rows,
        table,
        bias,
        out,
        winner,
        per_run,
        channels,
        BLOCK_P=8,
        num_warps=2,
        **flags,
    )
    return Repeated(items, hubs)


def grad_tile(kernel_size: int, plan: GpuPlan) -> Tile:
    """The blocks of the backward pass."""
    if kernel_size > _FEW_TAPS:
        return GRAD_TILES["many taps"]
    is_long = plan.index.numel() > _LONG_ROW * plan.num_sources
    return GRAD_TILES["long rows" if is_long else "short rows"]


def window_max_grad(
    grad: Tensor,
    winner: Tensor,
    short_winner: Tensor,
    place: Tensor,
    plan: GpuPlan,
    shape: torch.Size,
    kernel_size: int,
) -> Tensor:
    """The gradient of the projected rows, [M, K * D] or [M, (K + 1) * D].

    Each source looks up what it won.
    """
    sources, rows, channels = shape
    transposed = plan.transposed
    work = transposed.work
    out = grad.new_empty(sources, rows * channels)
    parts = torch.empty(work.parts, kernel_size, channels, device=grad.device)
    about = "window_max_grad", kernel_size, channels, rows, grad_tile(kernel_size, plan)
    if about not in work.launches:
        work.launches[about] = _prepare_grad(plan, *about[1:])
    work.launches[about](grad, winner, short_winner, place, out, parts)
    return out


def _prepare_grad(plan: GpuPlan, kernel_size: int, channels: int, rows: int, tile: Tile) -> Repeated:
    transposed = plan.transposed
    work = transposed.work
    blocks, width = channel_blocks(channels)
    taps, tap_width = tap_blocks(kernel_size)
    grad, winner, short_winner, place, out, parts = given(6)
    items = Prepared(
        window_max_grad_kernel,
        (work.items, blocks, taps),
        grad,
        winner,
        short_winner,
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
        K=kernel_size,
        WITH_OWN=rows > kernel_size,
        ITEM=work.item,
        STAGES=tile.stages,
        BLOCK_E=tile.block,
        BLOCK_T=tap_width,
        BLOCK_C=width,
        num_warps=tile.warps,
    )
    return Repeated(items, prepare_parts(work, kernel_size * channels, rows * channels, parts, out))

"""Equations 5 and 6 with the largest window: winners are kept instead of windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import layout_of
from node2seq.ops.native.runtime import Scratch, run
from node2seq.ops.ranking import Layout
from node2seq.ops.sequences import Sequences

# As many channels as fill a cache line: two threads never write to the same one.
_CHANNELS = 16
# In longer sequences most windows lose: what is left to do is less than to ask each entry.
_LONG_SEQUENCES = 32


def convolve_max(x: Tensor, weight: Tensor, sequences: Sequences | Layout) -> tuple[Tensor, Tensor]:
    """Equations 5 and 6 with the largest window per channel; the winners are int32 where they fit."""
    layout = sequences if isinstance(sequences, Layout) else layout_of(sequences)
    return _ConvolveMax.apply(x, weight, layout)  # pyright: ignore[reportReturnType]


class _ConvolveMax(torch.autograd.Function):
    """Keeps the winners and the places, never the projected rows or the windows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        plan, (*runs, kernel_size, _, channels) = layout.plan, weight.shape
        taps = weight.transpose(-3, -2).flatten(-2)  # [C, K * D]: one product projects for every tap
        projected = Scratch((x.size(0), kernel_size, channels), x.dtype)
        product = torch.bmm if runs else torch.mm
        by_run = projected.tensor.view(*runs, -1, taps.size(-1))
        product(x.view(*runs, -1, x.size(-1)), taps, out=by_run)
        out = x.new_empty(plan.rows.num_rows, channels)
        winner = torch.empty(out.shape, dtype=plan.dtype)
        run(kernels.window_max, plan.cuts, projected.tensor, plan.ptr, layout.index, out, winner)
        del projected, by_run
        ctx.save_for_backward(x, taps, winner)
        ctx.layout, ctx.kernel_size = layout, kernel_size
        ctx.mark_non_differentiable(winner)
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _grad_winner: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, taps, winner = ctx.saved_tensors
        table, runs = _under_winners(grad.contiguous(), winner, ctx.layout, ctx.kernel_size), taps.shape[:-2]
        by_run = table.tensor.view(*runs, -1, taps.size(-1))
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = (by_run @ taps.mT).view(x.shape)
        if ctx.needs_input_grad[1]:
            grad_taps = x.view(*runs, -1, x.size(-1)).mT @ by_run
            grad_weight = grad_taps.unflatten(-1, (ctx.kernel_size, -1)).transpose(-3, -2)
        return grad_x, grad_weight, None


def _under_winners(grad: Tensor, winner: Tensor, layout: Layout, kernel_size: int) -> Scratch:
    """The gradient of the projected rows, [M, K, D]."""
    plan, channels = layout.plan, grad.size(-1)
    table = Scratch((plan.num_sources, kernel_size, channels), grad.dtype)
    if plan.rows.num_entries >= _LONG_SEQUENCES * plan.rows.num_rows:
        table.tensor.zero_()
        blocks = range((channels + _CHANNELS - 1) // _CHANNELS + 1)
        run(kernels.window_max_scatter, blocks, grad, winner, plan.ptr, layout.index, _CHANNELS, table.tensor)
        return table
    by_source = plan.transposed
    run(
        kernels.window_max_gather,
        by_source.cuts,
        grad,
        winner,
        plan.ptr,
        by_source.ptr,
        by_source.target,
        by_source.entry,
        layout.place,
        table.tensor,
    )
    return table

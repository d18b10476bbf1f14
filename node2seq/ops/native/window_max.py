"""Equations 5 and 6 with the largest window: winners are kept instead of windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import Ranked, ranked_of
from node2seq.ops.native.pool import run
from node2seq.ops.native.products import project, project_to_table, project_weight_grad
from node2seq.ops.native.tables import Table
from node2seq.ops.sequences import Sequences

# As many channels as fill a cache line: two threads never write to the same one.
_CHANNELS = 16
# In longer sequences most windows lose: what is left to do is less than to ask each entry.
_LONG_SEQUENCES = 32


def convolve_max(x: Tensor, weight: Tensor, sequences: Sequences | Ranked) -> tuple[Tensor, Tensor]:
    """Equations 5 and 6 with the largest window per channel; the winners are int32 where they fit."""
    return _ConvolveMax.apply(x, weight, ranked_of(sequences))  # pyright: ignore[reportReturnType]


class _ConvolveMax(torch.autograd.Function):
    """Keeps the winners and the places, never the projected rows or the windows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ranked: Ranked) -> tuple[Tensor, Tensor]:
        plan = ranked.plan
        kernel_size, channels = weight.size(-3), weight.size(-1)
        taps = weight.transpose(-3, -2).flatten(-2)  # [C, K * D]: one product projects for every tap
        table = project_to_table(x, taps)
        projected = table.tensor.view(-1, kernel_size, channels)
        out = x.new_empty(plan.rows.num_rows, channels)
        winner = torch.empty(out.shape, dtype=plan.dtype)
        run(kernels.window_max, plan.cuts, projected, plan.ptr, ranked.index, out, winner)
        ctx.save_for_backward(x, taps, winner)
        ctx.ranked, ctx.kernel_size = ranked, kernel_size
        ctx.mark_non_differentiable(winner)
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _grad_winner: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, taps, winner = ctx.saved_tensors
        table = _under_winners(grad.contiguous(), winner, ctx.ranked, ctx.kernel_size)
        grad_projected = table.tensor.flatten(1)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = project(grad_projected, taps.transpose(-1, -2))
        if ctx.needs_input_grad[1]:
            grad_taps = project_weight_grad(x, grad_projected, taps)
            grad_weight = grad_taps.unflatten(-1, (ctx.kernel_size, -1)).transpose(-3, -2)
        return grad_x, grad_weight, None


def _under_winners(grad: Tensor, winner: Tensor, ranked: Ranked, kernel_size: int) -> Table:
    """The gradient of the projected rows, [M, K, D]."""
    plan, channels = ranked.plan, grad.size(-1)
    table = Table((plan.num_sources, kernel_size, channels), grad.dtype)
    if plan.rows.num_entries >= _LONG_SEQUENCES * plan.rows.num_rows:
        table.tensor.zero_()
        blocks = range((channels + _CHANNELS - 1) // _CHANNELS + 1)
        run(kernels.window_max_scatter, blocks, grad, winner, plan.ptr, ranked.index, _CHANNELS, table.tensor)
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
        ranked.place,
        table.tensor,
    )
    return table

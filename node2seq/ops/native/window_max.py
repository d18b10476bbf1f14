"""Equations 5 and 6 with the largest window: winners are kept instead of windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops import reference
from node2seq.ops.native import kernels
from node2seq.ops.native.plan import Ranked, ranked_of
from node2seq.ops.native.pool import run
from node2seq.ops.sequences import Sequences

# As many channels as fill a cache line: two threads never write to the same one.
_CHANNELS = 16
# In longer sequences most windows lose: what is left to do is less than to ask each entry.
_LONG_SEQUENCES = 32


def convolve_max(x: Tensor, weight: Tensor, sequences: Sequences | Ranked) -> tuple[Tensor, Tensor]:
    """Equations 5 and 6 with the largest window per channel; the winners may be int32."""
    kernel_size, channels = weight.size(-3), weight.size(-1)
    taps = weight.transpose(-3, -2).flatten(-2)  # [C, K * D]: one product projects for every tap
    projected = reference.project(x, taps).view(-1, kernel_size, channels)
    return _WindowMax.apply(projected, ranked_of(sequences))  # pyright: ignore[reportReturnType]


class _WindowMax(torch.autograd.Function):
    """The largest window sum per channel. Keeps the winners and the places, never the projected rows."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, ranked: Ranked) -> tuple[Tensor, Tensor]:
        plan = ranked.plan
        out = projected.new_empty(plan.rows.num_rows, projected.size(-1))
        winner = torch.empty(out.shape, dtype=plan.dtype)
        run(kernels.window_max, plan.cuts, projected.contiguous(), plan.ptr, ranked.index, out, winner)
        ctx.save_for_backward(winner)
        ctx.ranked, ctx.shape = ranked, projected.shape
        ctx.mark_non_differentiable(winner)
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _grad_winner: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (winner,) = ctx.saved_tensors
        ranked, plan, grad = ctx.ranked, ctx.ranked.plan, grad.contiguous()
        if plan.rows.num_entries >= _LONG_SEQUENCES * plan.rows.num_rows:
            out = grad.new_zeros(ctx.shape)
            blocks = range((ctx.shape[-1] + _CHANNELS - 1) // _CHANNELS + 1)
            run(
                kernels.window_max_scatter, blocks, grad, winner, plan.ptr, ranked.index, _CHANNELS, out
            )
            return out, None
        by_source = plan.transposed
        out = grad.new_empty(ctx.shape)
        run(
            kernels.window_max_gather,
            by_source.cuts,
            grad,
            winner,
            by_source.ptr,
            by_source.target,
            by_source.entry,
            ranked.place,
            out,
        )
        return out, None

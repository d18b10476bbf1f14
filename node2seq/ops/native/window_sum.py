"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

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


def convolve_sum(x: Tensor, weight: Tensor, sequences: Sequences | Ranked) -> Tensor:
    """Equations 5 and 6 with the sum over windows; see :func:`reference.convolve_sum`."""
    kernel_size, channels = weight.size(-3), weight.size(-1)
    summed = _WindowSum.apply(x, ranked_of(sequences), kernel_size)
    taps = weight.reshape(*weight.shape[:-3], kernel_size * x.size(-1), channels)
    return reference.project(summed.flatten(1), taps)  # pyright: ignore[reportAttributeAccessIssue]


class _WindowSum(torch.autograd.Function):
    """What each tap meets over all windows, [N, K, C]; keeps nothing but the places."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranked: Ranked, kernel_size: int) -> Tensor:
        ctx.ranked = ranked
        plan = ranked.plan
        out = x.new_empty(plan.rows.num_rows, kernel_size, x.size(-1))
        run(kernels.window_sum, plan.cuts, x.contiguous(), plan.ptr, ranked.index, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        plan = ctx.ranked.plan
        by_source = plan.transposed
        out = grad.new_empty(plan.num_sources, grad.size(-1))
        run(
            kernels.window_sum_gather,
            by_source.cuts,
            grad.cumsum(1),
            plan.ptr,
            by_source.ptr,
            by_source.target,
            by_source.entry,
            ctx.ranked.place,
            out,
        )
        return out, None, None

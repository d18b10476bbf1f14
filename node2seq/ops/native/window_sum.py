"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import Ranked, ranked_of
from node2seq.ops.native.pool import run
from node2seq.ops.native.products import project, project_long, project_weight_grad
from node2seq.ops.native.tables import Table
from node2seq.ops.sequences import Sequences


def convolve_sum(x: Tensor, weight: Tensor, sequences: Sequences | Ranked) -> Tensor:
    """Equations 5 and 6 with the sum over windows; see :func:`reference.convolve_sum`."""
    return _ConvolveSum.apply(x, weight, ranked_of(sequences))  # pyright: ignore[reportReturnType]


class _ConvolveSum(torch.autograd.Function):
    """Keeps what it was given, and no table."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ranked: Ranked) -> Tensor:
        plan, x = ranked.plan, x.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.ranked = ranked
        summed = Table((plan.rows.num_rows, weight.size(-3), x.size(-1)), x.dtype)
        run(kernels.window_sum, plan.cuts, x, plan.ptr, ranked.index, summed.tensor)
        return project(summed.tensor.flatten(1), weight.flatten(-3, -2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        table = _by_source(grad.contiguous(), ctx.ranked, weight.size(-3))
        under_taps = table.tensor.flatten(1)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = project_long(under_taps, weight.transpose(-1, -2).flatten(-3, -2))
        if ctx.needs_input_grad[1]:
            taps = weight.transpose(-3, -2).flatten(-2)  # [C, K * D]
            grad_taps = project_weight_grad(x, under_taps, taps)
            grad_weight = grad_taps.unflatten(-1, (weight.size(-3), -1)).transpose(-3, -2)
        return grad_x, grad_weight, None


def _by_source(grad: Tensor, ranked: Ranked, kernel_size: int) -> Table:
    """The gradients of the windows in which each source stood under each tap, [M, K, D]."""
    plan, by_source = ranked.plan, ranked.plan.transposed
    table = Table((plan.num_sources, kernel_size, grad.size(-1)), grad.dtype)
    run(
        kernels.window_sum_gather,
        by_source.cuts,
        grad,
        plan.ptr,
        by_source.ptr,
        by_source.target,
        by_source.entry,
        ranked.place,
        table.tensor,
    )
    return table

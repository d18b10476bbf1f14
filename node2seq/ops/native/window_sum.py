"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

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


def convolve_sum(x: Tensor, weight: Tensor, sequences: Sequences | Ranked) -> Tensor:
    """Equations 5 and 6 with the sum over windows; see :func:`reference.convolve_sum`."""
    return _ConvolveSum.apply(x, weight, ranked_of(sequences))  # pyright: ignore[reportReturnType]


class _ConvolveSum(torch.autograd.Function):
    """Keeps what each tap met over all windows, [N, K * C]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ranked: Ranked) -> Tensor:
        plan = ranked.plan
        table = Table((plan.rows.num_rows, weight.size(-3), x.size(-1)), x.dtype)
        run(kernels.window_sum, plan.cuts, x.contiguous(), plan.ptr, ranked.index, table.tensor)
        ctx.save_for_backward(weight)
        ctx.ranked, ctx.summed = ranked, table
        return project(table.tensor.flatten(1), weight.flatten(-3, -2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = _by_source(grad, weight, ctx.ranked)
        if ctx.needs_input_grad[1]:
            summed = ctx.summed.tensor.flatten(1)
            grad_weight = project_weight_grad(summed, grad, weight.flatten(-3, -2)).view(weight.shape)
        return grad_x, grad_weight, None


def _by_source(grad: Tensor, weight: Tensor, ranked: Ranked) -> Tensor:
    """The gradient of the sources' features, [M, C].

    An entry at position q lies under the taps from max(0, q − o + 1) to min(q, K − 1): it gets a difference
    of two sums over the first taps. The weights are summed up instead of the products with them.
    """
    plan, by_source = ranked.plan, ranked.plan.transposed
    kernel_size, channels = weight.shape[-3:-1]
    first_taps = weight.cumsum(-3).flatten(-3, -2).transpose(-1, -2)  # [D, K * C]
    table = project_to_table(grad, first_taps)
    out = grad.new_empty(plan.num_sources, channels)
    run(
        kernels.window_sum_gather,
        by_source.cuts,
        table.tensor.view(-1, kernel_size, channels),
        plan.ptr,
        by_source.ptr,
        by_source.target,
        by_source.entry,
        ranked.place,
        out,
    )
    return out

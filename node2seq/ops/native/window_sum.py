"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import Scratch, by_run, gradients, layout_of, row_cuts, run
from node2seq.ops.sequences import Layout, Sequences


def convolve_sum(
    x: Tensor,
    weight: Tensor,
    sequences: Sequences | Layout,
    root: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    is_mean: bool = False,
) -> Tensor:
    """Equations 5 and 6 with the sum over windows, or their mean; see :func:`reference.convolve_sum`.

    With a root, [D, C] or each run's, its product with each node's own row is added, and with it the bias.
    """
    layout = sequences if isinstance(sequences, Layout) else layout_of(sequences)
    function = _ConvolveSum.apply if is_recorded(x, weight, root, bias) else _convolve
    return function(x.contiguous(), weight, root, bias, layout, is_mean)  # pyright: ignore[reportReturnType]


def _convolve(
    x: Tensor, weight: Tensor, root: Tensor | None, bias: Tensor | None, layout: Layout, is_mean: bool
) -> Tensor:
    plan, (*runs, kernel_size, depth, channels) = layout.plan, weight.shape
    count = plan.rows.num_rows
    out = x.new_empty(count, channels)
    cuts = row_cuts(count, count * (kernel_size + (root is not None)) * depth * channels, plan.cuts)
    given = (kernel_size, is_mean, x, plan.ptr, layout.index)
    run(kernels.window_sum, cuts, *given, by_run(weight, 3, x), by_run(root, 2, x), out)
    if bias is not None:
        out.view(*runs, -1, channels).add_(bias.unsqueeze(-2) if runs else bias)
    return out


class _ConvolveSum(torch.autograd.Function):
    """Keeps what it was given, and no table."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        root: Tensor | None,
        bias: Tensor | None,
        layout: Layout,
        is_mean: bool,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, root)
        ctx.layout, ctx.is_mean = layout, is_mean
        return _convolve(x, weight, root, bias, layout, is_mean)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, root = ctx.saved_tensors
        (*runs, kernel_size, _, channels), grad = weight.shape, grad.contiguous()
        # The gradients of the windows in which each source stood under each tap, and of its own row.
        plan, by_source = ctx.layout.plan, ctx.layout.plan.transposed
        table = Scratch((plan.num_sources, kernel_size + (root is not None), channels), grad)
        given = (kernel_size, ctx.is_mean, grad, plan.ptr)
        walk = (by_source.ptr, by_source.target, by_source.entry, ctx.layout.place)
        run(kernels.window_sum_gather, by_source.cuts, *given, *walk, table.array)
        needs_bias = ctx.needs_input_grad[3]
        grad_bias = grad.view(*runs, -1, channels).sum(-2) if needs_bias else None
        return *gradients(ctx.needs_input_grad, x, table.by_row, weight, root), grad_bias, None, None

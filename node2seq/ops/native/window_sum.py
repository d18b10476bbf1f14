"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import Scratch, gradient_of_taps, layout_of, multiply, run
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
    if is_recorded(x, weight, root, bias):
        return _ConvolveSum.apply(x, weight, root, bias, layout, is_mean)  # pyright: ignore[reportReturnType]
    return _convolve(x, _matrix(weight, root), bias, layout, weight.size(-3), is_mean)


def _matrix(weight: Tensor, root: Tensor | None) -> Tensor:
    """The taps and the root as one matrix for one product, [(K + 1) * C, D]."""
    taps = weight.flatten(-3, -2)
    return taps if root is None else torch.cat([taps, root.mT], dim=-2)


def _convolve(
    x: Tensor, taps: Tensor, bias: Tensor | None, layout: Layout, kernel_size: int, is_mean: bool
) -> Tensor:
    plan, (*runs, _, channels) = layout.plan, taps.shape
    summed = Scratch((plan.rows.num_rows, taps.size(-2) // x.size(-1), x.size(-1)), x.dtype)
    given = (kernel_size, is_mean, x.contiguous(), plan.ptr, layout.index)
    run(kernels.window_sum, plan.cuts, *given, summed.tensor)
    out = multiply(summed.tensor.view(-1, taps.size(-2)), taps)
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
        x, taps = x.contiguous(), _matrix(weight, root)
        ctx.save_for_backward(x, taps)
        ctx.layout, ctx.readout = layout, (weight.size(-3), is_mean)
        return _convolve(x, taps, bias, layout, *ctx.readout)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, taps = ctx.saved_tensors
        (*runs, _, channels), products = taps.shape, taps.size(-2) // x.size(-1)
        # The gradients of the windows in which each source stood under each tap, and of its own row.
        plan, by_source = ctx.layout.plan, ctx.layout.plan.transposed
        table = Scratch((plan.num_sources, products, channels), grad.dtype)
        grad = grad.contiguous()
        given = (*ctx.readout, grad, plan.ptr)
        walk = (by_source.ptr, by_source.target, by_source.entry, ctx.layout.place)
        run(kernels.window_sum_gather, by_source.cuts, *given, *walk, table.tensor)
        by_row = table.tensor.view(-1, products * channels)
        grad_x = grad_weight = grad_root = None
        if ctx.needs_input_grad[0]:
            taps = taps.unflatten(-2, (products, -1)).mT.flatten(-3, -2)
            grad_x = multiply(by_row, taps)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            grad_weight, grad_root = gradient_of_taps(x, by_row, runs, products, ctx.readout[0])
        del table, by_row
        grad_bias = grad.view(*runs, -1, channels).sum(-2) if ctx.needs_input_grad[3] else None
        return grad_x, grad_weight, grad_root, grad_bias, None, None

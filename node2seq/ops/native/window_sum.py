"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

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

# Products run over a row in one go: over longer ones they lose more than twice what a convolution loses, so
# that long rows are cut into parts.
_LONGEST_ROW = 64


def convolve_sum(x: Tensor, weight: Tensor, sequences: Sequences | Layout) -> Tensor:
    """Equations 5 and 6 with the sum over windows; see :func:`reference.convolve_sum`."""
    layout = sequences if isinstance(sequences, Layout) else layout_of(sequences)
    return _ConvolveSum.apply(x, weight, layout)  # pyright: ignore[reportReturnType]


class _ConvolveSum(torch.autograd.Function):
    """Keeps what it was given, and no table."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layout: Layout) -> Tensor:
        plan, x, (*runs, kernel_size, _, channels) = layout.plan, x.contiguous(), weight.shape
        ctx.save_for_backward(x, weight)
        ctx.layout = layout
        summed = Scratch((plan.rows.num_rows, kernel_size, x.size(-1)), x.dtype)
        run(kernels.window_sum, plan.cuts, x, plan.ptr, layout.index, summed.tensor)
        by_run = summed.tensor.view(*runs, -1, kernel_size * x.size(-1))
        out = (by_run @ weight.flatten(-3, -2)).view(-1, channels)
        del summed, by_run
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        *runs, kernel_size, _, channels = weight.shape
        # The gradients of the windows in which each source stood under each tap, [M, K, D].
        plan, by_source = ctx.layout.plan, ctx.layout.plan.transposed
        table = Scratch((plan.num_sources, kernel_size, channels), grad.dtype)
        walk = (by_source.ptr, by_source.target, by_source.entry, ctx.layout.place)
        run(kernels.window_sum_gather, by_source.cuts, grad.contiguous(), plan.ptr, *walk, table.tensor)
        by_run = table.tensor.view(*runs, -1, kernel_size * channels)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            taps = weight.mT.flatten(-3, -2)
            parts = zip(by_run.split(_LONGEST_ROW, -1), taps.split(_LONGEST_ROW, -2), strict=True)
            grad_x = torch.matmul(*next(parts))
            for part in parts:
                grad_x = grad_x.baddbmm_(*part) if runs else grad_x.addmm_(*part)
            grad_x = grad_x.view(x.shape)
        if ctx.needs_input_grad[1]:
            grad_taps = x.view(*runs, -1, x.size(-1)).mT @ by_run  # [C, K * D]
            grad_weight = grad_taps.unflatten(-1, (kernel_size, -1)).transpose(-3, -2)
        del table, by_run
        return grad_x, grad_weight, None

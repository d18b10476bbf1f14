"""Equations 5 and 6 with the largest window: winners are kept instead of windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import ONE_SUM, Scratch, gradient_of_taps, layout_of, multiply, run
from node2seq.ops.sequences import Layout, Sequences

# As many channels as fill a cache line: two threads never write to the same one.
_CHANNELS = 16
# In longer sequences most windows lose: what is left to do is less than to ask each entry.
_LONG_SEQUENCES = 32


def convolve_max(
    x: Tensor,
    weight: Tensor,
    sequences: Sequences | Layout,
    root: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Equations 5 and 6 with the largest window per channel; the winners are int32 where they fit.

    With a root, [D, C] or each run's, its product with each node's own row is added, and with it the bias.
    """
    layout = sequences if isinstance(sequences, Layout) else layout_of(sequences)
    given = (x, weight, root, bias)
    if is_recorded(*given):
        return _ConvolveMax.apply(*given, layout)  # pyright: ignore[reportReturnType]
    return _convolve(*given, layout)[:2]


def _convolve(
    x: Tensor, weight: Tensor, root: Tensor | None, bias: Tensor | None, layout: Layout
) -> tuple[Tensor, Tensor, Tensor]:
    """The readout, its winners, and the taps as one matrix, [C, (K + 1) * D]."""
    plan, (*_, kernel_size, _, channels) = layout.plan, weight.shape
    # One product projects for every tap and for the own rows.
    taps = torch.cat([*weight.unbind(-3), *([] if root is None else [root.mT])], dim=-1)
    projected = Scratch((x.size(0), taps.size(-1) // channels, channels), x.dtype)
    multiply(x, taps, projected.tensor.view(-1, taps.size(-1)), longest=ONE_SUM)
    out = x.new_empty(plan.rows.num_rows, channels)
    winner = torch.empty_like(out, dtype=plan.dtype)
    added = x.new_empty(0, channels) if bias is None else bias.view(-1, channels)
    run(
        kernels.window_max,
        plan.cuts,
        kernel_size,
        projected.tensor,
        added,
        plan.ptr,
        layout.index,
        out,
        winner,
    )
    return out, winner, taps


class _ConvolveMax(torch.autograd.Function):
    """Keeps the winners and the places, never the projected rows or the windows."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, root: Tensor | None, bias: Tensor | None, layout: Layout
    ) -> tuple[Tensor, Tensor]:
        out, winner, taps = _convolve(x, weight, root, bias, layout)
        ctx.save_for_backward(x, taps, winner)
        ctx.layout, ctx.kernel_size = layout, weight.size(-3)
        ctx.mark_non_differentiable(winner)
        ctx.set_materialize_grads(False)  # no zeros for the winners
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor, _grad_winner: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, taps, winner = ctx.saved_tensors
        layout, plan, runs, channels = ctx.layout, ctx.layout.plan, taps.shape[:-2], grad.size(-1)
        products, grad = taps.size(-1) // channels, grad.contiguous()
        # The gradient of the projected rows, [M, K, D], or with a root [M, K + 1, D].
        table = Scratch((plan.num_sources, products, channels), grad.dtype)
        given = (ctx.kernel_size, grad, winner, plan.ptr)
        if plan.rows.num_entries >= _LONG_SEQUENCES * plan.rows.num_rows:
            table.tensor.zero_()
            blocks = range((channels + _CHANNELS - 1) // _CHANNELS + 1)
            run(kernels.window_max_scatter, blocks, *given, layout.index, _CHANNELS, table.tensor)
        else:
            by_source = plan.transposed
            walk = (by_source.ptr, by_source.target, by_source.entry, layout.place)
            run(kernels.window_max_gather, by_source.cuts, *given, *walk, table.tensor)
        by_row = table.tensor.view(-1, taps.size(-1))
        grad_x = grad_weight = grad_root = None
        if ctx.needs_input_grad[0]:
            grad_x = multiply(by_row, taps, transposed=True)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            grad_weight, grad_root = gradient_of_taps(x, by_row, runs, products, ctx.kernel_size)
        grad_bias = grad.view(*runs, -1, channels).sum(-2) if ctx.needs_input_grad[3] else None
        return grad_x, grad_weight, grad_root, grad_bias, None

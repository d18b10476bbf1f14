"""Equations 5 and 6 with the largest window: winners are kept instead of windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import ONE_SUM, Scratch, by_run, gradients, layout_of, multiply, run
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
    function = _ConvolveMax.apply if is_recorded(x, weight, root, bias) else _convolve
    return function(x, weight, root, bias, layout)  # pyright: ignore[reportReturnType]


def _convolve(
    x: Tensor, weight: Tensor, root: Tensor | None, bias: Tensor | None, layout: Layout
) -> tuple[Tensor, Tensor]:
    """The readout and its winners."""
    plan, (*_, kernel_size, _, channels) = layout.plan, weight.shape
    # One product projects for every tap and for the own rows.
    projected = Scratch((x.size(0), kernel_size + (root is not None), channels), x)
    multiply(x, weight, root, kernels.BESIDE, projected.by_row, longest=ONE_SUM)
    out = x.new_empty(plan.rows.num_rows, channels)
    winner = torch.empty_like(out, dtype=plan.dtype)
    given = (kernel_size, projected.array, by_run(bias, 1, x), plan.ptr, layout.index)
    run(kernels.window_max, plan.cuts, *given, out, winner)
    return out, winner


class _ConvolveMax(torch.autograd.Function):
    """Keeps what it was given, the winners and the places, never the projected rows or the windows."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, root: Tensor | None, bias: Tensor | None, layout: Layout
    ) -> tuple[Tensor, Tensor]:
        out, winner = _convolve(x, weight, root, bias, layout)
        ctx.save_for_backward(x, weight, root, winner)
        ctx.layout = layout
        ctx.mark_non_differentiable(winner)
        ctx.set_materialize_grads(False)  # no zeros for the winners
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor, _grad_winner: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, root, winner = ctx.saved_tensors
        layout, plan, (*runs, kernel_size, _, channels) = ctx.layout, ctx.layout.plan, weight.shape
        grad = grad.contiguous()
        # The gradient of the projected rows, [M, K, D], or with a root [M, K + 1, D].
        table = Scratch((plan.num_sources, kernel_size + (root is not None), channels), grad)
        given = (kernel_size, grad, winner, plan.ptr)
        if plan.rows.num_entries >= _LONG_SEQUENCES * plan.rows.num_rows:
            table.array.fill(0)
            blocks = range((channels + _CHANNELS - 1) // _CHANNELS + 1)
            run(kernels.window_max_scatter, blocks, *given, layout.index, _CHANNELS, table.array)
        else:
            by_source = plan.transposed
            walk = (by_source.ptr, by_source.target, by_source.entry, layout.place)
            run(kernels.window_max_gather, by_source.cuts, *given, *walk, table.array)
        needs_bias = ctx.needs_input_grad[3]
        grad_bias = grad.view(*runs, -1, channels).sum(-2) if needs_bias else None
        return *gradients(ctx.needs_input_grad, x, table.by_row, weight, root), grad_bias, None

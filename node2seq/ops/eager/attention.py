"""Attention weights over each sequence, with a backward that never scatters."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.sequences import Sequences


def attention(source: Tensor, target: Tensor, sequences: Sequences, slope: float) -> Tensor:
    """The softmax over each target's entries of ``leaky_relu(source[j] + target[i])``.

    Args:
        source (torch.Tensor): A number for each source node, [M].
        target (torch.Tensor): A number for each target node, [N].
        sequences (Sequences): The entries.
        slope (float): The slope of the activation below zero.

    Returns:
        torch.Tensor: The weight of each entry, [E].
    """
    if not sequences.rows.num_entries:
        return source[:0] + target[:0]  # with gradients of zero
    return _Attention.apply(source, target, sequences, slope)  # pyright: ignore[reportReturnType]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, sequences: Sequences, slope: float) -> Tensor:
        rows = sequences.rows
        raw = source[sequences.index] + target[rows.target]
        value = F.leaky_relu(raw, slope)
        value = (value - _segments(value, rows.ptr, "max")[rows.target]).exp_()
        weight = value / _segments(value, rows.ptr, "sum")[rows.target]
        ctx.sequences, ctx.slope = sequences, slope
        ctx.save_for_backward(weight, raw > 0)
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, positive = ctx.saved_tensors
        rows = ctx.sequences.rows
        share = weight * grad
        grad = share - weight * _segments(share, rows.ptr, "sum")[rows.target]
        grad = torch.where(positive, grad, grad * ctx.slope)
        source_ptr, entries = ctx.sequences.transposed
        return _segments(grad[entries], source_ptr, "sum"), _segments(grad, rows.ptr, "sum"), None, None


def _segments(values: Tensor, ptr: Tensor, reduce: str) -> Tensor:
    """One number for each segment, summed in the same order every time."""
    # `unsafe` leaves out checks of `ptr`, which would wait for a GPU.
    return torch.segment_reduce(values, reduce, offsets=ptr, unsafe=True)

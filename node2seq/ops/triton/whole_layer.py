"""Equations 1 to 7 in one step: on small graphs each step of its own takes longer than its kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.sequences import Convolution, Layout, Root, Sequences
from node2seq.ops.triton.plan import plan_of
from node2seq.ops.triton.ranking import arrange
from node2seq.ops.triton.window_max import MaxPass, max_forward, max_gradients
from node2seq.ops.triton.window_sum import SumPass, sum_forward, sum_gradients


def layer(
    x: Tensor, projection: Tensor, weight: Tensor, root: Root, sequences: Sequences, then: Convolution
) -> Tensor:
    """The whole layer over local neighbours, sorted by attention; all tensors are of float32, of one run.

    Args:
        x (torch.Tensor): The features, [N, C].
        projection (torch.Tensor): W1, [D, C].
        weight (torch.Tensor): The taps, [K, D, D].
        root (Root): W2, [D, D], and the bias.
        sequences (Sequences): The neighbours of each target.
        then (Convolution): The convolution, with the own features.
    """
    own, bias = root
    if is_recorded(x, projection, weight, own, bias):
        plan_of(sequences).expect_backward()
        return _Layer.apply(x, projection, weight, own, bias, sequences, then)  # pyright: ignore[reportReturnType]
    return _forward(x, projection, weight, own, bias, sequences, then)[0]


def _forward(
    x: Tensor,
    projection: Tensor,
    weight: Tensor,
    root: Tensor,
    bias: Tensor | None,
    sequences: Sequences,
    then: Convolution,
) -> tuple[Tensor, MaxPass | SumPass, list[Tensor | None]]:
    key = x.mm(projection.t())
    ranked = arrange(key, key, key, sequences, then)
    if then.readout == "max":
        assert isinstance(ranked, Layout)
        return max_forward(key, weight, ranked, root, bias, then.dtype)
    is_mean = then.readout == "mean"
    return sum_forward(key, weight, ranked, root, bias, is_mean, then.dtype)


class _Layer(torch.autograd.Function):
    """Its gradients are those of the convolution and, before it, of the product with the features."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        projection: Tensor,
        weight: Tensor,
        root: Tensor,
        bias: Tensor | None,
        sequences: Sequences,
        then: Convolution,
    ) -> Tensor:
        out, ctx.about, kept = _forward(x, projection, weight, root, bias, sequences, then)
        ctx.save_for_backward(x, projection, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, projection, *kept = ctx.saved_tensors
        ctx.maybe_clear_saved_tensors()
        needs_x, needs_projection, *needs, _, _ = ctx.needs_input_grad
        gradients: Any = max_gradients if isinstance(ctx.about, MaxPass) else sum_gradients
        grad_key, *others = gradients(ctx.about, kept, grad, (needs_x or needs_projection, *needs))
        grad_x = grad_projection = None
        if grad_key is not None:
            grad_x = grad_key.mm(projection) if needs_x else None
            grad_projection = grad_key.t().mm(x) if needs_projection else None
        return grad_x, grad_projection, *others, None, None

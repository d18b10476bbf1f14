"""Soft ranks and the convolution over them, with backwards that keep no row of an entry."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.eager.aggregate import split_bags_once, sum_to_sources, sum_to_targets
from node2seq.ops.eager.ranking import score
from node2seq.ops.reference import LEAST_LEFT
from node2seq.ops.sequences import Sequences, gradient_of_taps, multiply


def pair_scores(query: Tensor, key: Tensor, sequences: Sequences) -> Tensor:
    """The inner product of each entry's target and source with gradients to both, [E]."""
    return _PairScores.apply(query, key, sequences)  # pyright: ignore[reportReturnType]


def soft_ranks(score: Tensor, sequences: Sequences, count: int) -> Tensor:
    """How much of each entry stands at each of the first ranks, [count, E].

    See :func:`reference.soft_ranks`.
    """
    if not score.numel():
        return score.expand(count, -1)
    return _SoftRanks.apply(score, sequences, count)  # pyright: ignore[reportReturnType]


def convolve_ranks(x: Tensor, weight: Tensor, ranks: Tensor, sequences: Sequences) -> Tensor:
    """A matrix for each rank and one for the mean of all, [N, D]; see :func:`reference.convolve_ranks`."""
    return _ConvolveRanks.apply(x, weight, ranks, sequences)  # pyright: ignore[reportReturnType]


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, sequences: Sequences) -> Tensor:
        ctx.sequences = sequences
        ctx.save_for_backward(query, key)
        return score(query, key, sequences)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key = ctx.saved_tensors
        grad_query = sum_to_targets(key, ctx.sequences, grad) if ctx.needs_input_grad[0] else None
        grad_key = sum_to_sources(query, ctx.sequences, grad) if ctx.needs_input_grad[1] else None
        return grad_query, grad_key, None


class _SoftRanks(torch.autograd.Function):
    """Keeps its own result alone: the gradient of each softmax and of what it left depends on no more."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, sequences: Sequences, count: int) -> Tensor:
        rows = sequences.rows
        length = rows.length()
        out = score.new_empty(count, score.numel())
        value = score.clone()
        for t in range(count):
            top = _segments(value, sequences, "max")
            share = torch.exp(value - top[rows.target], out=out[t])
            total = _segments(share, sequences, "sum")
            # Nothing stands at a rank that the sequence is too short for: a share of zero.
            share *= (1 / total).masked_fill_(length <= t, 0.0)[rows.target]
            if t + 1 < count:
                value += _left_by(share, sequences)[0].clamp_(min=LEAST_LEFT).log_()
        ctx.sequences = sequences
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (ranks,), sequences = ctx.saved_tensors, ctx.sequences
        target = sequences.rows.target
        behind = None  # the gradient of a_{t+1}
        for share, own in zip(reversed(ranks.unbind()), reversed(grad.unbind()), strict=True):
            found = share * (own - _segments(share * own, sequences, "sum")[target])
            behind = found if behind is None else behind + found + _gradient_of_left(share, behind, sequences)
        assert behind is not None
        return behind, None, None


def _left_by(share: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """1 − p of each entry, and which have more than half of their sequence's rank: one at most.

    Of these it is the sum of the others' shares: subtracted, all digits could be lost.
    """
    is_large = share > 0.5
    others = _segments(share.masked_fill(is_large, 0.0), sequences, "sum")[sequences.rows.target]
    return torch.where(is_large, others, 1 - share), is_large


def _gradient_of_left(share: Tensor, grad: Tensor, sequences: Sequences) -> Tensor:
    """The gradient of log(1 − p) to what p is the softmax of.

    That of entry j is −p_j to itself and p_j p_k / (1 − p_j) to any other k: nothing is subtracted that is
    large where 1 − p_j is small.
    """
    target = sequences.rows.target
    left, is_large = _left_by(share, sequences)
    grad = grad.masked_fill(left < LEAST_LEFT, 0.0)  # there the logarithm is constant
    part = grad * share / left.clamp_(min=LEAST_LEFT)
    of_large, of_others = part.masked_fill(~is_large, 0.0), part.masked_fill(is_large, 0.0)
    from_others = _segments(of_others, sequences, "sum")[target] - of_others
    from_large = _segments(of_large, sequences, "sum")[target].masked_fill_(is_large, 0.0)
    return share * (from_others + from_large - grad)


class _ConvolveRanks(torch.autograd.Function):
    """Sums the rows of each rank first and multiplies after; its backward gathers gradients, not rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ranks: Tensor, sequences: Sequences) -> Tensor:
        ctx.sequences = sequences
        ctx.save_for_backward(x, weight, ranks)
        parts = [*ranks.unbind(), _mean_share(sequences, x.dtype)]
        summed = torch.stack([sum_to_targets(x, sequences, part) for part in parts], dim=1)  # [N, K + 1, C]
        return multiply(summed.flatten(1), weight.flatten(-3, -2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, ranks = ctx.saved_tensors
        sequences, grad = ctx.sequences, grad.contiguous()
        needs_x, needs_weight, needs_ranks, _ = ctx.needs_input_grad
        grad_x = grad_weight = grad_ranks = None
        if needs_x or needs_weight:
            parts = [*ranks.unbind(), _mean_share(sequences, x.dtype)]
            # What each source gets back under each rank: [M, K + 1, D].
            back = torch.stack([sum_to_sources(grad, sequences, part) for part in parts], dim=1)
            if needs_x:
                grad_x = multiply(back.flatten(1), weight.transpose(-2, -1).flatten(-3, -2))
            if needs_weight:
                grad_weight = gradient_of_taps(x, back.flatten(1), weight.shape)
        if needs_ranks:
            grad_ranks = torch.stack(
                [
                    score(multiply(grad, weight[..., t, :, :].transpose(-2, -1)), x, sequences)
                    for t in range(ranks.size(0))
                ]
            )
        return grad_x, grad_weight, grad_ranks, None


def _mean_share(sequences: Sequences, dtype: torch.dtype) -> Tensor:
    """The weight of each entry in the mean of its sequence, [E]."""
    rows = sequences.rows
    return (1 / rows.length().to(dtype))[rows.target]


def _segments(values: Tensor, sequences: Sequences, reduce: str) -> Tensor:
    """One number for each sequence, in parts first, in the same order every time."""
    for ptr in reversed(split_bags_once(sequences, "rows", sequences.rows.ptr)):
        # `unsafe` leaves out checks of `ptr`, which would wait for a GPU.
        values = torch.segment_reduce(values, reduce, offsets=ptr, unsafe=True)
    return values

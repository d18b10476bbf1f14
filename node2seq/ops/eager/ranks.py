"""Soft ranks and the convolution over them, with backwards that keep no row of an entry."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.eager.aggregate import bag_sum, split_bags_once
from node2seq.ops.eager.ranking import score
from node2seq.ops.reference import largest_share
from node2seq.ops.sequences import Sequences, multiply


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
        grad_query = _to_targets(key, ctx.sequences, grad) if ctx.needs_input_grad[0] else None
        grad_key = _to_sources(query, ctx.sequences, grad) if ctx.needs_input_grad[1] else None
        return grad_query, grad_key, None


class _SoftRanks(torch.autograd.Function):
    """Keeps its own result alone: the gradient of each softmax and of what it left depends on no more."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, sequences: Sequences, count: int) -> Tensor:
        rows, most = sequences.rows, largest_share(score.dtype)
        length = rows.length()
        out = score.new_empty(count, score.numel())
        value = score.clone()
        for t in range(count):
            top = _segments(value, sequences, "max")
            share = torch.exp(value - top[rows.target], out=out[t])
            total = _segments(share, sequences, "sum")
            # Nothing stands at a rank that the sequence is too short for: a share of zero.
            share *= (1 / total).masked_fill_(length <= t, 0.0)[rows.target]
            value += torch.log1p(-share.clamp(max=most))
        ctx.sequences = sequences
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (ranks,), sequences = ctx.saved_tensors, ctx.sequences
        most, target = largest_share(grad.dtype), sequences.rows.target
        left = torch.zeros_like(grad[0])  # the gradient of a_{t+1}
        for share, own in zip(reversed(ranks.unbind()), reversed(grad.unbind()), strict=True):
            own = own - (left / (1 - share)).masked_fill_(share > most, 0.0)
            left = left + share * (own - _segments(share * own, sequences, "sum")[target])
        return left, None, None


class _ConvolveRanks(torch.autograd.Function):
    """Sums the rows of each rank first and multiplies after; its backward gathers gradients, not rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ranks: Tensor, sequences: Sequences) -> Tensor:
        ctx.sequences = sequences
        ctx.save_for_backward(x, weight, ranks)
        parts = [*ranks.unbind(), _mean_share(sequences, x.dtype)]
        summed = torch.stack([_to_targets(x, sequences, part) for part in parts], dim=1)  # [N, K + 1, C]
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
            back = torch.stack([_to_sources(grad, sequences, part) for part in parts], dim=1)
            if needs_x:
                grad_x = multiply(back.flatten(1), weight.transpose(-2, -1).flatten(-3, -2))
            if needs_weight:
                runs = weight.shape[:-3]
                own = x.view(*runs, -1, x.size(-1)).transpose(-2, -1)
                grad_weight = own @ back.view(*runs, -1, back[0].numel())  # [C, (K + 1) D]
                grad_weight = grad_weight.unflatten(-1, back.shape[1:]).transpose(-3, -2)
        if needs_ranks:
            grad_ranks = torch.stack(
                [
                    score(multiply(grad, weight[..., t, :, :].transpose(-2, -1)), x, sequences)
                    for t in range(ranks.size(0))
                ]
            )
        return grad_x, grad_weight, grad_ranks, None


def _to_targets(table: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
    """The weighted sum of each target's sources, [N, C]."""
    bags = split_bags_once(sequences, "rows", sequences.rows.ptr)
    return bag_sum(table, sequences.index, bags, weight)


def _to_sources(table: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
    """The weighted sum of the targets that each source has an entry with, [M, C]."""
    source_ptr, entries = sequences.transposed
    bags = split_bags_once(sequences, "sources", source_ptr)
    return bag_sum(table, sequences.rows.target[entries], bags, weight[entries])


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

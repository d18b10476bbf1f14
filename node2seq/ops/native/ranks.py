"""Soft ranks and the convolution over them: each neighbour's row is read once for all ranks and the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.linear import multiply_in_parts
from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import CpuPlan, Scratch, layout_of, run
from node2seq.ops.reference import LEAST_LEFT
from node2seq.ops.sequences import Layout, Sequences


def pair_scores(query: Tensor, key: Tensor, sequences: Sequences | Layout) -> Tensor:
    """The inner product of each entry's target and source with gradients to both, [E]."""
    return _PairScores.apply(query, key, _layout_of(sequences))  # pyright: ignore[reportReturnType]


def soft_ranks(score: Tensor, sequences: Sequences | Layout, count: int) -> Tensor:
    """How much of each entry stands at each of the first ranks, [count, E].

    See :func:`reference.soft_ranks`. The ranks of an entry lie next to each other in memory.
    """
    return _SoftRanks.apply(score, _layout_of(sequences).plan, count)  # pyright: ignore[reportReturnType]


def convolve_ranks(x: Tensor, weight: Tensor, ranks: Tensor, sequences: Sequences | Layout) -> Tensor:
    """A matrix for each rank and one for the mean of all, [N, D]; see :func:`reference.convolve_ranks`."""
    return _ConvolveRanks.apply(x, weight, ranks, _layout_of(sequences))  # pyright: ignore[reportReturnType]


def _layout_of(sequences: Sequences | Layout) -> Layout:
    """The layout of sequences, found once: other sources have a transposed graph of their own."""
    if isinstance(sequences, Layout):
        return sequences
    if "native ranks" not in sequences.plans:
        sequences.plans["native ranks"] = layout_of(sequences)
    return sequences.plans["native ranks"]


def _entry_by_source(layout: Layout) -> np.ndarray:
    """The entry behind each one of the transposed graph, in the order that the sequences have now, [E]."""
    plan: CpuPlan = layout.plan
    by_source = plan.transposed
    if layout.place is plan.position:
        return by_source.entry
    return plan.ptr[by_source.target] + layout.place.numpy()[by_source.entry]


def _sums_by_source(grad: Tensor, weight: Tensor, layout: Layout, out: Tensor | np.ndarray) -> None:
    """The weighted sums of the targets that each source has an entry with, [M, T, C]."""
    plan: CpuPlan = layout.plan
    by_source = plan.transposed
    walk = (by_source.ptr, by_source.target, _entry_by_source(layout))
    run(kernels.weighted_sums_gather, by_source.cuts, grad, plan.ptr, *walk, weight, out)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, layout: Layout) -> Tensor:
        plan, query, key = layout.plan, query.contiguous(), key.contiguous()
        ctx.layout = layout
        ctx.save_for_backward(query, key)
        out = query.new_empty(plan.rows.num_entries)
        run(kernels.pair_scores, plan.cuts, query, key, plan.ptr, layout.index, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key = ctx.saved_tensors
        layout, grad = ctx.layout, grad.contiguous().view(-1, 1)
        plan, grad_query, grad_key = layout.plan, None, None
        if ctx.needs_input_grad[0]:
            grad_query = torch.empty_like(query)
            run(kernels.weighted_sums, plan.cuts, key, plan.ptr, layout.index, grad, grad_query.unsqueeze(1))
        if ctx.needs_input_grad[1]:
            grad_key = torch.empty_like(key)
            _sums_by_source(query, grad, layout, grad_key.unsqueeze(1))
        return grad_query, grad_key, None


class _SoftRanks(torch.autograd.Function):
    """Keeps its own result alone: the gradient of each softmax and of what it left depends on no more."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, plan: CpuPlan, count: int) -> Tensor:
        ctx.plan = plan
        ranks = score.new_empty(score.numel(), count)
        given = (score.contiguous(), plan.ptr, plan.longest, _least(score))
        run(kernels.soft_ranks, plan.cuts, *given, ranks)
        ctx.save_for_backward(ranks)
        return ranks.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (ranks,), plan = ctx.saved_tensors, ctx.plan
        out = ranks.new_empty(ranks.size(0))
        given = (ranks, grad.t().contiguous(), plan.ptr, plan.longest, _least(grad))
        run(kernels.soft_ranks_grad, plan.cuts, *given, out)
        return out, None, None


def _least(value: Tensor) -> Any:
    """What a share leaves at least, in the precision of the values."""
    return value.new_tensor(LEAST_LEFT).numpy()[()]


class _ConvolveRanks(torch.autograd.Function):
    """Keeps what it was given, and no table."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ranks: Tensor, layout: Layout) -> Tensor:
        plan, x, (*runs, sums, _, channels) = layout.plan, x.contiguous(), weight.shape
        ranks = ranks.to(x.dtype).t().contiguous()  # [E, K]
        ctx.layout = layout
        ctx.save_for_backward(x, weight, ranks)
        table = Scratch((plan.rows.num_rows, sums, x.size(-1)), x)
        run(kernels.weighted_sums, plan.cuts, x, plan.ptr, layout.index, ranks, table.array)
        out = table.tensor.view(*runs, -1, sums * x.size(-1)) @ weight.flatten(-3, -2)
        return out.view(-1, channels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, ranks = ctx.saved_tensors
        needs_x, needs_weight, needs_ranks, _ = ctx.needs_input_grad
        layout, grad, (*runs, sums, _, channels) = ctx.layout, grad.contiguous(), weight.shape
        plan = layout.plan
        grad_x = grad_weight = grad_ranks = None
        if needs_ranks:
            taps = weight[..., :-1, :, :].flatten(-3, -2).mT  # [D, K * C]
            table = Scratch((plan.rows.num_rows, sums - 1, x.size(-1)), x)
            by_run = table.tensor.view(*runs, -1, taps.size(-1))
            torch.matmul(grad.view(*runs, -1, channels), taps, out=by_run)
            grad_ranks = torch.empty_like(ranks)
            run(kernels.weights_grad, plan.cuts, table.array, x, plan.ptr, layout.index, grad_ranks)
            grad_ranks = grad_ranks.t()
            del table, by_run
        if needs_x or needs_weight:
            table = Scratch((plan.num_sources, sums, channels), grad)
            _sums_by_source(grad, ranks, layout, table.array)
            by_run = table.tensor.view(*runs, -1, sums * channels)
            if needs_x:
                grad_x = multiply_in_parts(by_run, weight.mT.flatten(-3, -2)).view(x.shape)
            if needs_weight:
                found = x.view(*runs, -1, x.size(-1)).mT @ by_run  # [C, (K + 1) * D]
                grad_weight = found.unflatten(-1, (sums, channels)).transpose(-3, -2)
        return grad_x, grad_weight, grad_ranks, None

"""Weighted sums of rows, in the same order every time."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.eager.ranking import score
from node2seq.ops.sequences import Rows, Sequences, lasting

# Sums run one after the other within a bag. Cut into parts of 64, a hub's loses no more digits than a
# pairwise sum would, and keeps more than one thread busy.
_LONGEST_SUM = 64


def aggregate(x: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
    """The weighted sum of each target's source rows, [N, D]; its backward is the same sum transposed."""
    return _Aggregate.apply(x, sequences, weight)  # pyright: ignore[reportReturnType]


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
        ctx.sequences = sequences
        ctx.save_for_backward(weight, x if weight.requires_grad else None)
        return sum_to_targets(x, sequences, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, x = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = sum_to_sources(grad, ctx.sequences, weight)
        if ctx.needs_input_grad[2]:
            grad_weight = score(grad.contiguous(), x, ctx.sequences)
        return grad_x, None, grad_weight


def sum_to_targets(table: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
    """The weighted sum of each target's sources, [N, C]."""
    bags = split_bags_once(sequences, "rows", sequences.rows.ptr)
    return bag_sum(table, sequences.index, bags, weight)


def sum_to_sources(table: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
    """The weighted sum of the targets that each source has an entry with, [M, C]."""
    source_ptr, entries = sequences.transposed
    bags = split_bags_once(sequences, "sources", source_ptr)
    target = _by_source(sequences, entries, "targets", sequences.rows.target)
    is_kept = sequences.has_as_gcn_weights(weight)
    weight = _by_source(sequences, entries, str(weight.dtype), weight) if is_kept else weight[entries]
    return bag_sum(table, target, bags, weight)


def _by_source(sequences: Sequences, entries: Tensor, name: str, values: Tensor) -> Tensor:
    """Values of the entries in the order of their sources. They are the same in every step, and to gather
    them takes several times as long as to sum: those of a graph in no order that changes are kept with it.
    """
    if sequences.origin is not None:
        return values[entries]
    plan = f"eager {name} by source"
    if plan not in sequences.plans:
        with lasting():
            sequences.plans[plan] = values[entries]
    return sequences.plans[plan]


def bag_sum(table: Tensor, index: Tensor, bags: list[Tensor], weight: Tensor | None = None) -> Tensor:
    """The sum of ``table[index[ptr[i]:ptr[i + 1]]]`` for every i, each in the same order every time.

    Args:
        table (torch.Tensor): The rows to sum, [M, C].
        index (torch.Tensor): Which row each entry is, [E].
        bags (list): Where each bag and its parts begin; see :func:`split_bags`.
        weight (torch.Tensor, optional): The weight of each entry, [E].
    """
    if not index.numel():
        return table.new_zeros(bags[0].numel() - 1, table.size(-1))
    *coarser, finest = bags
    sums = F.embedding_bag(
        index, table, finest, mode="sum", per_sample_weights=weight, include_last_offset=True
    )
    for part_ptr in reversed(coarser):
        parts = torch.arange(sums.size(0), device=index.device)
        sums = F.embedding_bag(parts, sums, part_ptr, mode="sum", include_last_offset=True)
    return sums


def split_bags(ptr: Tensor) -> list[Tensor]:
    """Bags as sums of parts, which are sums of parts again: where each begins, the finest last."""
    parts = (ptr[1:] - ptr[:-1] + _LONGEST_SUM - 1) // _LONGEST_SUM
    if not bool((parts > 1).any()):
        return [ptr]
    part = Rows.from_lengths(parts)
    return [*split_bags(part.ptr), torch.cat([ptr[part.target] + part.position() * _LONGEST_SUM, ptr[-1:]])]


def split_bags_once(sequences: Sequences, side: str, ptr: Tensor) -> list[Tensor]:
    """The bags of a graph's own rows, or of its sources; found once, as it makes the host wait for a GPU."""
    origin, order = sequences.origin or (sequences, None)
    graph = sequences if order is None else origin  # no order changes it
    plan = f"eager bags of {side}"
    if plan not in graph.plans:
        with lasting():
            graph.plans[plan] = split_bags(ptr)
    return graph.plans[plan]

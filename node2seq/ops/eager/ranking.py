"""Equations 2 and 3: scores as a sampled product, and a sort of packed integers."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops import reference
from node2seq.ops.sequences import Sequences


def score(query: Tensor, key: Tensor, sequences: Sequences) -> Tensor:
    """Equation 2 as a sampled product: no [E, D] tensor, 10 × faster than gather-multiply-sum on a CPU."""
    if not sequences.index.numel():
        return query.new_zeros(0)
    if query.dtype.itemsize < 4:  # which PyTorch has no sampled product for
        return score(query.float(), key.float(), sequences).to(query.dtype)
    if sequences.index.numel() > sequences.rows.num_rows * sequences.num_sources:
        # So many parallel edges that PyTorch takes the pattern for a dense matrix.
        return reference.score(query, key, sequences)
    pattern = sequences.pattern.to(query.dtype)
    return torch.sparse.sampled_addmm(pattern, query, key.t(), beta=0.0).values()


def precedence(own_score: Tensor) -> Tensor:
    """Who goes first where scores tie: the larger own score, then the smaller id. Rank of each node, [M]."""
    order = own_score.argsort(descending=True, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel(), device=order.device)
    return place


def rank(scores: Tensor, order_of_ties: Tensor, sequences: Sequences) -> Tensor:
    """Equation 3 for float32: score and precedence packed into one integer, rows sorted in groups of a width.

    Float bits keep their order as integers once the negative ones are mirrored; the complement sorts
    descending. Adding zero first turns −0.0 into +0.0, which it equals.
    """
    if scores.dtype != torch.float32:
        return reference.rank(scores, order_of_ties, sequences)
    bits = (scores + 0.0).view(torch.int32)
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    packed = (~ascending).long() << 32 | order_of_ties[sequences.index]
    order = torch.empty_like(sequences.index)
    ptr = sequences.rows.ptr
    for rows, _, width in sequences.rows.groups:
        start, end = ptr[rows, None], ptr[rows + 1, None]
        entry = start + torch.arange(width, device=ptr.device)
        real = entry < end
        key = torch.where(real, packed[entry.clamp_(max=packed.numel() - 1)], torch.iinfo(torch.int64).max)
        sorted_entry = start + key.argsort(dim=1)
        # Padding sorts behind every real entry, so position p of a row holds the row's p-th entry.
        order[entry[real]] = sorted_entry[real]
    return order

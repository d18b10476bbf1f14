"""Equations 2 to 4 for local neighbours in one pass over the rows; what is not needed only if asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import GraphPlan, plan_of
from node2seq.ops.native.pool import run
from node2seq.ops.ranked import LazyRanking, Ranked
from node2seq.ops.sequences import Sequences

# Scores are sorted as whole numbers of the same width.
_KEY = {torch.float32: torch.int32, torch.float64: torch.int64}


def own_keys(key: Tensor, plan: GraphPlan) -> Tensor:
    """Who goes first where scores tie, as whole numbers, [M]: the smaller first."""
    own = torch.empty(key.size(0), dtype=_KEY[key.dtype])
    run(kernels.own_keys, plan.source_cuts, key, own)
    return own


def score_and_place(query: Tensor, key: Tensor, own: Tensor, plan: GraphPlan) -> tuple[Tensor, Ranked]:
    """The score of each of the graph's own entries, [E], and the sequences in their new order."""
    scores = query.new_empty(plan.rows.num_entries)
    ranked, place = torch.empty_like(plan.index), torch.empty_like(plan.index)
    run(
        kernels.arrange,
        plan.cuts,
        query,
        key,
        own,
        plan.ptr,
        plan.index,
        plan.longest,
        scores,
        ranked,
        place,
    )
    return scores, Ranked(plan, ranked, place)


def arrange(query: Tensor, key: Tensor, sequences: Sequences) -> LazyRanking:
    """Scores each target's neighbours and ranks them. No gradient passes through."""
    plan = plan_of(sequences)
    query, key = query.contiguous(), key.contiguous()
    scores, in_order = score_and_place(query, key, own_keys(key, plan), plan)
    return LazyRanking(in_order, lambda: in_order, lambda: scores)

"""Equations 2 to 4 for local neighbours, from features to ranked sequences; the rest only if asked for."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from node2seq.ops import eager
from node2seq.ops.ranked import LazyRanking, Ranked
from node2seq.ops.sequences import Sequences
from node2seq.ops.triton.launch import plain
from node2seq.ops.triton.plan import Scored, plan_of, reordered
from node2seq.ops.triton.scores import own_score, score, score_items
from node2seq.ops.triton.short_rows import rank_short_rows
from node2seq.ops.triton.sorting import packs, precedence, sort_long_rows, sort_rows


def arrange(query: Tensor, key: Tensor, sequences: Sequences) -> LazyRanking:
    """Scores each target's neighbours and ranks them. No gradient passes through."""
    plan = plan_of(sequences)
    if key.requires_grad:
        plan.expect_backward()
    is_shared = query is key
    key = plain(key.detach())
    query = key if is_shared else plain(query.detach())
    scored = Scored(plan, query, key, partial(_score_and_rank, query, key, sequences))
    return LazyRanking(scored, lambda: scored.ranked, lambda: score(query, key, sequences))


def _score_and_rank(query: Tensor, key: Tensor, sequences: Sequences) -> Ranked:
    order_of_ties, plan = precedence(own_score(key)), plan_of(sequences)
    work = plan.work
    if not packs(plan):
        scores = score_items(query, key, plan, work.items)
        return reordered(plan, eager.rank(scores, order_of_ties.long(), sequences))
    ranked, place = torch.empty_like(plan.index), torch.empty_like(plan.index)
    if work.long_items:
        scores = score_items(query, key, plan, work.long_items)
        sort_long_rows(scores, order_of_ties, plan, ranked, place)
    for bucket in work.short_buckets:
        rank_short_rows(None, query, key, order_of_ties, plan, bucket, ranked, place)
    return Ranked(plan, ranked, place)


def rank(scores: Tensor, order_of_ties: Tensor, sequences: Sequences) -> Tensor:
    """The entry at each position, by target, score descending, precedence, [E]."""
    plan = plan_of(sequences)
    if packs(plan):
        return sort_rows(scores, order_of_ties, plan).order()
    return eager.rank(scores, order_of_ties.long(), sequences)

"""Equations 2 to 4 for local neighbours, from features to ranked sequences; the rest only if asked for."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

from node2seq.ops import eager
from node2seq.ops.sequences import Convolution, Layout, Positions, Ranking, Sequences
from node2seq.ops.triton.compared_rows import compare_rows
from node2seq.ops.triton.fused_window_sum import Sums, TapSums, fits, scored_window_sum
from node2seq.ops.triton.launch import plain
from node2seq.ops.triton.plan import plan_of, reordered
from node2seq.ops.triton.scores import own_score, score, score_items
from node2seq.ops.triton.short_rows import rank_short_rows
from node2seq.ops.triton.sorting import packs, precedence, sort_long_rows, sort_rows


def score_and_rank(
    query: Tensor, key: Tensor, sequences: Sequences, then: Convolution | None = None
) -> Ranking:
    """Scores each target's neighbours and ranks them. No gradient passes through.

    Where a sum over windows follows, every row is gathered once, for its scores and for the taps' sums: the
    ranking holds these then, and the whole order is worked out if someone asks for it.
    """
    plan = plan_of(sequences)
    if key.requires_grad:
        plan.expect_backward()
    is_shared, given = query is key, key.detach()
    key = plain(given)
    query = key if is_shared else plain(query.detach())
    layout = arrange(query, key, given, sequences, then)

    def find() -> Positions:
        ranked = arrange(query, key, given, sequences) if isinstance(layout, TapSums) else layout
        order = ranked.order()
        return Positions(ranked.index.long(), score(query, key, sequences)[order], order)

    return Ranking(sequences, layout, find)


@overload
def arrange(query: Tensor, key: Tensor, given: Tensor, sequences: Sequences, then: None = None) -> Layout: ...
@overload
def arrange(
    query: Tensor, key: Tensor, given: Tensor, sequences: Sequences, then: Convolution | None
) -> Layout | TapSums: ...
def arrange(
    query: Tensor, key: Tensor, given: Tensor, sequences: Sequences, then: Convolution | None = None
) -> Layout | TapSums:
    """What the convolution that follows reads, from features that lie row by row; ``given`` are the key's."""
    plan = plan_of(sequences)
    work = plan.work
    if then is not None and then.readout != "max" and fits(work, then.kernel_size, key.size(-1)):
        sums = Sums(then.readout == "mean", then.with_root, then.dtype)
        return TapSums(plan, given, sums, *scored_window_sum(query, key, plan, then.kernel_size, sums))
    if work.long_items and plan.compares_few:
        return compare_rows(query, key, plan)
    if not packs(plan):
        scores = score_items(query, key, plan, work.items)
        return reordered(plan, eager.rank(scores, precedence(own_score(key)).long(), sequences))
    index, place = torch.empty_like(plan.index), torch.empty_like(plan.index)
    if work.long_items:
        scores = score_items(query, key, plan, work.long_items)
        sort_long_rows(scores, precedence(own_score(key)), plan, index, place)
    for bucket in work.short_buckets:
        rank_short_rows(None, query, key, None, plan, bucket, index, place)
    return Layout(plan, index, place)


def rank(scores: Tensor, order_of_ties: Tensor, sequences: Sequences) -> Tensor:
    """The entry at each position, by target, score descending, precedence, [E]."""
    plan = plan_of(sequences)
    if packs(plan):
        return sort_rows(scores, order_of_ties, plan).order()
    return eager.rank(scores, order_of_ties.long(), sequences)

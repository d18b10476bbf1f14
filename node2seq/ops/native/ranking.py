"""Equations 2 to 4 for local neighbours in one pass over the rows; what is not needed only if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import GraphPlan, Ranked, plan_of
from node2seq.ops.native.pool import run
from node2seq.ops.selection import Ranking
from node2seq.ops.sequences import Sequences

# Scores are sorted as whole numbers of the same width.
_KEY = {torch.float32: torch.int32, torch.float64: torch.int64}


class FusedRanking:
    """A :class:`node2seq.ops.Ranking` of local neighbours that works out its three tensors when asked.

    Args:
        scores (torch.Tensor): The score of each of the graph's own entries, [E].
        ranked (Ranked): The graph's sequences in their new order.
    """

    def __init__(self, scores: Tensor, ranked: Ranked) -> None:
        self._scores = scores
        self._ranked = ranked

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.node, self.score, self.entry))

    @cached_property
    def node(self) -> Tensor:
        """The source node at each position, [E]."""
        return self._ranked.index.long()

    @cached_property
    def score(self) -> Tensor:
        """Its score, [E]."""
        return self._scores[self.entry]

    @cached_property
    def entry(self) -> Tensor:
        """Its entry among the graph's own, [E]."""
        return self._ranked.order()

    def reorder(self, order: Tensor) -> Ranking:
        """The same in another order within the rows."""
        return Ranking(*self).reorder(order)

    def ranked(self, _sequences: Sequences, _hops: int) -> Ranked:
        """The sequences in this order, as this backend's convolutions read them."""
        return self._ranked


def own_keys(key: Tensor, plan: GraphPlan) -> Tensor:
    """Who goes first where scores tie, as whole numbers, [M]: the smaller first."""
    own = torch.empty(key.size(0), dtype=_KEY[key.dtype])
    run(kernels.own_keys, plan.source_cuts, key, own)
    return own


def arrange(query: Tensor, key: Tensor, sequences: Sequences) -> FusedRanking:
    """Scores each target's neighbours and ranks them. No gradient passes through."""
    plan = plan_of(sequences)
    query, key = query.contiguous(), key.contiguous()
    scores = query.new_empty(plan.rows.num_entries)
    ranked, place = torch.empty_like(plan.index), torch.empty_like(plan.index)
    own = own_keys(key, plan)
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
    return FusedRanking(scores, Ranked(plan, ranked, place))

"""Equations 2 to 4 for local neighbours, from features to ranked sequences; the rest only if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from torch import Tensor

from node2seq.ops import eager
from node2seq.ops.sequences import Sequences
from node2seq.ops.triton.plan import Ranked, plan_of, reordered
from node2seq.ops.triton.scores import own_score, score
from node2seq.ops.triton.sorting import packs, precedence, sort_rows


class FusedRanking:
    """A :class:`node2seq.ops.Ranking` of local neighbours that works out its three tensors when asked.

    Args:
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [M, D].
        sequences (Sequences): The graph's own sequences.
        ranked (Ranked): What the kernels made of them.
    """

    def __init__(self, query: Tensor, key: Tensor, sequences: Sequences, ranked: Ranked) -> None:
        self._features = (query, key)
        self._sequences = sequences
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
        return score(*self._features, self._sequences)[self.entry]

    @cached_property
    def entry(self) -> Tensor:
        """Its entry among the graph's own, [E]."""
        return self._ranked.order()

    def ranked(self, _sequences: Sequences, _hops: int) -> Ranked:
        """The sequences in this order, as this backend's convolutions read them."""
        return self._ranked


def arrange(query: Tensor, key: Tensor, sequences: Sequences) -> FusedRanking:
    """Scores each target's neighbours and ranks them. No gradient passes through."""
    scores = score(query, key, sequences)
    order_of_ties = precedence(own_score(key))
    return FusedRanking(query, key, sequences, _rank(scores, order_of_ties, sequences))


def rank(scores: Tensor, order_of_ties: Tensor, sequences: Sequences) -> Tensor:
    """The entry at each position, by target, score descending, precedence, [E]."""
    return _rank(scores, order_of_ties, sequences).order()


def _rank(scores: Tensor, order_of_ties: Tensor, sequences: Sequences) -> Ranked:
    plan = plan_of(sequences)
    if packs(plan):
        return sort_rows(scores, order_of_ties, plan)
    return reordered(plan, eager.rank(scores, order_of_ties.long(), sequences))

"""Equations 2 to 4 for local neighbours in one pass over the rows; what is not needed only if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import Ranked, plan_of
from node2seq.ops.native.pool import run
from node2seq.ops.sequences import Sequences

# Scores are sorted as whole numbers of the same width.
LIKE_KEY = {torch.float32: np.empty(0, np.int32), torch.float64: np.empty(0, np.int64)}


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

    def ranked(self, _sequences: Sequences, _hops: int) -> Ranked:
        """The sequences in this order, as this backend's convolutions read them."""
        return self._ranked


def arrange(query: Tensor, key: Tensor, sequences: Sequences) -> FusedRanking:
    """Scores each target's neighbours and ranks them. No gradient passes through."""
    plan = plan_of(sequences)
    scores = query.new_empty(plan.rows.num_entries)
    ranked = torch.empty_like(plan.index)
    place = torch.empty_like(plan.index)
    run(
        kernels.arrange,
        plan.cuts,
        query.contiguous(),
        key.contiguous(),
        plan.ptr,
        plan.index,
        plan.longest,
        LIKE_KEY[query.dtype],
        scores,
        ranked,
        place,
    )
    return FusedRanking(scores, Ranked(plan, ranked, place))

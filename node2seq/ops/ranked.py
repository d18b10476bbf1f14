"""A graph's sequences in a new order, as the fused backends keep them; the rest only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from node2seq.ops.selection import Ranking
from node2seq.ops.sequences import Rows, Sequences


@dataclass
class Ranked:
    """A graph's sequences in a new order."""

    plan: Any  # what the backend keeps with the graph; it has ``rows``
    index: Tensor  # [E] the source at each position
    place: Tensor  # [E] the position of each of the graph's own entries in its sequence

    @property
    def rows(self) -> Rows:
        """The shape of the sequences."""
        return self.plan.rows

    def order(self) -> Tensor:
        """The entry at each position, [E], int64."""
        rows = self.rows
        order = torch.empty(rows.num_entries, dtype=torch.int64, device=self.place.device)
        order[rows.ptr[rows.target] + self.place] = torch.arange(rows.num_entries, device=order.device)
        return order


class LazyRanking:
    """A :class:`node2seq.ops.Ranking` of local neighbours that works out its three tensors when asked.

    Args:
        sequences: What the backend's convolutions read.
        ranked (callable): Gives the sequences in their new order.
        scores (callable): Gives the score of each of the graph's own entries, [E].
    """

    def __init__(self, sequences: Any, ranked: Callable[[], Ranked], scores: Callable[[], Tensor]) -> None:
        self._sequences = sequences
        self._ranked = ranked
        self._scores = scores

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.node, self.score, self.entry))

    @cached_property
    def node(self) -> Tensor:
        """The source node at each position, [E]."""
        return self._ranked().index.long()

    @cached_property
    def score(self) -> Tensor:
        """Its score, [E]."""
        return self._scores()[self.entry]

    @cached_property
    def entry(self) -> Tensor:
        """Its entry among the graph's own, [E]."""
        return self._ranked().order()

    def reorder(self, order: Tensor) -> Ranking:
        """The same in another order within the rows."""
        return Ranking(*self).reorder(order)

    def ranked(self, _sequences: Sequences, _hops: int) -> Any:
        """The sequences in this order, as the backend's convolutions read them."""
        return self._sequences

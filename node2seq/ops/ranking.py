"""Which source stands at each position of each target's sequence: one class for every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq.ops.sequences import Rows, Sequences


class Positions(NamedTuple):
    """What stands at each position of the ranked sequences, all [E]."""

    node: Tensor
    """The source node."""
    score: Tensor
    """Its score."""
    entry: Tensor
    """Its entry among the graph's own, or −1 for a non-local node."""

    def reorder(self, order: Tensor) -> Positions:
        """The same in another order within the rows: position e holds what stands at ``order[e]``."""
        return Positions(*(values[order] for values in self))


@dataclass
class Layout:
    """Sequences as compiled loops and kernels read them."""

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


class Root(NamedTuple):
    """What is added for each node's own features: equation 7."""

    weight: Tensor  # [D, C], or those of R runs, [R, D, C]
    bias: Tensor | None  # [D] or [R, D]


class Convolution(NamedTuple):
    """What follows a ranking. A backend may do a part of it while it has the neighbours' rows at hand."""

    kernel_size: int
    readout: str
    with_root: bool = False  # whether the own features are added in the same step
    dtype: torch.dtype = torch.float32  # of what is multiplied and gathered, where a backend can choose


@dataclass
class Ranking:
    """The order of each target's sources.

    It holds what the convolutions of its backend read. What stands at each position is worked out when a
    trace or an explainer asks for it.
    """

    sequences: (
        Sequences  # the graph's own, whose lengths these have; the disjoint union of R copies for R runs
    )
    layout: Any  # the sources in their order, in the form that the backend's convolutions read
    find: Callable[[], Positions]
    backend: Any = None
    _positions: Positions | None = None

    @classmethod
    def given(cls, sequences: Sequences, backend: Any) -> Ranking:
        """Sequences that stand in their order already."""

        def unknown() -> Positions:
            raise AssertionError("an order that is given has no scores")

        return cls(sequences, sequences, unknown, backend)

    @property
    def positions(self) -> Positions:
        """The node, the score and the entry at each position."""
        if self._positions is None:
            self._positions = self.find()
        return self._positions

    @property
    def node(self) -> Tensor:
        """The source node at each position, [E]."""
        return self.positions.node

    @property
    def score(self) -> Tensor:
        """Its score, [E]."""
        return self.positions.score

    @property
    def entry(self) -> Tensor:
        """Its entry among the graph's own, or −1 for a non-local node, [E]."""
        return self.positions.entry

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.positions)


def rank_parallel(backend: Any, score: Tensor, precedence: Tensor, sequences: Sequences) -> Tensor:
    """The order of entries among which are parallel edges: where these tie, they stay as they stand.

    Args:
        backend: What holds the ``rank`` to use, which sorts what is distinct.
        score (torch.Tensor): The score of each entry, [E].
        precedence (torch.Tensor): Who goes first where scores tie, for each entry, [E].
        sequences (Sequences): Their rows.
    """
    order = precedence.argsort(stable=True)
    distinct = torch.empty_like(order)
    distinct[order] = torch.arange(order.numel(), device=order.device)
    return backend.rank(score, distinct, sequences.positions)

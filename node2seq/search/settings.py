"""How much is searched: what the settings of every search have in common."""

from __future__ import annotations

from dataclasses import dataclass

from node2seq.errors import Node2SeqError
from node2seq.search.seeds import check_seeds


@dataclass(frozen=True)
class SearchSettings:
    """The size of a search.

    Args:
        trials: Different settings in all.
        seeds: The splits of the search.
        final_seeds: Further splits for the finalists, on which nothing was chosen before.
        finalists: How many trials are trained on those.
        seed: Of the draws.
    """

    trials: int = 256
    seeds: tuple[int, ...] = tuple(range(100, 105))
    final_seeds: tuple[int, ...] = tuple(range(200, 210))
    finalists: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        check_seeds(self.seeds + self.final_seeds)
        self.check_at_least(trials=2, finalists=1)

    @property
    def first_seeds(self) -> tuple[int, ...]:
        """The splits that every trial is trained on."""
        return self.seeds

    def check_at_least(self, **lowest: int) -> None:
        """Refuse numbers that are too low."""
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise Node2SeqError(f"{name}={getattr(self, name)}", "too few", f"Give {least} or more")

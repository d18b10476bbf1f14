"""How much is searched: what every plan has, and the round that ends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from node2seq.errors import Node2SeqError
from node2seq.search.evaluate import Evaluator, Say
from node2seq.search.seeds import check_seeds
from node2seq.search.space import Settings, Space
from node2seq.search.trials import Trial, best_of


@dataclass(frozen=True)
class Plan:
    """What every search has.

    Args:
        trials: Different settings in all.
        seeds: The splits of the search.
        final_seeds: Further splits for the best at the end, which chose nobody before.
        finalists: How many are trained on those.
        seed: Of the draws.
    """

    trials: int = 256
    seeds: tuple[int, ...] = tuple(range(100, 105))
    final_seeds: tuple[int, ...] = tuple(range(200, 210))
    finalists: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        check_seeds(self.seeds + self.final_seeds)
        self.at_least(trials=2, finalists=1)

    @property
    def first_seeds(self) -> tuple[int, ...]:
        """The splits that everybody is trained on."""
        return self.seeds

    def search(self, space: Space, start: Settings, evaluator: Evaluator, say: Say) -> Trial:
        """Carry the plan out and return the best trial.

        Args:
            space: What may be chosen.
            start: The settings to begin with, always among the tried.
            evaluator: Trains and keeps what comes out.
            say: Told what goes on.
        """
        raise NotImplementedError

    def final(self, pool: Iterable[Trial], evaluator: Evaluator, say: Say) -> Trial:
        """Train the best on further splits, and return the one of highest mean over all of its splits."""
        finalists = best_of(pool, self.seeds)[: self.finalists]
        say(f"final: the best {len(finalists)} on {len(self.final_seeds)} further splits")
        evaluator.train(finalists, self.final_seeds)
        return best_of(finalists)[0]

    def at_least(self, **lowest: int) -> None:
        """Refuse numbers that are too low."""
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise Node2SeqError(f"{name}={getattr(self, name)}", "too few", f"Give {least} or more")

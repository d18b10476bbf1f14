"""How much is searched, and on which seeds: never those of a reported figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from node2seq.errors import Node2SeqError
from node2seq.options import check_rules

#: Reported rows use the seeds below, and no search trains on their splits. That keeps the test nodes of a
#: fixed split out of it; those of a random split are training and validation nodes of other seeds.
FIRST_SEED = 100

#: The seeds of the rows that the protocol reports (see :mod:`node2seq.experiments.declaration`). No search
#: trains on their splits.
RESERVED_SEEDS = range(1000, 1020)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read ``100-104`` or ``100,103``."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise Node2SeqError(f"seeds {text!r}", "not whole numbers", "Write 100-104 or 100,103") from error
    if not seeds:  # none would stand for those that are taken by default
        raise Node2SeqError(f"seeds {text!r}", "there is no seed among them", "Write 100-104 or 100,103")
    return tuple(seeds)


def format_seeds(seeds: Iterable[int]) -> str:
    """Write seeds as :func:`parse_seeds` reads them."""
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and spans[-1][-1] == seed - 1:
            spans[-1] = [spans[-1][0], seed]
        else:
            spans.append([seed])
    return ",".join("-".join(map(str, span)) for span in spans)


def check_seeds(seeds: Iterable[int]) -> None:
    """Refuse the seeds of the reported rows, and the same one twice."""
    seeds = list(seeds)
    low = next((seed for seed in seeds if seed < FIRST_SEED), None)
    reserved = next((seed for seed in seeds if seed in RESERVED_SEEDS), None)
    first, last = RESERVED_SEEDS[0], RESERVED_SEEDS[-1]
    check_rules(
        (
            low is None,
            f"seed {low}",
            f"seeds below {FIRST_SEED} are kept for reported figures, whose splits no search may see",
            f"Give seeds from {FIRST_SEED} up",
        ),
        (
            reserved is None,
            f"seed {reserved}",
            f"seeds {first}–{last} are reserved for the rows that the protocol reports",
            f"Give seeds from {FIRST_SEED} to {first - 1}, or above {last}",
        ),
        (
            0 < len(seeds) == len(set(seeds)),
            f"seeds {seeds}",
            "each has to be there once",
            "Write 100-104 or 100,103",
        ),
    )


@dataclass(frozen=True)
class SearchSettings:
    """The size of a search.

    Args:
        trials: Different settings in all.
        seeds: The splits of the search.
        final_seeds: Further splits for the finalists, on which nothing was chosen before.
        finalists: How many trials are trained on those, besides the settings that the search starts from.
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

    @property
    def trainings(self) -> int:
        """How many there are at most."""
        return self.trials * len(self.seeds) + (self.finalists + 1) * len(self.final_seeds)

    @classmethod
    def in_proportion(cls, trials: int, **given: Any) -> Self:
        """A search of a number of trials, with numbers of splits and finalists in proportion to it.

        Args:
            trials: Different settings in all.
            given: Other settings; they override the proportions.
        """
        splits = min(5, max(2, 1 + trials // 16))
        further = splits if trials < 16 else 2 * splits  # a short search ends within minutes
        proportions: dict[str, Any] = {
            "seeds": tuple(range(FIRST_SEED, FIRST_SEED + splits)),
            "final_seeds": tuple(range(2 * FIRST_SEED, 2 * FIRST_SEED + further)),
            "finalists": min(8, max(1, trials // 8)),
        }
        return cls(trials=trials, **proportions | given)

    def check_at_least(self, **lowest: int) -> None:
        """Raise an error for numbers that are too low."""
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise Node2SeqError(f"{name}={getattr(self, name)}", "too few", f"Give {least} or more")

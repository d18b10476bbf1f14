"""Rows → means, spreads and paired differences."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from node2seq.experiments.cells import Cell
from node2seq.experiments.rows import ResultRow

#: Where a mean can stand to the paper's; the error is that of the mean over our runs.
VERDICTS = ("at or above", "within one standard error", "below")

_RESAMPLES = 10_000
_BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class Sample:
    """The runs of one cell: test accuracy in percent by seed."""

    tests: Mapping[int, float]

    @property
    def n(self) -> int:
        """How many runs there are."""
        return len(self.tests)

    @property
    def mean(self) -> float:
        """Over all runs, none dropped."""
        return statistics.fmean(self.tests.values())

    @property
    def sd(self) -> float | None:
        """The sample standard deviation."""
        return statistics.stdev(self.tests.values()) if self.n > 1 else None

    def against(self, printed: float) -> str:
        """Where the mean stands to a printed one, as printed: to one decimal; one of :data:`VERDICTS`."""
        mean = round(self.mean, 1)
        error = 0.0 if self.sd is None else self.sd / self.n**0.5
        return VERDICTS[0 if mean >= printed else 1 if mean + error >= printed else 2]


@dataclass(frozen=True)
class Difference:
    """The mean difference of two cells over the runs that they share, and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def side(self) -> int:
        """1 if the interval lies above zero, −1 if below, 0 if it holds zero; as printed, to one decimal."""
        return (round(self.low, 1) > 0) - (round(self.high, 1) < 0)


def samples_of(rows: Iterable[ResultRow], figure: str = "test") -> dict[Cell, Sample]:
    """The runs by cell; ``figure`` names what of each row to take, and rows without it are left out."""
    tests: dict[Cell, dict[int, float]] = {}
    for row in sorted(rows, key=lambda row: row.key):
        if (accuracy := getattr(row, figure)) is not None:
            tests.setdefault(row.key.cell, {})[row.key.seed] = 100 * accuracy
    return {cell: Sample(by_seed) for cell, by_seed in tests.items()}


def paired_difference(first: Sample, second: Sample) -> Difference | None:
    """First minus second, seed by seed: the same seed is the same split. None with fewer than two pairs."""
    seeds = sorted(set(first.tests) & set(second.tests))
    if len(seeds) < 2:
        return None
    pairs = np.array([first.tests[seed] - second.tests[seed] for seed in seeds])
    # The generator's raw words are specified bit for bit; numpy's own choices may change with its version.
    words = np.random.Philox(key=_BOOTSTRAP_SEED).random_raw(_RESAMPLES * len(seeds))
    drawn = pairs[(words % np.uint64(len(seeds))).astype(np.int64)].reshape(_RESAMPLES, len(seeds))
    low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
    return Difference(float(pairs.mean()), float(low), float(high), len(seeds))


@dataclass(frozen=True)
class Cost:
    """What a set of rows took on one kind of device."""

    device: str
    runs: int
    epochs: int
    training_seconds: float
    wall_seconds: float
    jobs: str
    together: str


def costs_of(rows: Sequence[ResultRow]) -> list[Cost]:
    """By device. The wall time of a call is when its last row came; calls are summed."""
    costs = []
    for device in sorted({row.device for row in rows}):
        own = [row for row in rows if row.device == device]
        last: dict[str, float] = {}
        for row in own:
            last[row.call] = max(row.at, last.get(row.call, 0.0))
        jobs = sorted({row.jobs for row in own})
        together = sorted({1 if row.together is None else len(row.together) for row in own})
        costs.append(
            Cost(
                device=device,
                runs=len(own),
                epochs=sum(row.epochs for row in own),
                training_seconds=sum(row.seconds for row in own),
                wall_seconds=sum(last.values()),
                jobs=", ".join(map(str, jobs)),
                together=", ".join(map(str, together)),
            )
        )
    return costs

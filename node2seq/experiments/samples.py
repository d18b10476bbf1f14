"""Rows → means, spreads, paired differences with their intervals, and what they took; numpy alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from node2seq.experiments.paper import Cell, grouped
from node2seq.experiments.rows import ResultRow, SearchRow
from node2seq.recipes import Recipe
from node2seq.search.trials import read_table

#: Where a mean can stand to the paper's; the error is that of the mean over our runs.
VERDICTS = ("at or above", "within one standard error", "below")
#: Of the intervals and the tests.
LEVEL = 0.05

_RESAMPLES = 10_000
_BOOTSTRAP_SEED = 0
# Of Gauss's rule on [−1, 1].
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(100)


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

    @property
    def margin(self) -> float:
        """Half the width of the 95 % t-interval of the mean; 0 for one run."""
        if self.sd is None:
            return 0.0
        return t_quantile(1 - LEVEL / 2, self.n - 1) * self.sd / math.sqrt(self.n)

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.sd is None else f" ± {self.sd:.1f}")

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


@dataclass(frozen=True)
class Paired(Difference):
    """The same with a 95 % t-interval; ``p`` is of the two-sided t-test against zero."""

    p: float

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return self.high - self.mean

    @property
    def side(self) -> int:
        """1 if the interval lies above zero, −1 if below, 0 if it holds zero."""
        return (self.low > 0) - (self.high < 0)


def samples_of(rows: Iterable[ResultRow], figure: str = "test") -> dict[Cell, Sample]:
    """The runs by cell; ``figure`` names what of each row to take, and rows without it are left out."""
    tests: dict[Cell, dict[int, float]] = {}
    for row in sorted(rows, key=lambda row: row.key):
        if (accuracy := getattr(row, figure)) is not None:
            tests.setdefault(row.key.cell, {})[row.key.seed] = 100 * accuracy
    return {cell: Sample(by_seed) for cell, by_seed in tests.items()}


def makings_of(rows: Iterable[ResultRow], retired: Iterable[ResultRow]) -> dict[Cell, list[Sample]]:
    """The test accuracies of every cell by the time they were made, the first time first.

    A new time begins with another recipe, or with a seed that was trained before: so a recipe that comes back
    counts again, and a series that several calls made counts once.

    Args:
        rows: The rows that count, in any order.
        retired: The rows that were replaced, in the order in which they were retired.
    """
    found: dict[Cell, list[dict[int, float]]] = {}
    latest: dict[Cell, Recipe] = {}
    for row in [*retired, *sorted(rows, key=lambda row: row.key)]:
        key, recipe = row.key, row.trained_with
        times = found.setdefault(key.cell, [])
        if not times or latest[key.cell] != recipe or key.seed in times[-1]:
            times.append({})
        latest[key.cell] = recipe
        times[-1][key.seed] = 100 * row.test
    return {cell: [Sample(tests) for tests in times] for cell, times in found.items()}


def _gaps(first: Sample | None, second: Sample | None) -> np.ndarray | None:
    """First minus second, seed by seed: the same seed is the same split. None with fewer than two pairs."""
    one, other = ({} if sample is None else sample.tests for sample in (first, second))
    found = [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
    return np.array(found) if len(found) > 1 else None


def paired_difference(first: Sample | None, second: Sample | None) -> Difference | None:
    """First minus second with a bootstrap interval; None with fewer than two pairs."""
    pairs = _gaps(first, second)
    if pairs is None:
        return None
    # The generator's raw words are specified bit for bit; numpy's own choices may change with its version.
    words = np.random.Philox(key=_BOOTSTRAP_SEED).random_raw(_RESAMPLES * pairs.size)
    drawn = pairs[(words % np.uint64(pairs.size)).astype(np.int64)].reshape(_RESAMPLES, pairs.size)
    low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
    return Difference(float(pairs.mean()), float(low), float(high), pairs.size)


def paired(first: Sample | None, second: Sample | None) -> Paired | None:
    """First minus second with a t-interval and a t-test; None with fewer than two pairs."""
    found = _gaps(first, second)
    if found is None:
        return None
    mean, free, error = float(found.mean()), found.size - 1, standard_error(found)
    if error == 0.0:  # every pair has the same difference
        return Paired(mean, mean, mean, found.size, p=float(mean == 0.0))
    margin = t_quantile(1 - LEVEL / 2, free) * error
    return Paired(mean, mean - margin, mean + margin, found.size, t_test(mean / error, free))


def signed(value: float) -> str:
    """A difference in points, to one decimal, with its sign."""
    text = f"{value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def difference_text(difference: Difference | None, note: str = "") -> str:
    """A difference with a note, and its interval below it."""
    if difference is None:
        return "–"
    interval = f"[{signed(difference.low)}, {signed(difference.high)}]"
    return f"{signed(difference.mean)}{note}\n{interval}"


def standard_error(values: np.ndarray) -> float:
    """Of the mean of several values."""
    return float(values.std(ddof=1)) / math.sqrt(values.size)


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p-values of a family of tests: below the level, the claim holds beside all others."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = highest
    return adjusted


def t_test(t: float, free: int) -> float:
    """The two-sided p-value of a t statistic with ``free`` degrees of freedom.

    With t = √free · tan θ the density is a power of the cosine, which Gauss's rule integrates up to rounding.
    """
    start = math.atan(abs(t) / math.sqrt(free))
    half = (math.pi / 2 - start) / 2
    tail = half * float(_WEIGHTS @ np.cos(start + half * (_POINTS + 1)) ** (free - 1))
    return tail * 2 * math.exp(math.lgamma((free + 1) / 2) - math.lgamma(free / 2)) / math.sqrt(math.pi)


def t_quantile(share: float, free: int) -> float:
    """The value that a t distribution stays below with probability ``share``, from one half up."""
    low, high = 0.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - t_test(middle, free) / 2 < share else (low, middle)
    return (low + high) / 2


class Cost(NamedTuple):
    """What a set of rows took on one kind of device."""

    device: str
    runs: int
    """How many trainings they are of."""
    epochs: int
    """Of all trainings."""
    training_seconds: float
    """Of all processes together."""
    wall_seconds: float
    """The wall time of a call is when its last row came; calls are summed."""
    jobs: str
    """How many processes the calls had, for rows of reported runs."""
    together: str
    """How many runs were one program, for rows of reported runs; one where rows do not say."""

    def cells(self) -> list[str]:
        """The device, trainings, epochs, seconds of all processes and wall time."""
        seconds = (f"{spent:.0f} s" for spent in (self.training_seconds, self.wall_seconds))
        return [self.device, f"{self.runs}", f"{self.epochs}", *seconds]


def costs_of(rows: Iterable[ResultRow | SearchRow]) -> list[Cost]:
    """By device."""
    found = []
    for device, own in sorted(grouped(rows, lambda row: row.device).items()):
        trained = [epochs for row in own for epochs in row.trained]
        seconds = sum(row.seconds for row in own)
        wall = sum(max(row.at for row in call) for call in grouped(own, lambda row: row.call).values())
        reported = [row for row in own if isinstance(row, ResultRow)]
        numbers = ({row.jobs for row in reported}, {len(row.together or [0]) for row in reported})
        jobs, together = (", ".join(map(str, sorted(each))) for each in numbers)
        found.append(Cost(device, len(trained), sum(trained), seconds, wall, jobs, together))
    return found


class Effort(NamedTuple):
    """How many settings were tried, and in how many trainings."""

    settings: int
    trainings: int


def efforts_of(table: Path) -> dict[Cell, Effort]:
    """Count the trials of each cell in a table of searches."""
    found: dict[Cell, Effort] = {}
    for about, *trials in read_table(table):
        cell = Cell(about["model"], about["column"], about["variant"])
        settings, trainings = found.get(cell, (0, 0))
        trainings += sum(trial["splits"] + trial.get("failed", 0) for trial in trials)
        found[cell] = Effort(settings + len(trials), trainings)
    return found

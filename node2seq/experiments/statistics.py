"""Paired t-tests with their intervals, and Holm's correction for the number of claims; numpy alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from node2seq.experiments.samples import Sample

LEVEL = 0.05
# The continued fraction of the incomplete beta function converges long before.
_TERMS = 300


@dataclass(frozen=True)
class Paired:
    """The mean difference of two samples over the seeds that they share.

    Args:
        mean: In points.
        reach: Half the width of its 95 % t-interval.
        p: Of the two-sided t-test against zero.
        n: How many pairs.
    """

    mean: float
    reach: float
    p: float
    n: int

    @property
    def holds_zero(self) -> bool:
        """Whether zero is in the interval."""
        return abs(self.mean) <= self.reach


def paired(first: Sample, second: Sample) -> Paired | None:
    """First minus second, seed by seed: the same seed is the same split. None with fewer than two pairs."""
    seeds = sorted(set(first.tests) & set(second.tests))
    if len(seeds) < 2:
        return None
    gaps = np.array([first.tests[seed] - second.tests[seed] for seed in seeds])
    mean, error = float(gaps.mean()), float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    free = len(gaps) - 1
    if error == 0.0:  # every pair has the same difference
        return Paired(mean, 0.0, 1.0 if mean == 0.0 else 0.0, len(gaps))
    return Paired(mean, t_quantile(1 - LEVEL / 2, free) * error, t_test(mean / error, free), len(gaps))


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p-values of a family of tests: below the level, the claim holds beside all others."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = highest
    return adjusted


def t_test(t: float, free: int) -> float:
    """The two-sided p-value of a t statistic with ``free`` degrees of freedom."""
    return _incomplete_beta(free / (free + t * t), free / 2, 0.5)


def t_quantile(share: float, free: int) -> float:
    """The value that a t distribution stays below with probability ``share``, from one half up."""
    low, high = 0.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - t_test(middle, free) / 2 < share else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1.0 / (1.0 + term * d), 1.0 + term / c
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return front * fraction / a

"""Paired differences and their intervals."""

from __future__ import annotations

import statistics

from node2seq.experiments.samples import Difference, Sample, paired_difference


def test_paired_differences() -> None:
    first = Sample({seed: 80.0 + seed for seed in range(20)})
    second = Sample({seed: 79.0 + seed for seed in range(5, 25)})
    found = paired_difference(first, second)
    assert found is not None
    assert (found.mean, found.low, found.high, found.n) == (1.0, 1.0, 1.0, 15)
    assert paired_difference(first, Sample({0: 1.0})) is None
    noisy = Sample({seed: 80.0 + (seed * 7919 % 13) for seed in range(20)})
    found = paired_difference(noisy, first)
    assert found is not None
    assert found.low < found.mean < found.high
    spread = statistics.stdev(noisy.tests[s] - first.tests[s] for s in range(20)) / 20**0.5
    assert 3.0 * spread < found.high - found.low < 4.6 * spread


def test_an_interval_is_judged_as_it_is_printed() -> None:
    assert [Difference(0.4, low, 0.7, 20).side for low in (0.04, 0.06, -0.2)] == [0, 1, 0]
    assert [Difference(-0.4, -0.7, high, 20).side for high in (-0.04, -0.06, 0.2)] == [0, -1, 0]

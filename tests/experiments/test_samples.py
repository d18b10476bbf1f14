"""Paired differences and their intervals, t-tests and Holm's correction, and what the searches took."""

from __future__ import annotations

import statistics

import pytest

from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import Cell
from node2seq.experiments.samples import (
    Difference,
    Effort,
    Sample,
    efforts_of,
    holm,
    paired,
    paired_difference,
    t_quantile,
    t_test,
)
from node2seq.storage import JsonLines


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


@pytest.mark.parametrize(("free", "value"), [(1, 12.7062), (2, 4.30265), (19, 2.09302), (120, 1.97993)])
def test_quantiles_are_those_of_the_tables(free, value):
    assert t_quantile(0.975, free) == pytest.approx(value, rel=1e-5)
    assert t_test(value, free) == pytest.approx(0.05, rel=1e-4)
    assert t_test(-value, free) == pytest.approx(0.05, rel=1e-4)


def test_a_paired_difference_has_its_interval():
    first, second = Sample({1: 3.0, 2: 5.0, 3: 7.0, 9: 0.0}), Sample({1: 2.0, 2: 3.0, 3: 4.0})
    found = paired(first, second)
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)
    assert found.margin == pytest.approx(4.30265 / 3**0.5, rel=1e-5)  # differences 1, 2, 3
    assert found.p == pytest.approx(0.0741799, rel=1e-4)
    assert found.side == 0
    assert paired(first, Sample({1: 0.0})) is None


def test_equal_samples_differ_by_nothing():
    same = Sample({1: 3.0, 2: 5.0})
    found = paired(same, same)
    assert found is not None
    assert (found.mean, found.p, found.side) == (0.0, 1.0, 0)
    lower = paired(same, Sample({1: 2.0, 2: 4.0}))
    assert lower is not None
    assert (lower.p, lower.side) == (0.0, 1)


def test_holm_weighs_the_smallest_by_all():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_counts_settings_and_trainings_of_all_rounds(tmp_path):
    table = JsonLines(tmp_path / "trials.jsonl")
    assert efforts_of(table.path) == {}
    search = {"variant": "paper", "model": "gcn", "column": "karate"}
    first = [{"trial": 0, "splits": 3}, {"trial": 1, "splits": 2}, {"trial": 2, "splits": 2}]
    second = [{"trial": 0, "splits": 2}, {"trial": 1, "splits": 3}]
    other = [{**search, "variant": "plus"}, {"trial": 0, "splits": 9}]
    table.append([{**search, "round": "first"}, *first, *other, {**search, "round": "second"}, *second])
    assert efforts_of(table.path) == {
        Cell("gcn", "karate"): Effort(5, 12),
        Cell("gcn", "karate", "plus"): Effort(1, 9),
    }
    table.replace(first)
    with pytest.raises(Node2SeqError, match="before its search"):
        efforts_of(table.path)

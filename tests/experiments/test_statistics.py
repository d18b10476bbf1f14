"""t-intervals and Holm's correction against values from tables."""

from __future__ import annotations

import pytest

from node2seq.experiments.samples import Sample
from node2seq.experiments.statistics import holm, paired, t_quantile, t_test


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
    assert found.reach == pytest.approx(4.30265 / 3**0.5, rel=1e-5)  # differences 1, 2, 3
    assert found.p == pytest.approx(0.0741799, rel=1e-4)
    assert found.holds_zero
    assert paired(first, Sample({1: 0.0})) is None


def test_equal_samples_differ_by_nothing():
    same = Sample({1: 3.0, 2: 5.0})
    found = paired(same, same)
    assert found is not None
    assert (found.mean, found.p, found.holds_zero) == (0.0, 1.0, True)
    lower = paired(same, Sample({1: 2.0, 2: 4.0}))
    assert lower is not None
    assert (lower.p, lower.holds_zero) == (0.0, False)


def test_holm_weighs_the_smallest_by_all():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []

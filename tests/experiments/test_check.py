"""What a check of rows allows, and that it notices rows of another model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from result_rows import result_row

from node2seq.environment import same_code, source_commit
from node2seq.experiments.check import (
    STATED,
    Comparison,
    Variation,
    difference,
    foreign,
    judge,
    repeated,
    variation_of,
)
from node2seq.experiments.paper import Cell
from node2seq.experiments.rows import ResultRow, RowStore

ROOT = Path(__file__).parents[2]
ROW = result_row(Cell("gcn", "texas"), 0, val=0.5, test=0.5, epoch=100)
CLOSE = replace(ROW, val=0.503, test=0.51, epoch=90)
APART = replace(ROW, val=0.52)


@pytest.fixture(scope="module")
def committed() -> RowStore:
    return RowStore(ROOT / "results")


@pytest.fixture(scope="module")
def variation(committed: RowStore) -> Variation:
    return variation_of([*committed.rows.values(), *committed.retired(), *committed.made_twice()])


def holds(*again: ResultRow, same_bits: bool = False) -> bool:
    return judge([Comparison(ROW, one, same_bits) for one in again], STATED)


@pytest.mark.parametrize("other", [{"val": 0.501}, {"test": 0.501}, {"epoch": 101}])
def test_all_three_have_to_be_equal_at_the_commit_and_machine_type_of_the_row(
    other: dict[str, float],
) -> None:
    assert holds(ROW, ROW, same_bits=True)
    assert not holds(ROW, replace(ROW, **other), same_bits=True)


@pytest.mark.parametrize("other", [{"val": 0.52}, {"test": 0.53}, {"epoch": 30}])
def test_elsewhere_each_of_the_three_has_a_bound(other: dict[str, float]) -> None:
    assert holds(CLOSE)
    assert not holds(replace(ROW, **other))


def test_several_rows_are_judged_together() -> None:
    needed = STATED.needed(5)
    assert 2 <= needed <= 4
    assert holds(*[CLOSE] * needed, *[APART] * (5 - needed))
    assert not holds(*[CLOSE] * (needed - 1), *[APART] * (6 - needed))
    assert not holds(*[CLOSE] * 4, replace(ROW, test=0.6))


def test_bounds_come_from_repeated_trainings() -> None:
    def twice(seed: int) -> Sequence[ResultRow]:
        row = result_row(Cell("gcn", "texas"), seed, commit="a", val=0.5, test=0.5, epoch=100)
        return row, replace(
            row, commit="b", val=0.5 + seed / 1000, test=0.5 - seed / 500, epoch=100 - seed // 2
        )

    rows = [row for seed in range(100) for row in twice(seed)]
    found = variation_of(rows)
    assert found.close == pytest.approx((0.094, 0.188, 0.47))
    assert found.widest == pytest.approx((0.099, 0.198, 1))
    assert (found.repeats, found.close_share) == (100, 0.95)
    assert variation_of(rows[2:]) is STATED
    # The same code on the same machine type tells nothing of others.
    assert not repeated(replace(row, commit="a") for row in rows)


def test_right_rows_of_the_committed_ones_pass_and_those_of_other_models_do_not(
    committed: RowStore, variation: Variation
) -> None:
    others = foreign(committed.rows.values())
    assert len(others) >= 10800
    # Within 3 points or 4 nodes of test accuracy, 77 % of them passed.
    assert variation.pass_rate(others, 1) < 0.12
    assert variation.pass_rate(others, 5) < 0.04
    assert variation.pass_rate(others, 10) < 0.001
    assert variation.right_rate(1) > 0.65
    assert all(variation.right_rate(count) > 0.95 for count in (3, 5, 10, 20))


def test_the_stated_bounds_are_those_of_the_committed_rows(variation: Variation) -> None:
    assert variation.repeats >= 300
    assert STATED.close == pytest.approx(variation.close, rel=0.1)
    assert STATED.widest == pytest.approx(variation.widest, rel=0.1)
    assert STATED.close_share == pytest.approx(variation.close_share, abs=0.05)


def test_every_repeat_is_of_a_row_and_made_elsewhere(committed: RowStore) -> None:
    rows = committed.made_twice()
    assert len(rows) >= 20
    for row in rows:
        first = committed.rows[row.key]
        assert (first.trained_with, first.commit == row.commit) == (row.trained_with, False)
        assert difference(first, row).within(STATED.widest)


def test_code_is_the_same_until_a_file_changes() -> None:
    commit = source_commit()
    if commit is None:
        pytest.skip("not a checkout")
    assert same_code(commit.removesuffix("+"), ["py.typed"])
    assert not same_code("0" * 40, ["py.typed"])
    assert not same_code(None, ["py.typed"])

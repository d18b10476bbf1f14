"""Columns of text read as numbers or categories, and numbers brought to one scale."""

import numpy as np
import pytest

from node2seq.data.categories import odd_categories
from node2seq.data.encoding import plain_numbers, scale_of, standardize
from node2seq.data.labels import choose_task


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 1, 0], (0, 1)),  # yes or no
        ([1, 1, 1], (0, 1)),
        ([0, 0, 0, 8, -2], (0, 8)),  # mostly zeros stay zeros
        ([30, 50, 40], (40, np.std([30, 50, 40]))),
        ([7.1, 7.1, 7.1], (7.1, 1)),  # a constant becomes zero, not noise
        ([], (0, 1)),
    ],
)
def test_each_kind_of_column_has_its_scale(values, expected):
    assert scale_of(np.array(values, dtype=np.float32)) == pytest.approx(expected, rel=1e-6)


def test_a_matrix_is_scaled_column_by_column():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(45, 12, 100), rng.normal(5e4, 3e4, 100), rng.integers(0, 2, 100)], axis=1)
    scaled = standardize(x)
    assert scaled.dtype == np.float32
    assert np.abs(scaled[:, :2].mean(0)).max() < 1e-5
    assert scaled[:, :2].std(0) == pytest.approx([1, 1], abs=1e-5)
    assert (scaled[:, 2] == x[:, 2]).all()
    assert standardize(x[:, :0]).shape == (100, 0)


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        ([f"{i / 7:.3f}" for i in range(60)], "regression"),  # fractions
        (["0.5", "1.5", "2.5"] * 20, "classification"),  # few of them
        ([str(18 + i % 60) for i in range(300)], "regression"),  # whole numbers that do not start at 0 or 1
        ([str(i % 70) for i in range(300)], "classification"),  # class numbers, several nodes each
        ([str(i) for i in range(300)], "regression"),  # each once
        ([str(i % 40) for i in range(80)], "classification"),  # not many
        (["1000", "2000", "", "NA"] + [str(7 * i) for i in range(60)], "regression"),  # missing cells
        ([f"c{i}" for i in range(60)], "classification"),  # no numbers
        (["inf"] + [f"{i / 7:.3f}" for i in range(60)], "regression"),  # the reader refuses the infinite one
        (["lots"] + [f"{i / 7:.3f}" for i in range(60)], "regression"),  # and the word
        (["7A"] + [str(100 + i) for i in range(60)], "classification"),  # codes
    ],
)
def test_a_label_column_of_many_numbers_is_one_of_numbers(labels: list[str], task: str):
    import polars

    notes: list[str] = []
    assert choose_task(polars.Series("price", labels), "nodes.csv", notes) == task
    assert len(notes) == (task == "regression")


@pytest.mark.parametrize(
    ("cells", "plain"),
    [
        (["0,125", "0,250", "1,500"], ["0.125", "0.250", "1.500"]),  # no group of thousands starts with 0
        (["1,000", "2,500"], ["1000", "2500"]),
        (["1.234", "0.567", "12,5"], ["1.234", "0.567", "12,5"]),  # points precede decimals: a slip
        (["1.5", "12,5"], ["1.5", "12,5"]),
        (["1.234", "12,5"], ["1234", "12.5"]),
    ],
)
def test_a_comma_or_a_point_is_read_as_the_other_cells_say(cells: list[str], plain: list[str]):
    import polars

    assert plain_numbers(polars.Series("price", cells)).to_list() == plain


@pytest.mark.parametrize(
    "form",
    ["{:02}.03.2024", "3/{}/24 10:30 PM", "{} Mar 2024", "{}.5 %", "${},000.00", "{},50 EUR", "({}.5)"],
)
def test_categories_that_look_like_dates_or_amounts_are_named(form: str):
    cells = [form.format(day) for day in range(1, 25)]
    (note,) = odd_categories("when", cells)
    assert "column 'when' is read as 24 categories" in note
    assert repr(cells[0]) in note
    assert not odd_categories("when", cells[:9])
    assert not odd_categories("when", [f"{cell} x" for cell in cells])

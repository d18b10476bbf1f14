"""Columns of dates, timestamps and numbers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest

from node2seq import Node2SeqError
from node2seq.data.times import holds_dates, on_one_scale, read_times


def read(*cells: object) -> np.ndarray:
    return read_times(pl.Series("when", list(cells), strict=False), "edges.csv").values


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-31",
        "2024-02-29",
        "1969-12-31",
        "2024-03-31T17:05",
        "2024-03-31 17:05:09",
        "2024-03-31T17:05:09.250",
        "2024-03-31T17:05:09.123456Z",
        "2024-03-31 17:05:09+02:00",
        "2024-03-31T17:05:09-03:30",
        "2024-03-31T17:05:09-0030",
        "2024-03-31T17:05:09+14",
    ],
)
def test_dates_and_timestamps_are_seconds_since_1970(text: str) -> None:
    expected = datetime.fromisoformat(text)
    expected = expected if expected.tzinfo else expected.replace(tzinfo=UTC)
    assert read(text, None).tolist()[0] == pytest.approx(expected.timestamp(), abs=1e-6)


def test_many_timestamps_are_what_python_reads() -> None:
    random = np.random.default_rng(0)
    times = [
        datetime.fromtimestamp(float(second), tz=timezone(timedelta(minutes=int(minutes))))
        for second, minutes in zip(
            random.uniform(-2e9, 4e9, 500), random.integers(-720, 840, 500), strict=True
        )
    ]
    found = read(*[each.isoformat() for each in times])
    np.testing.assert_allclose(found, [each.timestamp() for each in times], rtol=0, atol=1e-6)


def test_a_fraction_of_a_second_is_kept() -> None:
    assert read("2024-03-31T17:05:09.25", "2024-03-31T17:05:09").tolist() == [1711904709.25, 1711904709.0]


def test_numbers_stay_what_they_are() -> None:
    assert read("1711904709", "1711904709123", "-3.5", "1e3").tolist() == [
        1711904709,
        1711904709123,
        -3.5,
        1e3,
    ]
    assert read(2019, 2020).tolist() == [2019, 2020]
    assert read_times(pl.Series("when", ["1", "2"]), "t").kind == "number"


def test_dates_as_data_frames_hold_them() -> None:
    for cells in (
        [date(2024, 3, 31), None],
        [datetime(2024, 3, 31), None],
        pl.Series([datetime(2024, 3, 31), None])
        .dt.replace_time_zone("Europe/Berlin")
        .dt.convert_time_zone("UTC"),
        pl.Series([datetime(2024, 3, 31), None]).cast(pl.Datetime("ms")),
    ):
        column = pl.Series("when", cells)
        found = read_times(column, "t")
        hour = 3600.0 if column.dtype == pl.Datetime("us", "UTC") else 0.0
        assert found.kind == "date"
        assert found.values[0] == 1711843200.0 - hour
        assert found.missing.tolist() == [False, True]
        assert holds_dates(column)


def test_missing_cells_are_counted() -> None:
    cells = pl.Series("when", ["2024-03-31", " ", "NA", None, "nan"])
    assert read_times(cells, "edges.csv").missing.tolist() == [False, True, True, True, True]
    cure = "Complete the rows, or remove them"
    message = f"edges.csv: column 'when': 4 times are missing, the first in row 2. {cure}."
    with pytest.raises(Node2SeqError) as error:
        read_times(cells, "edges.csv", complete=True)
    assert str(error.value) == message
    assert read_times(pl.Series([1.0]), "t", complete=True).values.tolist() == [1.0]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (["2024-03-31", "31.03.2024"], "'31.03.2024' in row 2 is neither a date nor a number"),
        (["2024-03-31", "2024-02-30"], "'2024-02-30' in row 2 is neither"),
        (["2024-13-01"], "'2024-13-01' in row 1 is neither"),
        (["2024-03-31 24:00"], "'2024-03-31 24:00' in row 1 is neither"),
        (["2024-03-31T10:61"], "in row 1 is neither"),
        (["2024-03-31T10:00 CET"], "in row 1 is neither"),
        (["2024-03-31+02:00"], "in row 1 is neither"),
        (["yesterday", "5"], "'yesterday' in row 1 is neither"),
        (["2024-03-31", "2024-04-01", "12"], "'12' in row 3 is a number, but other cells are dates"),
        (["7", "2024-03-31", "12"], "'2024-03-31' in row 2 is a date, but other cells are numbers"),
        (["1", "inf"], "inf in row 2 is infinite"),
        ([1.0, float("-inf")], "-inf in row 2 is infinite"),
        (["1", "1e999"], "1e999 in row 2 is infinite"),
        ([True, False], "neither a date nor a number"),
    ],
)
def test_a_cell_that_is_no_time_is_named(cells: list, reason: str) -> None:
    with pytest.raises(Node2SeqError, match=r"^edges.csv: column 'when': ") as error:
        read(*cells) if not isinstance(cells[0], bool) else read_times(pl.Series("when", cells), "edges.csv")
    assert reason in str(error.value)


def test_the_kind_of_training_is_kept() -> None:
    numbers = pl.Series("when", ["1", "2"])
    with pytest.raises(Node2SeqError, match=r"it holds numbers\. Give dates, as in training"):
        read_times(numbers, "t", "date")
    assert read_times(numbers, "t", "number").kind == "number"
    assert read_times(pl.Series("when", [None, None]), "t", "date").missing.all()


def test_zones_on_some_timestamps_only_are_noted() -> None:
    mixed = read_times(pl.Series("when", ["2024-03-31T10:00Z", "2024-03-31T10:00", "2024-03-31"]), "t")
    assert mixed.notes == ["column 'when': 1 of 2 timestamps have no time zone; they count as UTC"]
    assert mixed.values[0] == mixed.values[1]
    for cells in (["2024-03-31T10:00Z", "2024-03-31T11:00+01:00"], ["2024-03-31T10:00", "2024-03-31"]):
        assert not read_times(pl.Series("when", cells), "t").notes


def test_which_columns_hold_dates() -> None:
    assert holds_dates(pl.Series(["2024-03-31", "", "soon"]))
    assert not holds_dates(pl.Series(["soon", "later", "2024-03-31"]))
    assert not holds_dates(pl.Series(["20240331", "5"]))
    assert not holds_dates(pl.Series([1, 2]))
    assert not holds_dates(pl.Series(["", None]))


def test_two_columns_on_one_scale() -> None:
    def times(*cells: str):
        return read_times(pl.Series("when", list(cells)), "t")

    def pair(one, other):
        found = on_one_scale(one, other)
        assert found is not None
        return [values.tolist() for values in found]

    day = times("2024-03-31")
    assert pair(day, times("1711843200")) == [[1711843200.0]] * 2
    assert pair(times("1711843200000"), day) == [[1711843200.0]] * 2
    assert pair(times("1711843200"), times("1711843200500")) == [[1711843200.0], [1711843200.5]]
    assert pair(times("2019"), times("2020")) == [[2019.0], [2020.0]]
    assert pair(times("2019"), times("1711843200")) == [[2019.0], [1711843200.0]]
    assert on_one_scale(day, times("2019")) is None
    assert on_one_scale(times("2019"), day) is None

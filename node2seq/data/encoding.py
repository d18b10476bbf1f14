"""The columns of a nodes table → features.

The encoding of the features is stored and reused for new graphs. It is a list of JSON-ready dicts, one for
each column, in order:

- ``{"kind": "number", "name": …, "fill": …}``: one feature; ``fill`` replaces missing cells (None: an error).
  With ``shift`` and ``scale`` the shift is subtracted, and the rest is divided by the scale. With
  ``"decimal": ","`` a comma precedes the decimals, as in 3,14. With ``"unit": "$"`` that sign stands before
  or behind every number.
- ``{"kind": "time", "name": …, "fill": …, "shift": …, "scale": …}``: a date or timestamp in seconds since
  1970, scaled as a number is. With ``"first": "day"`` dates are written as 31.03.2024 or 31/03/2024.
- ``{"kind": "category", "name": …, "categories": […], "fill": …}``: one-hot. A missing cell is all
  zero if ``fill`` is set, otherwise an error. An unknown category is all zero and gets a note in the report.
- ``{"kind": "block", "name": "f", "count": 1433}``: the number columns f0 … f1432.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from node2seq.data.categories import NO_CATEGORY, choose_categories, has_missing_words
from node2seq.data.tabular import (
    MISSING,
    as_text,
    check_cells,
    column_error,
    first_few,
    given_text,
    pl,
    subject,
)
from node2seq.data.times import holds_dates, read_times, tells_days_first, with_days_first
from node2seq.errors import Node2SeqError

# Where more columns are of one kind, they are described together.
_MOST_DESCRIBED = 24
# 1,000 and 2,500,000.75 as people write them; 0,125 is none of these.
_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?\s*$"
# 3,14 and 2.500.000,75 as others write them, and 2.500 beside those.
_DECIMAL_COMMA = r"^\s*[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+),\d+\s*$"
_THOUSANDS_BY_POINTS = r"^\s*[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?\s*$"
_DECIMAL_POINT = r"^\s*[+-]?\d+\.\d+\s*$"
#: What stands before or behind each number of a column: 12 %, $1,000, 1.000,50 €.
UNITS = ("%", "$", "€", "£", "¥", "₹", "USD", "EUR", "GBP", "CHF", "JPY")
_AMOUNT = r"^[+-]?(?:\d+|\d{1,3}(?:[.,]\d{3})+)(?:[.,]\d+)?$"
_DAY = 24 * 3600
# Python has dates within so many seconds of 1970, and a few more.
_LAST_YEAR = 1900 * 365 * _DAY
#: The square of a larger number is infinite in 32 bits.
LARGEST = math.sqrt(float(np.finfo(np.float32).max))
_TOO_LARGE = ("is too large to compute with in 32 bits", "Correct it, or scale the column")
Encoding = list[dict[str, Any]]


def choose_encoding(
    frame: pl.DataFrame,
    title: str,
    categorical: Sequence[str],
    fill: str | float | None,
    *,
    standardize: bool,
    wanted: Sequence[str],
    notes: list[str],
) -> Encoding:
    """Choose how to encode each column of the frame.

    Args:
        frame: The columns.
        title: What the table is called in an error.
        categorical: Columns that hold categories although they look like numbers.
        fill: What replaces missing cells.
        standardize: Whether to scale numbers.
        wanted: Columns that the user named: one of many texts is an error, where others are left out.
        notes: Gets what is left out.
    """
    fill = check_fill(fill)
    found: list[dict[str, Any] | None] = []
    for column in frame:
        name, forced = column.name, column.name in categorical
        numbers = None if forced or column.dtype.is_temporal() else as_numbers(column, title)
        written: dict[str, str] = {}
        if numbers is None and not forced and column.dtype == pl.String:
            written = _special_writing(column, title, notes)
            column = plain_writing(column, written, title)
            numbers = as_numbers(column, title) if "unit" in written else None
        is_time = numbers is None and not forced and holds_dates(column)
        numbers = seconds_of(column, title) if is_time else numbers
        if numbers is None:
            found.append(choose_categories(column, title, fill, notes, forced=forced, wanted=name in wanted))
            continue
        chosen = {"kind": "time" if is_time else "number", "name": name, "fill": _fill_value(numbers, fill)}
        chosen |= written
        if not is_time and (example := decimal_comma(column, title)) is not None:
            chosen["decimal"] = ","
            plain = example.replace(".", "").replace(",", ".")
            notes.append(f"column {name!r}: a comma precedes the decimals, {example!r} is read as {plain}")
        # Seconds since 1970 have too many digits for 32 bits as they are.
        shift, scale = _scale(numbers, title) if standardize or is_time else (0.0, 1.0)
        found.append(chosen if (shift, scale) == (0.0, 1.0) else chosen | {"shift": shift, "scale": scale})
    return [column for column in found if column is not None]


def seconds_of(column: pl.Series, title: str) -> pl.Series:
    """A column of dates and timestamps in seconds since 1970, with nulls for missing cells."""
    return pl.Series(column.name, read_times(column, title, "date").values).fill_nan(None)


def is_read_otherwise(categories: Sequence[str]) -> bool:
    """Whether a column of these categories, as earlier versions kept them, is something else today."""
    text = pl.Series(categories, dtype=pl.String)
    return has_missing_words(categories) or bool(_special_writing(text, "", []))


def _special_writing(column: pl.Series, title: str, notes: list[str]) -> dict[str, str]:
    """What an encoding says of a column of nothing but amounts, or of dates that start with the day."""
    text = given_text(column, title).drop_nulls()
    if not len(text):
        return {}
    amounts = without_unit(text, unit_of(text[:1]))
    are_amounts = plain_numbers(amounts).cast(pl.Float64, strict=False).null_count() == 0
    return chosen_writing(
        text.name,
        text[0] if are_amounts else None,
        tells_days_first(text) if with_days_first(text).null_count() == 0 else None,
        notes,
    )


def chosen_writing(name: str, amount: str | None, day: str | None, notes: list[str]) -> dict[str, str]:
    """What an encoding says of a column by a cell of it.

    Args:
        name: The column.
        amount: A cell, if all are amounts of one unit.
        day: A cell that is a date only if its day comes first, if all cells are written as dates like that.
        notes: Gets how they are read.
    """
    if amount is not None:
        unit = unit_of(pl.Series([amount]))
        notes.append(f"column {name!r}: {amount!r} is read as the number without {unit!r}")
        return {"unit": unit}
    if day is not None:
        plain = with_days_first(pl.Series([day]))[0]
        notes.append(f"column {name!r}: the day comes first in its dates, {day!r} is read as {plain}")
        return {"first": "day"}
    return {}


def unit_of(text: pl.Series) -> str:
    """The unit in the first cell that has one; % if none has."""
    found = text.str.extract(f"({'|'.join(map(re.escape, UNITS))})").drop_nulls()
    return found[0] if len(found) else UNITS[0]


def without_unit(text: pl.Series, unit: str) -> pl.Series:
    """The cells with 12 % as 12, and -$5 as -5; those that are no amounts of this unit are null."""
    sign = re.escape(unit)
    plain = text.str.replace(rf"^([+-]?){sign}\s?|\s?{sign}$", "$1")
    return plain.set(~(plain.str.contains(_AMOUNT) & (plain != text)), None)


def plain_writing(cells: pl.Series, column: Mapping[str, Any], title: str) -> pl.Series:
    """The cells of a column with its amounts as numbers, or its dates as 2024-03-31."""
    unit = column.get("unit")
    if unit is None and column.get("first") != "day":
        return cells
    text = given_text(cells, title)
    if unit is None:
        dates = with_days_first(text)
        return dates.zip_with(dates.is_not_null(), text)
    numbers = without_unit(text, unit)
    check_cells(
        (numbers.is_not_null() | text.is_null()).to_numpy(),
        title,
        cells.name,
        lambda row: repr(text[row]),
        f"is no number with {unit!r}, as all cells of the column were in training",
        f"Write it as 12.5 {unit}",
    )
    return numbers


def described_columns(encoding: Encoding) -> dict[str, str]:
    """How each column is read, in a few words; many columns of one kind are one entry."""
    found: dict[str, str] = {}
    for kind, words in (("number", "number"), ("time", "date or time"), ("category", "category")):
        own = [column for column in _columns(encoding) if column["kind"] == kind]
        if len(own) > _MOST_DESCRIBED:
            found[f"{own[0]['name']} … {own[-1]['name']}"] = f"{len(own)} columns: {words}"
            continue
        for column in own:
            about = words + (f", in {column['unit']}" if "unit" in column else "")
            if kind == "category":
                names = column["categories"]
                about += f", {len(names)} values: {first_few(names)}" if names else ", no values"
            elif "scale" in column:
                shift, scale = _shown(column["shift"], kind), _shown(column["scale"])
                scale = f"{_shown(column['scale'] / _DAY)} days" if kind == "time" else scale
                about += f", standardised ({shift} subtracted, divided by {scale})"
            if column["fill"] is not None:
                about += f"; missing cells get {_shown(column['fill'], kind)}"
            found[column["name"]] = about
    return found


def _shown(value: Any, kind: str = "number") -> str:
    """A fill value or a part of a scale for people to read: seconds since 1970 are a date."""
    if kind == "category":
        return "no category"
    if kind == "time" and abs(value) < _LAST_YEAR:
        return (datetime(1970, 1, 1) + timedelta(seconds=value)).date().isoformat()
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def encoded_columns(encoding: Encoding) -> list[str]:
    """The names of the columns that an encoding reads."""
    return [column["name"] for column in _columns(encoding)]


def encode(
    frame: pl.DataFrame,
    title: str,
    encoding: Encoding,
    *,
    fill: str | float | None = None,
    trained: bool = False,
) -> tuple[np.ndarray, list[str]]:
    """The feature matrix [N, C], float32, and notes for the report.

    Args:
        frame: The columns.
        title: What the table is called in an error.
        encoding: How each column is encoded.
        fill: What replaces missing cells of the columns whose encoding does not say.
        trained: Whether the encoding is that of a trained model, so that no column can be left out.
    """
    fill = check_fill(fill)
    x = np.empty((frame.height, width(encoding)), dtype=np.float32)
    notes: list[str] = []
    place = 0
    for column in _columns(encoding):
        cells = frame[column["name"]]
        if column["kind"] == "category":
            own = column if fill is None else {**column, "fill": "zero"}
            values, unknown = _onehot(cells, own, title, trained=trained)
            if unknown:
                which = subject(unknown, "category {} is", "{} categories ({}) are")
                notes.append(f"column {cells.name!r}: {which} not known from training and counts as none")
        else:
            values = _numbers(cells, column, title, fill, trained=trained)[:, None]
        x[:, place : place + values.shape[1]] = values
        place += values.shape[1]
    return x, notes


def width(encoding: Encoding) -> int:
    """The number of features of an encoding."""
    return sum(len(c["categories"]) if c["kind"] == "category" else c.get("count", 1) for c in encoding)


def check_fill(fill: str | float | None) -> str | float | None:
    """Return ``fill`` as ``"mean"``, a finite number or None; anything else is an error."""
    if fill is None or fill == "mean":
        return fill
    try:
        number = float(fill)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Node2SeqError(f"fill={fill!r}", "it is neither a number nor 'mean'", "Give a number, or 'mean'")
    return number


def _columns(encoding: Encoding) -> Iterator[dict[str, Any]]:
    for column in encoding:
        if column["kind"] == "block":
            for number in range(column["count"]):
                yield {"kind": "number", "name": f"{column['name']}{number}", "fill": column.get("fill")}
        else:
            yield column


def as_numbers(
    column: pl.Series,
    title: str,
    *,
    strict: str | None = None,
    decimal_comma_known: bool | None = None,
    before: int = 0,
    instead: str = "",
) -> pl.Series | None:
    """The column as float64 with nulls for missing cells, or None if it holds categories.

    A column with numbers in at least half of its cells is numeric: its other cells are errors. With
    ``strict``, which says why, it has to be. ``decimal_comma_known``: whether a comma precedes the decimals;
    None: as the cells tell. ``before``: how many rows of the table come before these.
    ``instead``: an alternative to correcting the cell.
    """
    if column.dtype == pl.Boolean or column.dtype.is_numeric():
        return column.cast(pl.Float64).fill_nan(None)
    if column.dtype == pl.String:
        numbers = column.cast(pl.Float64, strict=False)
        if numbers.null_count() == column.null_count() and not numbers.is_nan().any():
            return numbers  # the common, fast case: every cell is a number or missing
    text = as_text(column, title)
    text = plain_numbers(text, decimal_comma_known)
    numbers = text.cast(pl.Float64, strict=False)
    lower = text.str.to_lowercase()
    text = text.set(lower.is_in(MISSING), None)
    if lower.drop_nulls().is_in(["true", "false"]).all():
        return (lower == "true").cast(pl.Float64)
    wrong = text.filter(text.is_not_null() & numbers.is_null())
    given = len(text) - text.null_count()
    if len(wrong) == 0:
        return numbers.fill_nan(None)
    if strict is None and 2 * len(wrong) > given:
        return None
    row = before + int((text.is_not_null() & numbers.is_null()).arg_max() or 0) + 1
    raise Node2SeqError(
        title,
        f"column {column.name!r}: {first_few([wrong[0]])} in row {row} is not a number; "
        + (strict or "most other cells are"),
        "Correct it"
        + (instead if strict else f", or say categorical={column.name} (--categorical {column.name})"),
    )


def plain_numbers(text: pl.Series, decimal_comma_known: bool | None = None) -> pl.Series:
    """The cells with 1,000 written as 1000, and 3,14 as 3.14 where commas precede decimals.

    Args:
        text: The cells.
        decimal_comma_known: Whether they do; None: as the cells tell.
    """
    if decimal_comma_known is None:
        decimal_comma_known = _decimal_comma_in(text) is not None
    if decimal_comma_known:
        by_points = text.str.contains(_THOUSANDS_BY_POINTS).fill_null(value=False)
        text = text.str.replace_all(".", "", literal=True).zip_with(by_points, text)
        with_comma = text.str.contains(_DECIMAL_COMMA).fill_null(value=False)
        return text.str.replace(",", ".", literal=True).zip_with(with_comma, text)
    with_commas = text.str.contains(_THOUSANDS).fill_null(value=False)
    if not with_commas.any():
        return text
    return text.str.replace_all(",", "", literal=True).zip_with(with_commas, text)


def decimal_comma(column: pl.Series, title: str) -> str | None:
    """A cell that shows that commas precede decimals in a column of text; None if they do not."""
    return _decimal_comma_in(as_text(column, title)) if column.dtype == pl.String else None


def _decimal_comma_in(text: pl.Series) -> str | None:
    """A cell that can only be read that way, where no other cell speaks against it."""
    commas = text.filter(text.str.contains(",", literal=True).fill_null(value=False))
    if not len(commas) or not commas.str.contains(_DECIMAL_COMMA).all():
        return None
    points = text.filter(text.str.contains(_DECIMAL_POINT).fill_null(value=False))
    if not points.str.contains(_THOUSANDS_BY_POINTS).all():
        return None
    telling = commas.filter(~commas.str.contains(_THOUSANDS))
    return telling[0] if len(telling) else None


def _scale(numbers: pl.Series, title: str) -> tuple[float, float]:
    """The shift and the scale of a column; a number beside which all others vanish is an error."""
    is_small = numbers.abs().fill_null(0.0).to_numpy() <= LARGEST
    check_cells(is_small, title, numbers.name, numbers.__getitem__, *_TOO_LARGE)
    return scale_of(numbers.drop_nulls().to_numpy())


def _fill_value(numbers: pl.Series, fill: str | float | None) -> float | None:
    if fill != "mean":
        return None if fill is None else float(fill)
    mean = numbers.mean()
    return float(mean) if isinstance(mean, (int, float)) else 0.0  # a column without any number has no mean


def _numbers(
    cells: pl.Series, column: dict[str, Any], title: str, fill: str | float | None, *, trained: bool
) -> np.ndarray:
    """A column of numbers or times as its encoding says, float32."""
    cells = plain_writing(cells, column, title)
    if column["kind"] == "time":
        numbers = seconds_of(cells, title)
    else:
        known = column.get("decimal") == ","
        why = "the column was all numbers in training"
        numbers = as_numbers(cells, title, strict=why, decimal_comma_known=known)
    assert numbers is not None
    value = _fill_value(numbers, fill) if column["fill"] is None else column["fill"]
    if value is None and numbers.null_count():
        raise _missing_cell(title, numbers.is_null(), trained=trained)
    values = (numbers if value is None else numbers.fill_null(value)).to_numpy()
    with np.errstate(over="ignore"):
        narrow = ((values - column.get("shift", 0.0)) / column.get("scale", 1.0)).astype(np.float32)
    check_cells(np.isfinite(narrow), title, numbers.name, values.__getitem__, *_TOO_LARGE)
    return narrow


def _missing_cell(title: str, missing: pl.Series, *, trained: bool) -> Node2SeqError:
    words = missing_cells(int(missing.sum()), int(missing.arg_max() or 0) + 1)
    return column_error(
        title,
        missing.name,
        words,
        "Fill them with fill='mean' or a number (--fill mean)"
        + ("" if trained else ", or leave the column out (--ignore)"),
    )


def missing_cells(count: int, row: int) -> str:
    """The message about missing cells: how many, and the first."""
    return f"{'1 cell is' if count == 1 else f'{count} cells are'} missing, the first in row {row}"


def _onehot(
    cells: pl.Series, column: dict[str, Any], title: str, *, trained: bool
) -> tuple[np.ndarray, list[str]]:
    text = as_text(cells, title)
    absent = [word for word in text.drop_nulls().unique().to_list() if word.lower() in NO_CATEGORY]
    # A word for a missing cell is a category where the training had it as one.
    text = text.set(text.is_in(sorted(set(absent) - set(column["categories"]))), None)
    if column["fill"] is None and text.null_count():
        raise _missing_cell(title, text.is_null(), trained=trained)
    categories = pl.Series(column["categories"], dtype=pl.String)
    numbered = range(len(categories))
    numbers = text.replace_strict(categories, numbered, default=-1, return_dtype=pl.Int64).to_numpy()
    onehot = np.zeros((len(text), len(categories)), dtype=np.float32)
    known = np.flatnonzero(numbers >= 0)
    onehot[known, numbers[known]] = 1.0
    unknown = text.filter(pl.Series(numbers < 0) & text.is_not_null()).unique().sort().to_list()
    return onehot, unknown


# A column with at least this share of zeros is not shifted, so that zeros stay zeros.
_MOSTLY_ZERO = 0.5


@dataclass
class RunningMoments:
    """Mean, deviation and size of numbers that come in chunks."""

    count: int = 0
    zeros: int = 0
    mean: float = 0.0
    squares: float = 0.0
    largest: float = 0.0
    is_binary: bool = True

    def add(self, values: np.ndarray) -> None:
        """Take in a chunk of finite numbers."""
        if not values.size:
            return
        mean, total = float(values.mean()), self.count + values.size
        apart = mean - self.mean
        self.squares += float(np.square(values - mean).sum()) + apart**2 * self.count * values.size / total
        self.mean += apart * values.size / total
        self.zeros += int((values == 0).sum())
        self.largest = max(self.largest, float(np.abs(values).max()))
        self.is_binary = self.is_binary and bool(((values == 0) | (values == 1)).all())
        self.count = total

    @property
    def scale(self) -> tuple[float, float]:
        """What to subtract from a column and what to divide it by then.

        Zeros and ones stay as they are. A column that is mostly zeros, as word counts are, is divided by its
        largest size, so that zeros stay zeros. Any other gets mean 0 and standard deviation 1.
        """
        if self.is_binary:
            return 0.0, 1.0
        if self.zeros / self.count >= _MOSTLY_ZERO:
            return 0.0, self.largest
        return self.mean, deviation_or_one(self.mean, math.sqrt(self.squares / self.count))


def scale_of(values: np.ndarray) -> tuple[float, float]:
    """The shift and the scale of a column by its numbers, without missing ones."""
    moments = RunningMoments()
    moments.add(values.astype(np.float64, copy=False))
    return moments.scale


def deviation_or_one(mean: float, deviation: float) -> float:
    """A standard deviation to divide by; 1 for equal numbers, which differ from their mean by a rounding."""
    return deviation if deviation > 1e-12 * max(abs(mean), 1e-300) else 1.0


def standardize(x: np.ndarray) -> np.ndarray:
    """A matrix [N, C] with each of its columns scaled."""
    scales = np.array([scale_of(column) for column in x.T]).reshape(-1, 2)
    return ((x.astype(np.float64) - scales[:, 0]) / scales[:, 1]).astype(np.float32)

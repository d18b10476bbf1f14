"""How to encode the columns of a table that is read in chunks: by the rules of a table in memory.

Two things differ from a table in memory: commas before decimals are refused, and lists of numbers, as a
column of embeddings holds them, are a column for each number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from node2seq.data.categories import MOST_CATEGORIES, NO_CATEGORY, odd_categories
from node2seq.data.encoding import (
    LARGEST,
    Encoding,
    RunningMoments,
    check_fill,
    chosen_writing,
    decimal_comma,
    missing_cells,
    plain_numbers,
    seconds_of,
    unit_of,
    without_unit,
)
from node2seq.data.tabular import MISSING, as_text, column_error, first_few, pl
from node2seq.data.times import holds_dates, tells_days_first, with_days_first
from node2seq.errors import Node2SeqError

_FILL = "Fill them with --fill mean or a number, or leave the column out (--ignore)"


@dataclass
class _ColumnStatistics:
    """What is known of a column so far. Rows count from 1; 0: none.

    Args:
        name: Of the column.
        title: What the table is called in an error.
        forced: Whether it holds categories although it looks like numbers.
    """

    name: str
    title: str
    forced: bool
    rows: int = 0
    truths: int = 0
    missing: int = 0
    first_missing: int = 0
    not_numbers: int = 0
    first_wrong: tuple[int, str] = (0, "")
    too_large: tuple[int, float] = (0, 0.0)
    has_dates: bool = False
    amounts: int = 0
    first_amount: tuple[int, str] = (0, "")
    days_first: int = 0
    telling_day: str | None = None
    seconds: RunningMoments = field(default_factory=RunningMoments)
    texts: set[str] = field(default_factory=set)
    numbers: RunningMoments = field(default_factory=RunningMoments)

    @property
    def given(self) -> int:
        """How many cells are not missing."""
        return self.rows - self.missing

    def add(self, column: pl.Series) -> None:
        """Take in a chunk."""
        before, self.rows = self.rows, self.rows + len(column)
        is_number = column.dtype == pl.Boolean or column.dtype.is_numeric()
        is_text = self.forced or not (is_number or column.dtype.is_temporal())
        text = as_text(column, self.title) if is_text else column
        if is_text and (len(self.texts) <= MOST_CATEGORIES or self.forced):
            self.texts |= set(text.drop_nulls().unique().to_list())
        may_hold_dates = is_text and not self.forced and not self.numbers.count
        if column.dtype.is_temporal() or (may_hold_dates and holds_dates(column)):
            self.has_dates = True
        if self.forced:
            missing, numbers = text.is_null(), None
        elif is_text and not self.has_dates:
            missing, numbers = self._read_text(column, text, before)
        else:
            plain = seconds_of(column, self.title) if self.has_dates else column.cast(pl.Float64)
            numbers = plain.fill_nan(None)
            missing = numbers.is_null()
        count = int(missing.sum())
        self.missing += count
        if count and not self.first_missing:
            self.first_missing = before + int(missing.arg_max() or 0) + 1
        if numbers is None:
            self.not_numbers = self.given
            return
        values = numbers.fill_null(0.0).to_numpy()
        fits = np.abs(values) <= LARGEST
        if not self.too_large[0] and not fits.all():
            place = int((~fits).argmax())
            self.too_large = before + place + 1, float(values[place])
        self.numbers.add(values[numbers.is_not_null().to_numpy() & fits])

    def _read_text(self, column: pl.Series, text: pl.Series, before: int) -> tuple[pl.Series, pl.Series]:
        """Whether each cell is missing, and the numbers that the others hold, null where they hold none."""
        if text.cast(pl.Float64, strict=False).null_count() > text.null_count():
            self._add_days(text)
            text = self._add_amounts(text, before)
        if (example := decimal_comma(text if column.dtype == pl.String else column, self.title)) is not None:
            raise column_error(
                self.title,
                self.name,
                f"a comma precedes the decimals, as in {example!r}",
                "Write numbers with a point, or leave the column out (--ignore)",
            )
        lower = text.str.to_lowercase()
        text = plain_numbers(text.set(lower.is_in(MISSING).fill_null(value=False), None), False)
        self.truths += int(lower.is_in(["true", "false"]).sum())
        numbers = text.cast(pl.Float64, strict=False).fill_nan(None)
        wrong = text.is_not_null() & numbers.is_null()
        self.not_numbers += int(wrong.sum())
        if wrong.any() and not self.first_wrong[0]:
            place = int(wrong.arg_max() or 0)
            self.first_wrong = before + place + 1, str(text[place])
        return text.is_null(), numbers

    def _add_days(self, text: pl.Series) -> None:
        """Take in dates that start with the day; whether all cells are known in the end."""
        dates = with_days_first(text).drop_nulls()
        if len(dates):
            self.days_first += len(dates)
            self.telling_day = self.telling_day or tells_days_first(text)
            self.seconds.add(seconds_of(dates, self.title).to_numpy())

    def _add_amounts(self, text: pl.Series, before: int) -> pl.Series:
        """Take in amounts of the first one's unit, and return the cells with these as numbers."""
        unit = unit_of(pl.Series([self.first_amount[1]]) if self.amounts else text)
        amounts = without_unit(text, unit)
        is_amount = amounts.is_not_null()
        if is_amount.any() and not self.amounts:
            place = int(is_amount.arg_max() or 0)
            self.first_amount = before + place + 1, str(text[place])
        self.amounts += int(is_amount.sum())
        return amounts.zip_with(is_amount, text)

    def encoding(
        self, fill: str | float | None, *, standardize: bool, wanted: bool, notes: list[str]
    ) -> dict[str, Any] | None:
        """How to encode it; None for a column that is left out because it holds too many different texts."""
        day = self.telling_day if self.days_first == self.given and not self.forced else None
        amount = self.first_amount[1] if 0 < self.amounts == self.given else None
        written = chosen_writing(self.name, amount, day, notes)
        if day is not None:
            shift, scale = self.seconds.scale
            found = {"kind": "time", "name": self.name, "fill": self._fill(fill, self.seconds.mean)}
            return found | written | {"shift": shift, "scale": scale}
        if amount is None and self.amounts:  # some cells alone: none of them is a number
            self.not_numbers += self.amounts
            self.first_wrong = min(filter(lambda cell: cell[0], (self.first_wrong, self.first_amount)))
        if self.truths and self.truths == self.given:
            return {"kind": "number", "name": self.name, "fill": self._fill(fill, 0.0)}
        if self.not_numbers and not self.forced and 2 * self.not_numbers <= self.given:
            row, cell = self.first_wrong
            raise column_error(
                self.title,
                self.name,
                f"{first_few([cell])} in row {row} is not a number; most other cells are",
                f"Correct it, or say --categorical {self.name}",
            )
        if self.not_numbers or self.forced:
            return self._category(fill, wanted, notes)
        row, value = self.too_large
        if row:
            raise column_error(
                self.title,
                self.name,
                f"{value} in row {row} is too large to compute with in 32 bits",
                "Correct it, or scale the column",
            )
        kind = "time" if self.has_dates else "number"
        chosen = {"kind": kind, "name": self.name, "fill": self._fill(fill, self.numbers.mean)} | written
        shift, scale = self.numbers.scale if standardize or self.has_dates else (0.0, 1.0)
        return chosen if (shift, scale) == (0.0, 1.0) else chosen | {"shift": shift, "scale": scale}

    def _fill(self, fill: str | float | None, mean: float) -> float | None:
        if fill is None and self.missing:
            raise column_error(self.title, self.name, missing_cells(self.missing, self.first_missing), _FILL)
        return None if fill is None else mean if fill == "mean" else float(fill)

    def _category(self, fill: str | float | None, wanted: bool, notes: list[str]) -> dict[str, Any] | None:
        names = sorted(name for name in self.texts if self.forced or name.lower() not in NO_CATEGORY)
        if len(names) > MOST_CATEGORIES and not self.forced:
            words = (
                f"column {self.name!r} has more than {MOST_CATEGORIES} different texts ({first_few(names)})"
            )
            if wanted:
                cure = f"Leave it out (--ignore {self.name}), or give --categorical {self.name}"
                raise Node2SeqError(self.title, words, cure)
            notes.append(f"{words}: it is left out; to use it, give --categorical {self.name}")
            return None
        self._fill(fill, 0.0)
        if len(names) < len(self.texts) and fill is None:  # words that stand for a missing cell
            raise column_error(self.title, self.name, "cells are missing", _FILL)
        if not self.forced:
            notes += odd_categories(self.name, names)
        fill = None if fill is None else "zero"
        return {"kind": "category", "name": self.name, "categories": names, "fill": fill}


def choose_encoding_by_chunks(
    frames: Iterable[pl.DataFrame],
    title: str,
    categorical: Sequence[str],
    fill: str | float | None,
    *,
    standardize: bool,
    wanted: Sequence[str],
    notes: list[str],
) -> Encoding:
    """Choose how to encode columns; arguments as in :func:`~node2seq.data.encoding.choose_encoding`.

    The frames are chunks of the columns, as :func:`flat` gives them.
    """
    fill, seen = check_fill(fill), dict[str, _ColumnStatistics]()
    for frame in frames:
        for column in frame:
            known = seen.setdefault(
                column.name, _ColumnStatistics(column.name, title, column.name in categorical)
            )
            known.add(column)
    found = [
        one.encoding(fill, standardize=standardize, wanted=one.name in wanted, notes=notes)
        for one in seen.values()
    ]
    return [column for column in found if column is not None]


def widths_of(first: pl.DataFrame, title: str) -> dict[str, int]:
    """The columns that hold lists of numbers, and how many numbers a list has, from the first rows."""
    found = {}
    for column in first:
        if isinstance(column.dtype, pl.Array):
            found[column.name] = int(column.dtype.shape[0])
        elif isinstance(column.dtype, pl.List):
            longest = column.list.len().max()
            if not isinstance(longest, int) or not longest:
                raise Node2SeqError(
                    title, f"column {column.name!r} holds empty lists", "Leave it out (--ignore)"
                )
            found[column.name] = longest
    return found


def flat(frames: Iterable[pl.DataFrame], widths: Mapping[str, int], title: str) -> Iterable[pl.DataFrame]:
    """Chunks in which each list of numbers is a column for each number: x0, x1, …"""
    row = 0
    for frame in frames:
        parts = []
        for column in frame:
            if column.name not in widths:
                parts.append(column.to_frame())
                continue
            width = widths[column.name]
            names = [f"{column.name}{number}" for number in range(width)]
            is_list = isinstance(column.dtype, pl.List)
            short = (column.list.len() != width).fill_null(value=True) if is_list else column.is_null()
            if short.any():
                which = f"column {column.name!r}: row {row + int(short.arg_max() or 0) + 1}"
                raise Node2SeqError(
                    title,
                    f"{which} does not hold {width} numbers, as the first rows do",
                    "Give every node a list of the same length",
                )
            column = column.list.to_array(width) if is_list else column
            parts.append(pl.DataFrame(column.to_numpy().astype(np.float32), schema=names))
        row += frame.height
        yield pl.concat(parts, how="horizontal")

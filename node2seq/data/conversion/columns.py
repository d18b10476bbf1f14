"""How to encode the columns of a table that is read in chunks: by the rules of a table in memory.

Two things differ from a table in memory: commas before decimals are refused, and lists of numbers, as a
column of embeddings holds them, are a column for each number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from node2seq.data.encoding import (
    LARGEST,
    MOST_CATEGORIES,
    MOSTLY_ZERO,
    NO_CATEGORY,
    Encoding,
    check_fill,
    decimal_comma,
    plain_numbers,
)
from node2seq.data.tabular import MISSING, as_text, first_few, pl
from node2seq.data.times import holds_dates, read_times
from node2seq.errors import Node2SeqError


@dataclass
class _Moments:
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
        """What to subtract and what to divide by, as :func:`~node2seq.data.encoding.scale_of` has it."""
        if self.is_binary:
            return 0.0, 1.0
        if self.zeros >= MOSTLY_ZERO * self.count:
            return 0.0, self.largest
        deviation = math.sqrt(self.squares / self.count)
        is_constant = deviation <= 1e-12 * max(abs(self.mean), 1e-300)
        return self.mean, 1.0 if is_constant else deviation


@dataclass
class _Seen:
    """What is known of a column so far. Rows count from 1; 0: none."""

    name: str
    rows: int = 0
    given: int = 0
    truths: int = 0
    missing: int = 0
    first_missing: int = 0
    not_numbers: int = 0
    first_wrong: tuple[int, str] = (0, "")
    too_large: tuple[int, float] = (0, 0.0)
    has_dates: bool = False
    texts: set[str] = field(default_factory=set)
    numbers: _Moments = field(default_factory=_Moments)

    def add(self, column: pl.Series, title: str, *, forced: bool) -> None:
        """Take in a chunk."""
        before, self.rows = self.rows, self.rows + len(column)
        if column.dtype.is_temporal():
            self.has_dates = True
            seconds = read_times(column, title, "date").values
            self._count(np.isnan(seconds), before)
            self._add_numbers(np.where(np.isnan(seconds), 0.0, seconds), ~np.isnan(seconds), before)
            return
        if (column.dtype == pl.Boolean or column.dtype.is_numeric()) and not forced:
            numbers = column.cast(pl.Float64).fill_nan(None)
            gone = numbers.is_null().to_numpy()
            self._count(gone, before)
            self._add_numbers(numbers.fill_null(0.0).to_numpy(), ~gone, before)
            return
        text = as_text(column, title)
        if len(self.texts) <= MOST_CATEGORIES or forced:
            self.texts |= set(text.drop_nulls().unique().to_list())
        if forced:
            self._count(text.is_null().to_numpy(), before)
            self.not_numbers = self.given
            return
        if not self.numbers.count and holds_dates(column):
            self.has_dates = True
        if self.has_dates:
            seconds = read_times(column, title, "date").values
            self._count(np.isnan(seconds), before)
            self._add_numbers(np.where(np.isnan(seconds), 0.0, seconds), ~np.isnan(seconds), before)
            return
        if (example := decimal_comma(column, title)) is not None:
            raise Node2SeqError(
                title,
                f"column {self.name!r}: a comma precedes the decimals, as in {example!r}",
                "Write numbers with a point, or leave the column out (--ignore)",
            )
        lower = text.str.to_lowercase()
        text = plain_numbers(text.set(lower.is_in(MISSING).fill_null(value=False), None), False)
        self._count(text.is_null().to_numpy(), before)
        is_truth = lower.is_in(["true", "false"]).fill_null(value=False).to_numpy()
        self.truths += int(is_truth.sum())
        cast = text.cast(pl.Float64, strict=False).fill_nan(None)
        wrong = (text.is_not_null() & cast.is_null()).to_numpy()
        if wrong.any():
            place = int(wrong.argmax())
            self.not_numbers += int(wrong.sum())
            if not self.first_wrong[0]:
                self.first_wrong = before + place + 1, str(text[place])
        self._add_numbers(cast.fill_null(0.0).to_numpy(), cast.is_not_null().to_numpy(), before)

    def _count(self, gone: np.ndarray, before: int) -> None:
        count = int(gone.sum())
        self.missing += count
        self.given += gone.size - count
        if count and not self.first_missing:
            self.first_missing = before + int(gone.argmax()) + 1

    def _add_numbers(self, values: np.ndarray, known: np.ndarray, before: int) -> None:
        fits = np.abs(values) <= LARGEST
        if not self.too_large[0] and not fits.all():
            place = int((~fits).argmax())
            self.too_large = before + place + 1, float(values[place])
        self.numbers.add(values[known & fits])


class ColumnChooser:
    """Chooses how to encode columns, from chunks of them.

    Args:
        title: What the table is called in an error.
        categorical: Columns that hold categories although they look like numbers.
        fill: What replaces missing cells.
        standardize: Whether to scale numbers.
        wanted: Columns that the user named: one of many texts is an error, where others are left out.
    """

    def __init__(
        self,
        title: str,
        categorical: Sequence[str] = (),
        fill: str | float | None = None,
        *,
        standardize: bool = True,
        wanted: Sequence[str] = (),
    ) -> None:
        self._title, self._categorical, self._fill = title, categorical, check_fill(fill)
        self._standardize, self._wanted = standardize, wanted
        self._seen: dict[str, _Seen] = {}

    def add(self, frame: pl.DataFrame) -> None:
        """Take in a chunk, as :func:`flat` gives it."""
        for column in frame:
            seen = self._seen.setdefault(column.name, _Seen(column.name))
            seen.add(column, self._title, forced=column.name in self._categorical)

    def encoding(self, notes: list[str]) -> Encoding:
        """How to encode what was seen."""
        found: Encoding = []
        for seen in self._seen.values():
            if seen.truths and seen.truths == seen.given:
                found.append({"kind": "number", "name": seen.name, "fill": self._filled(seen, 0.0)})
            elif seen.not_numbers == 0 and seen.name not in self._categorical:
                found.append(self._number(seen))
            elif 2 * seen.not_numbers <= seen.given and seen.name not in self._categorical:
                row, cell = seen.first_wrong
                raise Node2SeqError(
                    self._title,
                    f"column {seen.name!r}: {first_few([cell])} in row {row} is not a number; most other "
                    "cells are",
                    f"Correct it, or say --categorical {seen.name}",
                )
            elif (category := self._category(seen, notes)) is not None:
                found.append(category)
        return found

    def _number(self, seen: _Seen) -> dict[str, Any]:
        row, value = seen.too_large
        if row:
            raise Node2SeqError(
                self._title,
                f"column {seen.name!r}: {value} in row {row} is too large to compute with in 32 bits",
                "Correct it, or scale the column",
            )
        kind = "time" if seen.has_dates else "number"
        chosen = {"kind": kind, "name": seen.name, "fill": self._filled(seen, seen.numbers.mean)}
        shift, scale = seen.numbers.scale if self._standardize or seen.has_dates else (0.0, 1.0)
        return chosen if (shift, scale) == (0.0, 1.0) else chosen | {"shift": shift, "scale": scale}

    def _filled(self, seen: _Seen, mean: float) -> float | None:
        if self._fill is not None:
            return mean if self._fill == "mean" else float(self._fill)
        if seen.missing:
            cells = "1 cell is" if seen.missing == 1 else f"{seen.missing} cells are"
            raise Node2SeqError(
                self._title,
                f"column {seen.name!r}: {cells} missing, the first in row {seen.first_missing}",
                "Fill them with --fill mean or a number, or leave the column out (--ignore)",
            )
        return None

    def _category(self, seen: _Seen, notes: list[str]) -> dict[str, Any] | None:
        forced = seen.name in self._categorical
        names = sorted(name for name in seen.texts if forced or name.lower() not in NO_CATEGORY)
        if len(names) > MOST_CATEGORIES and not forced:
            words = (
                f"column {seen.name!r} has more than {MOST_CATEGORIES} different texts ({first_few(names)})"
            )
            if seen.name in self._wanted:
                cure = f"Leave it out (--ignore {seen.name}), or give --categorical {seen.name}"
                raise Node2SeqError(self._title, words, cure)
            notes.append(f"{words}: it is left out; to use it, give --categorical {seen.name}")
            return None
        words_for_missing = len(names) < len(seen.texts)
        if (seen.missing or words_for_missing) and self._fill is None:
            self._filled(seen, 0.0)
            raise Node2SeqError(
                self._title,
                f"column {seen.name!r}: cells are missing",
                "Fill them with --fill mean or a number, or leave the column out (--ignore)",
            )
        fill = None if self._fill is None else "zero"
        return {"kind": "category", "name": seen.name, "categories": names, "fill": fill}


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
            if isinstance(column.dtype, pl.List):
                short = (column.list.len() != width).fill_null(value=True)
                if short.any():
                    raise _ragged(title, column.name, width, row + int(short.arg_max() or 0) + 1)
                column = column.list.to_array(width)
            if column.null_count():
                raise _ragged(title, column.name, width, row + int(column.is_null().arg_max() or 0) + 1)
            parts.append(pl.DataFrame(column.to_numpy().astype(np.float32), schema=names))
        row += frame.height
        yield pl.concat(parts, how="horizontal")


def _ragged(title: str, name: str, width: int, row: int) -> Node2SeqError:
    return Node2SeqError(
        title, f"column {name!r}: row {row} does not hold {width} numbers, as the first rows do",
        "Give every node a list of the same length",
    )  # fmt: skip

"""The columns of a nodes table → features, classes and a split.

The encoding of the features is stored and reused for new graphs. It is a list of JSON-ready dicts, one for
each column, in order:

- ``{"kind": "number", "name": …, "fill": …}``: one feature; ``fill`` replaces missing cells (None: an error).
  With ``shift`` and ``scale`` the shift is subtracted, and the rest is divided by the scale.
- ``{"kind": "time", "name": …, "fill": …, "shift": …, "scale": …}``: a date or timestamp in seconds since
  1970, scaled as a number is.
- ``{"kind": "category", "name": …, "categories": […], "fill": …}``: one-hot. A missing cell is all
  zero if ``fill`` is set, otherwise an error. An unknown category is all zero and gets a note in the report.
- ``{"kind": "block", "name": "f", "count": 1433}``: the number columns f0 … f1432.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from node2seq.data.tabular import MISSING, as_text, first_few, subject
from node2seq.data.times import holds_dates, read_times
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import polars as pl


_MOST_CATEGORIES = 256
# Where more columns are of one kind, they are described together.
_MOST_DESCRIBED = 24
# Words for a missing cell of a column of categories; "none" and "-" may be categories.
_NO_CATEGORY = ["na", "n/a", "nan", "null"]
# 1,000 and 2,500,000.75 as people write them.
_THOUSANDS = r"^\s*[+-]?\d{1,3}(,\d{3})+(\.\d+)?\s*$"
#: The square of a larger number is infinite in 32 bits.
LARGEST = math.sqrt(float(np.finfo(np.float32).max))
Encoding = list[dict[str, Any]]
_PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_PART_OF = {word: part for part, words in _PARTS.items() for word in words}


def choose_encoding(
    frame: pl.DataFrame,
    title: str,
    categorical: Sequence[str],
    fill: str | float | None,
    *,
    standardize: bool = False,
    wanted: Sequence[str] = (),
    notes: list[str] | None = None,
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
    encoding: Encoding = []
    for column in frame:
        name, forced = column.name, column.name in categorical
        is_date = column.dtype.is_temporal()
        numbers = None if forced or is_date else _numbers(column, title)
        is_time = numbers is None and not forced and holds_dates(column)
        numbers = _seconds(column, title) if is_time else numbers
        if numbers is None:
            chosen = _category(column, title, fill, forced=forced, wanted=name in wanted)
            if chosen is None:
                distinct = column.n_unique()
                words = (
                    f"column {name!r} has {distinct} different texts ({first_few(_examples(column, title))})"
                )
                (notes if notes is not None else []).append(
                    f"{words}: it is left out; to use it, give --categorical {name}"
                )
                continue
            encoding.append(chosen)
            continue
        chosen = {"kind": "time" if is_time else "number", "name": name, "fill": _fill_value(numbers, fill)}
        # Seconds since 1970 have too many digits for 32 bits as they are.
        shift, scale = _scale(numbers, title) if standardize or is_time else (0.0, 1.0)
        if (shift, scale) != (0.0, 1.0):
            chosen |= {"shift": shift, "scale": scale}
        encoding.append(chosen)
    return encoding


def _seconds(column: pl.Series, title: str) -> pl.Series:
    """A column of dates and timestamps in seconds since 1970, with nulls for missing cells."""
    import polars as pl

    return pl.Series(column.name, read_times(column, title, "date").values).fill_nan(None)


def _examples(column: pl.Series, title: str) -> list[str]:
    return as_text(column, title).drop_nulls().unique(maintain_order=True).head(4).to_list()


def has_missing_words(categories: Sequence[str]) -> bool:
    """Whether a word that stands for a missing cell is among categories."""
    return any(name.lower() in _NO_CATEGORY for name in categories)


def described_columns(encoding: Encoding) -> dict[str, str]:
    """How each column is read, in a few words; many columns of one kind are one entry."""
    found: dict[str, str] = {}
    for kind, words in (("number", "number"), ("time", "date or time"), ("category", "category")):
        own = [column for column in _columns(encoding) if column["kind"] == kind]
        if len(own) > _MOST_DESCRIBED:
            found[f"{own[0]['name']} … {own[-1]['name']}"] = f"{len(own)} columns: {words}"
            continue
        for column in own:
            about = words
            if kind == "category":
                names = column["categories"]
                about += f", {len(names)} values: {first_few(names)}" if names else ", no values"
            elif "scale" in column:
                about += (
                    f", standardised ({column['shift']:.4g} subtracted, divided by {column['scale']:.4g})"
                )
            found[column["name"]] = about + _filled_words(column)
    return found


def _filled_words(column: dict[str, Any]) -> str:
    if column["fill"] is None:
        return ""
    value = "no category" if column["kind"] == "category" else f"{column['fill']:.4g}"
    return f"; missing cells: {value}"


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
        name = column["name"]
        cells = frame[name]
        if column["kind"] != "category":
            numbers = (
                _seconds(cells, title)
                if column["kind"] == "time"
                else _numbers(cells, title, strict="the column was all numbers in training")
            )
            assert numbers is not None
            if column["fill"] is None:
                column = {**column, "fill": _fill_value(numbers, fill)}
            x[:, place] = _filled(numbers, column, title, trained=trained)
            place += 1
        else:
            if fill is not None:
                column = {**column, "fill": "zero"}
            onehot, unknown = _onehot(cells, column, title, trained=trained)
            x[:, place : place + onehot.shape[1]] = onehot
            place += onehot.shape[1]
            if unknown:
                which = subject(unknown, "category {} is", "{} categories ({}) are")
                notes.append(f"column {name!r}: {which} not known from training and counts as none")
    return x, notes


def read_numbers(frame: pl.DataFrame, title: str) -> np.ndarray:
    """Columns of finite numbers, without any missing, [rows, columns], float32."""
    import polars as pl

    out = np.empty((frame.height, frame.width), dtype=np.float32)
    for place, column in enumerate(frame):
        is_number = column.dtype == pl.Boolean or column.dtype.is_numeric()
        text = column if is_number else as_text(column, title)
        values = text.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
        with np.errstate(over="ignore"):
            out[:, place] = values
        if not np.isfinite(out[:, place]).all():
            row = int(np.flatnonzero(~np.isfinite(out[:, place]))[0])
            cell = "nothing" if text[row] is None else repr(text[row])
            raise Node2SeqError(
                title,
                f"column {column.name!r}: {cell} in row {row + 1} is not a finite 32-bit number",
                "Correct it, remove the row, or leave the column out",
            )
    return out


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


def _numbers(column: pl.Series, title: str, *, strict: str | None = None) -> pl.Series | None:
    """The column as float64 with nulls for missing cells, or None if it holds categories.

    A column with numbers in at least half of its cells is numeric: its other cells are errors. With
    ``strict``, which says why, it has to be.
    """
    import polars as pl

    if column.dtype == pl.Boolean or column.dtype.is_numeric():
        return column.cast(pl.Float64).fill_nan(None)
    if column.dtype == pl.String:
        numbers = column.cast(pl.Float64, strict=False)
        if numbers.null_count() == column.null_count() and not numbers.is_nan().any():
            return numbers  # the common, fast case: every cell is a number or missing
    text = as_text(column, title)
    text = _plain_numbers(text)
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
    row = int((text.is_not_null() & numbers.is_null()).arg_max() or 0) + 1
    raise Node2SeqError(
        title,
        f"column {column.name!r}: {first_few([wrong[0]])} in row {row} is not a number; "
        + (strict or "most other cells are"),
        "Correct it"
        + ("" if strict else f", or say categorical={column.name} (--categorical {column.name})"),
    )


def _plain_numbers(text: pl.Series) -> pl.Series:
    """The cells with 1,000 written as 1000."""
    with_commas = text.str.contains(_THOUSANDS).fill_null(value=False)
    if not with_commas.any():
        return text
    return text.str.replace_all(",", "", literal=True).zip_with(with_commas, text)


def _scale(numbers: pl.Series, title: str) -> tuple[float, float]:
    """The shift and the scale of a column; a number beside which all others vanish is an error."""
    row = numbers.abs().fill_null(0.0).arg_max() or 0
    largest = numbers[row] if len(numbers) else None
    if largest is not None and math.isfinite(largest) and abs(largest) > LARGEST:
        raise Node2SeqError(
            title,
            f"column {numbers.name!r}: {largest} in row {row + 1} is too large to compute with in 32 bits",
            "Correct it, or scale the column",
        )
    return scale_of(numbers.drop_nulls().to_numpy())


def _fill_value(numbers: pl.Series, fill: str | float | None) -> float | None:
    if fill != "mean":
        return None if fill is None else float(fill)
    mean = numbers.mean()
    return float(mean) if isinstance(mean, (int, float)) else 0.0  # a column without any number has no mean


def _filled(numbers: pl.Series, column: dict[str, Any], title: str, *, trained: bool) -> np.ndarray:
    missing, fill = numbers.is_null(), column["fill"]
    if missing.any():
        if fill is None:
            raise _missing_cell(title, missing, trained=trained)
        numbers = numbers.fill_null(fill)
    values = numbers.to_numpy()
    with np.errstate(over="ignore"):
        narrow = ((values - column.get("shift", 0.0)) / column.get("scale", 1.0)).astype(np.float32)
    if not np.isfinite(narrow).all():
        row = int(np.flatnonzero(~np.isfinite(narrow))[0])
        raise Node2SeqError(
            title,
            f"column {numbers.name!r}: {values[row]} in row {row + 1} is not a finite 32-bit number",
            "Correct it, or scale the column",
        )
    return narrow


def _missing_cell(title: str, missing: pl.Series, *, trained: bool) -> Node2SeqError:
    row = int(missing.arg_max() or 0) + 1
    count = int(missing.sum())
    cells = "1 cell is" if count == 1 else f"{count} cells are"
    return Node2SeqError(
        title,
        f"column {missing.name!r}: {cells} missing, the first in row {row}",
        "Fill them with fill='mean' or a number (--fill mean)"
        + ("" if trained else ", or leave the column out (--ignore)"),
    )


def _category(
    column: pl.Series, title: str, fill: str | float | None, *, forced: bool, wanted: bool
) -> dict[str, Any] | None:
    """How to encode a column of categories; None for one of so many that it is left out."""
    text = as_text(column, title)
    words = text.drop_nulls().unique()
    categories = sorted(
        words.filter(~words.str.to_lowercase().is_in([] if forced else _NO_CATEGORY)).to_list()
    )
    if len(categories) > _MOST_CATEGORIES and not forced:
        if not wanted:
            return None
        raise Node2SeqError(
            title,
            f"column {column.name!r} has {len(categories)} different values ({first_few(categories)})",
            f"Leave it out (--ignore {column.name}), or take it as categories (--categorical {column.name})",
        )
    return {
        "kind": "category",
        "name": column.name,
        "categories": categories,
        "fill": None if fill is None else "zero",
    }


def _onehot(
    cells: pl.Series, column: dict[str, Any], title: str, *, trained: bool
) -> tuple[np.ndarray, list[str]]:
    import polars as pl

    text = as_text(cells, title)
    absent = [word for word in text.drop_nulls().unique().to_list() if word.lower() in _NO_CATEGORY]
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


@dataclass(frozen=True)
class Labels:
    """What is predicted of each node.

    Args:
        y: Class numbers [N], −1 where a node has no label; numbers, float64, NaN where it has none; or
            whether each label holds, [N, labels], −1 where nothing is known of a node.
        names: The classes' or labels' names by number; none where numbers are predicted.
        target: What the schema keeps: the kind of the task, and how several labels are written.
    """

    y: np.ndarray
    names: list[str]
    target: dict[str, Any] = field(default_factory=lambda: {"kind": "classification"})

    @property
    def known(self) -> np.ndarray:
        """Which nodes have a label, [N]."""
        if self.y.ndim == 2:
            return self.y.min(axis=1) >= 0
        return ~np.isnan(self.y) if self.y.dtype.kind == "f" else self.y >= 0


# Fractions of more values than this are numbers to predict, and so are more whole numbers than that, unless
# they count classes: 0, 1, 2, … or 1, 2, 3, … with several nodes each.
_FEW_FRACTIONS, _FEW_WHOLE_NUMBERS = 10, 50
_NODES_OF_A_CLASS = 3


def choose_task(column: pl.Series, title: str, notes: list[str]) -> str:
    """What a label column asks for: the number itself, where there are many, otherwise a class."""
    import polars as pl

    text = as_text(column, title)
    text = _plain_numbers(text.set(text.str.to_lowercase().is_in(MISSING), None).drop_nulls())
    numbers = text.cast(pl.Float64, strict=False).unique().sort()
    if not len(numbers) or numbers.null_count() or not numbers.is_finite().all():
        return "classification"
    are_whole = bool((numbers == numbers.round()).all())
    if len(numbers) <= (_FEW_WHOLE_NUMBERS if are_whole else _FEW_FRACTIONS):
        return "classification"
    counts_up = are_whole and numbers[0] in (0, 1) and numbers[-1] - numbers[0] == len(numbers) - 1
    if counts_up and len(text) >= _NODES_OF_A_CLASS * len(numbers):
        return "classification"
    notes.append(
        f"column {column.name!r} holds {len(numbers)} different numbers: the number itself is predicted "
        "(regression); for classes, give --task classification"
    )
    return "regression"


def read_target_numbers(column: pl.Series, title: str, *, trained: bool) -> Labels:
    """The numbers to predict.

    Args:
        column: The label column.
        title: What the table is called in an error.
        trained: Whether they are of another graph than that of the training, and need not differ.
    """
    numbers = _numbers(column, title, strict="the number is to be predicted")
    assert numbers is not None
    y = numbers.fill_null(math.nan).to_numpy().astype(np.float64)
    wrong = np.flatnonzero(np.isinf(y) | (np.abs(y) > LARGEST))
    if wrong.size:
        row = int(wrong[0])
        raise Node2SeqError(
            title,
            f"column {column.name!r}: {y[row]} in row {row + 1} is too large to compute with in 32 bits",
            "Correct it, or scale the column",
        )
    known = np.unique(y[~np.isnan(y)])
    if not trained and known.size < 2:
        which = (
            f"all numbers in column {column.name!r} are {known[0]:g}"
            if known.size
            else (f"no node has a number in column {column.name!r}")
        )
        raise Node2SeqError(title, which, "Give different numbers, or name another column")
    return Labels(y, [], {"kind": "regression"})


# What separates the labels of a cell, as people write it.
_SEPARATORS = (";", "|", ",")
# So many of the cells hold one, and so many of their parts occur in several places, where there are several
# labels in a cell.
_SHARE_OF_SEVERAL = 0.1
_SHARE_OF_MOVING_PARTS = 0.5


def separator_of(text: pl.Series) -> str | None:
    """What separates labels in the cells of a column, if it seems to hold several in a cell.

    The parts of "a;c", "c" and "b;c" occur alone, or in more than one place; those of "Paris, France" do not.
    """
    for separator in _SEPARATORS:
        holding = text.str.contains(separator, literal=True)
        if not len(text) or holding.mean() < _SHARE_OF_SEVERAL:  # pyright: ignore[reportOperatorIssue]
            continue
        places: dict[str, set[int]] = {}
        for cell in text.unique().to_list():
            parts = [part.strip() for part in cell.split(separator)]
            for place, part in enumerate(parts):
                places.setdefault(part, set()).add(place if len(parts) > 1 else -1)
        moving = sum(len(found) > 1 for found in places.values())
        if moving >= _SHARE_OF_MOVING_PARTS * len(places):
            return separator
    return None


def check_single_labels(column: pl.Series, title: str) -> None:
    """Refuse to take "a;c" for one class unless the user says so."""
    text = as_text(column, title).drop_nulls()
    separator = separator_of(text)
    if separator is not None:
        example = next(cell for cell in text.to_list() if separator in cell)
        raise Node2SeqError(
            title,
            f"column {column.name!r} seems to hold several labels in a cell, as in {example!r}",
            f"Predict each of them with --label-separator {separator!r}, or take every different cell as a "
            "class with --task classification",
        )


def read_label_cells(column: pl.Series, title: str, separator: str, known: list[str] | None) -> Labels:
    """Several labels in each cell of one column; an empty cell is an unlabelled node.

    Args:
        column: The label column.
        title: What the table is called in an error.
        separator: What separates the labels of a cell.
        known: The labels of another graph, which a model was trained on; others are left out.
    """
    cells = as_text(column, title).to_list()
    parts = [
        None if cell is None else {part.strip() for part in cell.split(separator)} - {""} for cell in cells
    ]
    found = {part for own in parts if own is not None for part in own}
    names = _sorted_classes(list(found)) if known is None else known
    if known is None and len(names) < 2:
        raise Node2SeqError(
            title,
            f"column {column.name!r} holds {len(names)} different labels",
            "Give nodes of at least two labels, or another separator",
        )
    place = {name: number for number, name in enumerate(names)}
    y = np.zeros((len(cells), len(names)), dtype=np.int64)
    for row, own in enumerate(parts):
        if own is None:
            y[row] = -1
        else:
            y[row, [place[part] for part in own if part in place]] = 1
    return Labels(y, names, {"kind": "multi-label", "separator": separator, "columns": []})


def read_label_columns(frame: pl.DataFrame, title: str, notes: list[str]) -> Labels:
    """A column of zeros and ones for each label; a node with an empty cell is unlabelled."""
    y = np.empty((frame.height, frame.width), dtype=np.int64)
    for place, column in enumerate(frame):
        numbers = _numbers(column, title, strict="0 or 1 says whether a node has this label")
        assert numbers is not None
        values = numbers.fill_null(-1.0).to_numpy()
        wrong = np.flatnonzero(
            ~np.isin(values, (-1.0, 0.0, 1.0)) | (numbers == -1.0).fill_null(value=False).to_numpy()
        )
        if wrong.size:
            row = int(wrong[0])
            raise Node2SeqError(
                title,
                f"column {column.name!r}: {values[row]:g} in row {row + 1} is neither 0 nor 1",
                "Name columns of zeros and ones, or a single column to predict",
            )
        y[:, place] = values
    partly = (y < 0).any(1) & (y >= 0).any(1)
    if partly.any():
        notes.append(f"{int(partly.sum())} nodes have only some of the labels filled in: they are unlabelled")
        y[partly] = -1
    return Labels(y, frame.columns, {"kind": "multi-label", "separator": ";", "columns": frame.columns})


def read_labels(
    frame: pl.DataFrame,
    title: str,
    known: list[str] | None,
    notes: list[str],
    *,
    needs_pairs: bool,
    task: str | None = None,
    separator: str | None = None,
) -> Labels:
    """Number the classes, whole numbers by value, others by name; or read numbers or several labels.

    Args:
        frame: The label column; several for several labels.
        title: What the table is called in an error.
        known: The classes of another graph, which a model was trained on.
        notes: Gets what the user should know.
        needs_pairs: Whether each class needs two labelled nodes: one to train on, one to test on. A split
            column lifts this condition.
        task: What is predicted; None: as the column looks.
        separator: What separates several labels in a cell.
    """
    import polars as pl

    if frame.width > 1:
        return read_label_columns(frame, title, notes)
    column = frame.to_series()
    if separator is not None:
        return read_label_cells(column, title, separator, known)
    if task is None:
        check_single_labels(column, title)
    if (task or choose_task(column, title, notes)) == "regression":
        return read_target_numbers(column, title, trained=known is not None)
    text = as_text(column, title)
    absent = text.str.to_lowercase().is_in(_NO_CATEGORY).fill_null(value=False)
    if known is None and absent.any():
        words = text.filter(absent).unique().sort().to_list()
        notes.append(
            f"column {column.name!r}: {first_few(words)} is read as no label ({int(absent.sum())} nodes)"
        )
        text = text.set(absent, None)
    found = text.drop_nulls().unique().to_list()
    if known is not None:
        names = known
        new = sorted(set(found) - set(known))
        if new:
            notes.append(f"labels that were not there in training count as no label: {first_few(new)}")
    else:
        names = _sorted_classes(found)
        _check_classes(text, title, names, needs_pairs)
    numbered = range(len(names))
    y = text.replace_strict(pl.Series(names, dtype=pl.String), numbered, default=-1, return_dtype=pl.Int64)
    return Labels(y.to_numpy().astype(np.int64), list(names))


def _sorted_classes(found: list[str]) -> list[str]:
    try:
        return sorted(found, key=int)
    except ValueError:
        return sorted(found)


def _check_classes(text: pl.Series, title: str, names: list[str], needs_pairs: bool) -> None:
    if not names:
        raise Node2SeqError(
            title, f"no node has a label in column {text.name!r}", "Label some nodes, or name another column"
        )
    if len(names) == 1:
        raise Node2SeqError(
            title,
            f"all labels in column {text.name!r} are {names[0]!r}",
            "Give labels of at least two classes, or name another column",
        )
    counts = text.drop_nulls().alias("class").value_counts()  # the user's column may be called "count"
    lonely = sorted(counts.filter(counts["count"] == 1)["class"].to_list())
    if needs_pairs and lonely:
        which = subject(lonely, "class {} has", "{} classes ({}) have")
        raise Node2SeqError(
            title,
            f"column {text.name!r}: {which} only one labelled node; two are needed, to train and to test",
            "Label more nodes of it, clear its label, or give a split column",
        )


def read_split(column: pl.Series, known: np.ndarray, title: str, notes: list[str]) -> dict[str, np.ndarray]:
    """The train, val and test masks; unlabelled nodes are in none."""
    text = as_text(column, title).str.to_lowercase()
    wrong = [value for value in text.drop_nulls().unique().sort().to_list() if value not in _PART_OF]
    if wrong:
        raise Node2SeqError(
            title,
            f"column {column.name!r} holds {first_few(wrong)}",
            "Say train, val or test, or leave it empty",
        )
    parts = np.array([_PART_OF.get(value or "", "") for value in text.to_list()])
    masks = {part: (parts == part) & known for part in _PARTS}
    for part, mask in masks.items():
        if not mask.any():
            raise Node2SeqError(
                title, f"column {column.name!r} puts no labelled node into {part}", "Put some nodes into it"
            )
    without = int(((parts != "") & ~known).sum())
    if without:
        notes.append(f"{without} nodes are in the split but have no label: they are in no part")
    return masks


# A column of which so many cells are zero stays a column of zeros and a few numbers: it is not shifted.
_MOSTLY_ZERO = 0.5


def scale_of(values: np.ndarray) -> tuple[float, float]:
    """What to subtract from a column and what to divide it by then.

    Zeros and ones stay as they are. A column that is mostly zeros, as word counts are, is divided by its
    largest size, so that zeros stay zeros. Any other gets mean 0 and standard deviation 1.

    Args:
        values: The numbers of the column, without missing ones.
    """
    values = values.astype(np.float64, copy=False)
    if not values.size or ((values == 0) | (values == 1)).all():
        return 0.0, 1.0
    if (values == 0).mean() >= _MOSTLY_ZERO:
        return 0.0, float(np.abs(values).max())
    mean, deviation = float(values.mean()), float(values.std())
    # Equal numbers differ from their mean by a rounding at most.
    is_constant = deviation <= 1e-12 * max(abs(mean), 1e-300)
    return mean, 1.0 if is_constant else deviation


def standardize(x: np.ndarray) -> np.ndarray:
    """A matrix [N, C] with each of its columns scaled."""
    scales = np.array([scale_of(column) for column in x.T]).reshape(-1, 2)
    return ((x.astype(np.float64) - scales[:, 0]) / scales[:, 1]).astype(np.float32)

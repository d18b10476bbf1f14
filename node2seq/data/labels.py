"""The columns of a nodes table → what is predicted, and a split."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from node2seq.data.categories import NO_CATEGORY
from node2seq.data.encoding import LARGEST, as_numbers, plain_numbers
from node2seq.data.splits import PARTS, labelled
from node2seq.data.tabular import as_text, check_cells, first_few, given_text, pl, subject
from node2seq.environment import LazyModule
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

#: The part of a split that each word stands for.
PART_OF = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}

# What separates the labels of a cell, as people write it.
_SEPARATORS = (";", "|", ",")
# So many of the cells hold one, and so many of their parts occur in several places, where there are several
# labels in a cell.
_SHARE_OF_SEVERAL = 0.1
_SHARE_OF_MOVING_PARTS = 0.5
# Fractions of more values than this are numbers to predict, and so are more whole numbers than that, unless
# they count classes: 0, 1, 2, … or 1, 2, 3, … with several nodes each.
_FEW_FRACTIONS, _FEW_WHOLE_NUMBERS = 10, 50
_NODES_OF_A_CLASS = 3


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
        return labelled(torch.from_numpy(self.y)).numpy()


def choose_task(column: pl.Series, title: str, notes: list[str], count: int | None = None) -> str:
    """What a label column asks for: the number itself, where there are many, otherwise a class.

    Args:
        column: Its cells.
        title: What the table is called in an error.
        notes: Gets what was chosen, if it may surprise.
        count: How many labelled nodes there are, if the column lists each different cell once.
    """
    text = plain_numbers(given_text(column, title).drop_nulls())
    cells = text.cast(pl.Float64, strict=False)
    numbers = cells.drop_nulls().unique().sort()
    are_whole = bool((numbers == numbers.round()).all())
    # A word among class numbers is a class; among fractions it is a slip, which the reader then names.
    if not len(numbers) or (cells.null_count() and (are_whole or 2 * cells.null_count() > len(cells))):
        return "classification"
    if len(numbers) <= (_FEW_WHOLE_NUMBERS if are_whole else _FEW_FRACTIONS):
        return "classification"
    counts_up = are_whole and numbers[0] in (0, 1) and numbers[-1] - numbers[0] == len(numbers) - 1
    if counts_up and (count or len(text)) >= _NODES_OF_A_CLASS * len(numbers):
        return "classification"
    notes.append(
        f"column {column.name!r} holds {len(numbers)} different numbers: the number itself is predicted "
        "(regression); for classes, give --task classification"
    )
    return "regression"


def read_target_numbers(column: pl.Series, title: str, *, trained: bool, before: int = 0) -> Labels:
    """The numbers to predict.

    Args:
        column: The label column.
        title: What the table is called in an error.
        trained: Whether they are of another graph than that of the training, and need not differ.
        before: How many rows of the table come before these.
    """
    numbers = as_numbers(
        column,
        title,
        strict="the number is to be predicted",
        before=before,
        instead=", or give --task classification",
    )
    assert numbers is not None
    y = numbers.fill_null(math.nan).to_numpy().astype(np.float64)
    wrong = ("is too large to compute with in 32 bits", "Correct it, or scale the column")
    check_cells(~(np.abs(y) > LARGEST), title, column.name, y.__getitem__, *wrong, before)
    known = np.unique(y[~np.isnan(y)])
    if not trained and known.size < 2:
        which = (
            f"all numbers in column {column.name!r} are {known[0]:g}"
            if known.size
            else (f"no node has a number in column {column.name!r}")
        )
        raise Node2SeqError(title, which, "Give different numbers, or name another column")
    return Labels(y, [], {"kind": "regression"})


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
    names = sorted_classes(list(found)) if known is None else known
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
        numbers = as_numbers(column, title, strict="0 or 1 says whether a node has this label")
        assert numbers is not None
        check_cells(
            numbers.is_in([0.0, 1.0]).fill_null(value=True).to_numpy(),
            title,
            column.name,
            lambda row, numbers=numbers: f"{numbers[row]:g}",
            "is neither 0 nor 1",
            "Name columns of zeros and ones, or a single column to predict",
        )
        y[:, place] = numbers.fill_null(-1.0).to_numpy()
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
    absent = text.str.to_lowercase().is_in(NO_CATEGORY).fill_null(value=False)
    if known is None and absent.any():
        notes.append(no_label(column.name, text.filter(absent).unique().sort().to_list(), int(absent.sum())))
        text = text.set(absent, None)
    found = text.drop_nulls().unique().to_list()
    if known is not None:
        names = known
        new = sorted(set(found) - set(known))
        if new:
            notes.append(f"labels that were not there in training count as no label: {first_few(new)}")
    else:
        names = sorted_classes(found)
        check_classes(text, title, names, needs_pairs)
    return Labels(number_classes(text, names), list(names))


def no_label(name: str, words: list[str], nodes: int) -> str:
    """What to say of words that stand for a missing label."""
    return f"column {name!r}: {first_few(words)} is read as no label ({nodes} nodes)"


def sorted_classes(found: list[str]) -> list[str]:
    """Classes in the order of their numbers: whole numbers by value, others by name."""
    try:
        return sorted(found, key=int)
    except ValueError:
        return sorted(found)


def check_classes(text: pl.Series, title: str, names: list[str], needs_pairs: bool) -> None:
    """Refuse labels of fewer than two classes and, where pairs are needed, classes of a single node."""
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


def read_parts(column: pl.Series, title: str) -> np.ndarray:
    """The part of a split that each node is in: its place in :data:`PARTS` from 1, 0 for none, uint8."""
    text = as_text(column, title).str.to_lowercase()
    wrong = [value for value in text.drop_nulls().unique().sort().to_list() if value not in PART_OF]
    if wrong:
        raise Node2SeqError(
            title,
            f"column {column.name!r} holds {first_few(wrong)}",
            "Say train, val or test, or leave it empty",
        )
    numbers = {word: PARTS.index(part) + 1 for word, part in PART_OF.items()}
    return text.replace_strict(numbers, default=0, return_dtype=pl.UInt8).to_numpy()


def check_parts(counts: np.ndarray, title: str, name: str) -> None:
    """Refuse a split of which a part has no labelled node; ``counts`` has them by the parts' numbers."""
    for number, part in enumerate(PARTS, start=1):
        if not counts[number]:
            raise Node2SeqError(
                title, f"column {name!r} puts no labelled node into {part}", "Put some nodes into it"
            )


def read_split(column: pl.Series, known: np.ndarray, title: str, notes: list[str]) -> dict[str, np.ndarray]:
    """The train, val and test masks; unlabelled nodes are in none."""
    parts = read_parts(column, title)
    check_parts(np.bincount(parts[known], minlength=len(PARTS) + 1), title, column.name)
    if without := int(((parts > 0) & ~known).sum()):
        notes.append(f"{without} nodes are in the split but have no label: they are in no part")
    return {part: (parts == number) & known for number, part in enumerate(PARTS, start=1)}


def number_classes(text: pl.Series, names: list[str]) -> np.ndarray:
    """The number of each cell's class, −1 where it is none of these."""
    known = pl.Series(names, dtype=pl.String)
    numbers = text.replace_strict(known, range(len(names)), default=-1, return_dtype=pl.Int64)
    return numbers.to_numpy().copy()  # polars' own memory is read only

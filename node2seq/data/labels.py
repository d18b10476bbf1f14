"""Read the label column and the split column of a nodes table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from node2seq.data.columns import as_text, first_few, subject
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import polars as pl

_PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_PART_OF = {word: part for part, words in _PARTS.items() for word in words}


@dataclass(frozen=True)
class Labels:
    """Class numbers [N], −1 where a node has no label, and the classes' names by number."""

    y: np.ndarray
    names: list[str]


def read_labels(
    column: pl.Series, title: str, known: list[str] | None, notes: list[str], *, needs_pairs: bool
) -> Labels:
    """Number the classes: whole numbers by value, others by name. ``known`` are the classes of another graph.

    With ``needs_pairs``, each class needs two labelled nodes: one to train on, one to test on. A split column
    lifts this condition.
    """
    import polars as pl

    text = as_text(column, title)
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


def read_split(column: pl.Series, y: np.ndarray, title: str, notes: list[str]) -> dict[str, np.ndarray]:
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
    masks = {part: (parts == part) & (y >= 0) for part in _PARTS}
    for part, mask in masks.items():
        if not mask.any():
            raise Node2SeqError(
                title, f"column {column.name!r} puts no labelled node into {part}", "Put some nodes into it"
            )
    without = int(((parts != "") & (y < 0)).sum())
    if without:
        notes.append(f"{without} nodes are in the split but have no label: they are in no part")
    return masks

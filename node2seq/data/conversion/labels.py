"""The table of nodes → what is predicted, and a split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from node2seq.data.conversion.engine import CHUNK, Engine, Report, chunks_of
from node2seq.data.conversion.job import Job, reported
from node2seq.data.encoding import NO_CATEGORY
from node2seq.data.labels import (
    check_classes,
    check_parts,
    choose_task,
    known_labels,
    no_label,
    number_classes,
    read_parts,
    read_target_numbers,
    separator_of,
    sorted_classes,
)
from node2seq.data.splits import CLASSIFICATION, PARTS, REGRESSION
from node2seq.data.store import write_array
from node2seq.data.tabular import as_text, pl
from node2seq.errors import Node2SeqError

_MOST_CLASSES = 10_000


def read_labels(job: Job, report: Report) -> dict[str, Any]:
    """Write what is predicted of each node, and the split if there is a column of it."""
    request, table = job.request, job.table
    nodes = job.done["ids"]["nodes"]
    arrays: dict[str, Any] = {}
    about: dict[str, Any] = {"task": CLASSIFICATION, "names": [], "counts": {}}
    if request.label is None:
        blank = (np.full(min(CHUNK, nodes - i), -1, dtype=np.int64) for i in range(0, nodes, CHUNK))
        arrays["y"] = write_array(job.folder, "y", "<i8", blank)
    else:
        with job.engine() as engine:
            about = _choose_labels(job, engine, request.label)
        kind = "<f8" if about["task"] == REGRESSION else "<i8"
        chunks = _label_chunks(job, request.label, about)
        arrays["y"] = write_array(job.folder, "y", kind, reported(chunks, nodes, report))
    if request.split is not None:
        frames = chunks_of(table.files, [request.split])
        parts = (read_parts(frame.to_series(), table.title) for frame in frames)
        arrays["split"] = write_array(job.folder, "split", "|u1", parts)
        _check_split(job, request.split, arrays["y"])
    about["labelled"], about["target"] = _describe_labels(job, arrays["y"], table.title)
    return {"arrays": arrays, **about}


def _choose_labels(job: Job, engine: Engine, label: str) -> dict[str, Any]:
    table, title = job.table, job.nodes.title
    limit = _MOST_CLASSES + 1
    cells = f"SELECT {table.text_of(label)} AS cell FROM {table.sql}"
    query = f"SELECT cell, count(*) FROM ({cells}) WHERE cell IS NOT NULL GROUP BY 1 ORDER BY 1 LIMIT {limit}"
    counts = {str(cell): int(count) for cell, count in engine.rows(query, title)}
    text = pl.Series(label, list(counts), dtype=pl.String)
    task, known = job.request.task, sum(counts.values())
    if task is None and (separator := separator_of(text)) is not None:
        raise Node2SeqError(
            title,
            f"column {label!r} seems to hold several labels in a cell, separated by {separator!r}; "
            "a store keeps one for each node",
            "Take every different cell as a class with --task classification, or train from the files",
        )
    task = task or choose_task(text, title, job.notes, known)
    if task == REGRESSION:
        return {"task": task, "names": [], "counts": {}}
    absent = [cell for cell in counts if cell.lower() in NO_CATEGORY]
    if absent:
        job.notes.append(no_label(label, absent, sum(counts.pop(cell) for cell in absent)))
    if len(counts) >= limit:
        raise Node2SeqError(
            title, f"column {label!r} holds more than {_MOST_CLASSES} classes", "Name another column"
        )
    names = sorted_classes(list(counts))
    # Two of each are enough to tell which classes have one node alone.
    few = pl.Series(label, [name for name in names for _ in range(min(counts[name], 2))], dtype=pl.String)
    check_classes(few, title, names, needs_pairs=job.request.split is None)
    return {"task": task, "names": names, "counts": {name: counts[name] for name in names}}


def _label_chunks(job: Job, label: str, about: dict[str, Any]) -> Iterator[np.ndarray]:
    title, row = job.nodes.title, 0
    for frame in chunks_of(job.table.files, [label]):
        if about["task"] == REGRESSION:
            yield read_target_numbers(frame[label], title, trained=True, before=row).y
        else:
            yield number_classes(as_text(frame[label], title), about["names"])
        row += frame.height


def _check_split(job: Job, split: str, entry: dict[str, Any]) -> None:
    """Refuse a split of which a part has no labelled node."""
    parts = np.memmap(job.folder / "split.bin", dtype=np.uint8, mode="r")
    y = np.memmap(job.folder / "y.bin", dtype=entry["dtype"], mode="r")
    there = np.zeros(len(PARTS) + 1, dtype=np.int64)
    for start in range(0, parts.size, CHUNK):
        known = known_labels(y[start : start + CHUNK])
        there += np.bincount(parts[start : start + CHUNK][known], minlength=len(PARTS) + 1)
    check_parts(there, job.nodes.title, split)


def _describe_labels(job: Job, entry: dict[str, Any], title: str) -> tuple[int, dict[str, float]]:
    """How many nodes are labelled, and the range of numbers to predict."""
    y = np.memmap(job.folder / "y.bin", dtype=entry["dtype"], mode="r")
    if y.dtype.kind != "f":
        return sum(int((y[i : i + CHUNK] >= 0).sum()) for i in range(0, y.size, CHUNK)), {}
    known = np.array(y[~np.isnan(y)])
    if np.unique(known).size < 2:
        raise Node2SeqError(title, "all numbers to predict are equal or missing", "Name another column")
    figures = {"mean": known.mean(), "sd": known.std(), "least": known.min(), "largest": known.max()}
    return known.size, {name: float(value) for name, value in figures.items()}

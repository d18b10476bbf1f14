"""The table of nodes → what is predicted, and a split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from node2seq.data.conversion.engine import CHUNK, Engine, Report, chunks_of, literal
from node2seq.data.conversion.job import Job, reported
from node2seq.data.encoding import NO_CATEGORY
from node2seq.data.labels import (
    PART_OF,
    check_classes,
    choose_task,
    read_target_numbers,
    separator_of,
    sorted_classes,
)
from node2seq.data.splits import CLASSIFICATION, REGRESSION
from node2seq.data.store import PARTS, write_array
from node2seq.data.tabular import MISSING, as_text, first_few, pl
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
        with job.engine() as engine:
            _check_split_words(job, engine, request.split)
        arrays["split"] = write_array(job.folder, "split", "|u1", _split_chunks(job, request.split))
        _check_split_parts(job, request.split, arrays["y"])
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
        _check_numbers(job, engine, label)
        return {"task": task, "names": [], "counts": {}}
    absent = [cell for cell in counts if cell.lower() in NO_CATEGORY]
    if absent:
        nodes = sum(counts.pop(cell) for cell in absent)
        job.notes.append(f"column {label!r}: {first_few(absent)} is read as no label ({nodes} nodes)")
    if len(counts) >= limit:
        raise Node2SeqError(
            title, f"column {label!r} holds more than {_MOST_CLASSES} classes", "Name another column"
        )
    names = sorted_classes(list(counts))
    # Two of each are enough to tell which classes have one node alone.
    few = pl.Series(label, [name for name in names for _ in range(min(counts[name], 2))], dtype=pl.String)
    check_classes(few, title, names, needs_pairs=job.request.split is None)
    return {"task": task, "names": names, "counts": {name: counts[name] for name in names}}


def _check_numbers(job: Job, engine: Engine, label: str) -> None:
    """Refuse cells that are no numbers where numbers are predicted."""
    table = job.table
    cells = f"SELECT {table.text_of(label)} AS cell FROM {table.sql}"
    gone = ", ".join(literal(word) for word in MISSING)
    wrong = "replace(cell, ',', '') IS NOT NULL AND try_cast(replace(cell, ',', '') AS DOUBLE) IS NULL"
    query = f"SELECT cell FROM ({cells}) WHERE {wrong} AND lower(cell) NOT IN ({gone}) LIMIT 1"
    if found := engine.rows(query, table.title):
        raise Node2SeqError(
            job.nodes.title,
            f"column {label!r}: {found[0][0]!r} is not a number; the number is to be predicted",
            "Correct it, or give --task classification",
        )


def _label_chunks(job: Job, label: str, about: dict[str, Any]) -> Iterator[np.ndarray]:
    names = pl.Series(about["names"], dtype=pl.String)
    for frame in chunks_of(job.table.files, [label]):
        if about["task"] == REGRESSION:
            yield read_target_numbers(frame[label], job.nodes.title, trained=True).y
            continue
        text = as_text(frame[label], job.nodes.title)
        numbers = text.replace_strict(names, range(len(names)), default=-1, return_dtype=pl.Int64)
        yield numbers.to_numpy()


def _check_split_words(job: Job, engine: Engine, split: str) -> None:
    table = job.table
    words = f"SELECT DISTINCT lower({table.text_of(split)}) AS word FROM {table.sql}"
    found = [str(row[0]) for row in engine.rows(f"{words} ORDER BY 1 LIMIT 100", table.title) if row[0]]
    if wrong := [word for word in found if word not in PART_OF]:
        raise Node2SeqError(
            job.nodes.title,
            f"column {split!r} holds {first_few(wrong)}",
            "Say train, val or test, or leave it empty",
        )


def _split_chunks(job: Job, split: str) -> Iterator[np.ndarray]:
    numbers = {word: PARTS.index(part) + 1 for word, part in PART_OF.items()}
    for frame in chunks_of(job.table.files, [split]):
        text = as_text(frame[split], job.nodes.title).str.to_lowercase()
        yield text.replace_strict(numbers, default=0, return_dtype=pl.UInt8).to_numpy()


def _check_split_parts(job: Job, split: str, entry: dict[str, Any]) -> None:
    parts = np.memmap(job.folder / "split.bin", dtype=np.uint8, mode="r")
    y = np.memmap(job.folder / "y.bin", dtype=entry["dtype"], mode="r")
    there = np.zeros(len(PARTS) + 1, dtype=np.int64)
    for start in range(0, parts.size, CHUNK):
        chunk = y[start : start + CHUNK]
        known = ~np.isnan(chunk) if chunk.dtype.kind == "f" else chunk >= 0
        there += np.bincount(parts[start : start + CHUNK][known], minlength=len(PARTS) + 1)
    for number, part in enumerate(PARTS, start=1):
        if not there[number]:
            raise Node2SeqError(
                job.nodes.title,
                f"column {split!r} puts no labelled node into {part}",
                "Put some into it",
            )


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

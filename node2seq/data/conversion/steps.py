"""The steps of a conversion: the tables of nodes and edges → the arrays of a store.

They write the nodes' ids and features, what is predicted of them and their split, then the sources of the
edges by target, each edge once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from node2seq.data.categories import NO_CATEGORY
from node2seq.data.conversion.columns import choose_encoding_by_chunks, flat
from node2seq.data.conversion.engine import CHUNK, Engine, Report, chunks_of, literal, quoted_name
from node2seq.data.conversion.job import DTYPES, Job, reported
from node2seq.data.encoding import Encoding, encode, width
from node2seq.data.labels import (
    check_classes,
    check_parts,
    choose_task,
    no_label,
    number_classes,
    read_parts,
    read_target_numbers,
    separator_of,
    sorted_classes,
)
from node2seq.data.splits import CLASSIFICATION, PARTS, REGRESSION, labelled
from node2seq.data.store import map_array, write_array
from node2seq.data.tabular import as_text, first_few, pl, subject
from node2seq.errors import Node2SeqError

_MOST_NODES = 2**31 - 1
_MOST_CLASSES = 10_000
_KEYS = 2**21
# The half of a key that holds the source.
_LOW = 0xFFFFFFFF


def copy_nodes(job: Job, report: Report) -> dict[str, Any]:
    """Copy the columns that are used to a Parquet file, in their order."""
    names = ", ".join(quoted_name(name) for name in [*job.roles, *job.columns])
    query = f"SELECT {names} FROM {job.nodes.sql}"
    with job.engine() as engine:
        rows = engine.copy(
            query,
            job.work / "nodes.parquet",
            report,
            title=job.nodes.title,
            options="row_group_size 65536",
            ordered=True,
        )
    return {"rows": rows}


def number_nodes(job: Job, report: Report) -> dict[str, Any]:
    """Write each node's id and number to a file that edges are joined with."""
    table, path = job.table, job.work / "ids.parquet"
    columns = f"{job.id_of(table, job.id)} AS id, (row_number() OVER () - 1)::BIGINT AS node"
    with job.engine() as engine:
        query = f"SELECT {columns} FROM {table.sql}"
        rows = engine.copy(query, path, report, title=table.title, ordered=True)
        if not rows:
            raise Node2SeqError(table.title, "it has no rows", "Give at least one node")
        if rows > _MOST_NODES:
            raise Node2SeqError(table.title, f"it has {rows} nodes", f"Give at most {_MOST_NODES}")
        gone = engine.rows(f"SELECT min(node) FROM {literal(str(path))} WHERE id IS NULL")[0][0]
    if gone is not None:
        raise Node2SeqError(
            table.title, f"row {gone + 1} has no id in column {job.id!r}", "Give every node an id"
        )
    return {"nodes": rows}


def sort_ids(job: Job, report: Report) -> dict[str, Any]:
    """Write the ids, and the nodes in the order of their ids, none of which may occur twice."""
    ids, path = literal(str(job.work / "ids.parquet")), job.work / "order.parquet"
    query = f"SELECT node::INTEGER AS node, id::VARCHAR AS id FROM {ids} ORDER BY 2"
    with job.engine() as engine:
        engine.copy(query, path, lambda share: report(0.6 * share), title=job.nodes.title, ordered=True)
    texts = (np.frombuffer("".join(ids.to_list()).encode(), dtype=np.uint8) for ids in _id_chunks(job))
    arrays = {
        "id_order": write_array(job.folder, "id_order", "<i4", _ordered_nodes(job, path)),
        "id_text": write_array(job.folder, "id_text", "|u1", texts),
    }
    report(0.9)
    arrays["id_ptr"] = write_array(job.folder, "id_ptr", "<i8", _id_starts(job))
    path.unlink()
    return {"arrays": arrays}


def _ordered_nodes(job: Job, path: Path) -> Iterator[np.ndarray]:
    """The nodes in the order of their ids, none of which may occur twice."""
    last: str | None = None
    for frame in chunks_of([path], ["node", "id"], CHUNK):
        ids = frame["id"]
        before = pl.concat([pl.Series([last], dtype=pl.String), ids[:-1]])
        twice = ids.filter((ids == before).fill_null(value=False)).unique().to_list()
        if twice:
            which = subject(twice, "id {} occurs", "{} ids ({}) occur")
            raise Node2SeqError(job.nodes.title, f"{which} more than once", "Keep one row for each node")
        last = ids[-1]
        yield frame["node"].to_numpy()


def _id_chunks(job: Job) -> Iterator[pl.Series]:
    for frame in chunks_of([job.work / "ids.parquet"], ["id"], CHUNK):
        yield frame["id"].cast(pl.String)


def _id_starts(job: Job) -> Iterator[np.ndarray]:
    end = 0
    yield np.zeros(1, dtype=np.int64)
    for ids in _id_chunks(job):
        ends = end + np.cumsum(ids.str.len_bytes().to_numpy().astype(np.int64))
        yield ends
        end = int(ends[-1])


def _feature_chunks(job: Job, report: Report) -> Iterator[pl.DataFrame]:
    frames = flat(chunks_of(job.table.files, job.columns), job.widths, job.nodes.title)
    return reported(frames, job.done["ids"]["nodes"], report)


def choose_columns(job: Job, report: Report) -> dict[str, Any]:
    """Choose how to encode each column."""
    request, title = job.request, job.nodes.title
    encoding = choose_encoding_by_chunks(
        _feature_chunks(job, report),
        title,
        request.categorical,
        request.fill,
        standardize=not request.raw,
        wanted=request.features,
        notes=job.notes,
    )
    if not encoding:
        raise Node2SeqError(title, "no column is left to learn from", "Give columns of numbers or categories")
    return {"encoding": encoding}


def encode_features(job: Job, report: Report) -> dict[str, Any]:
    """Write the features."""
    encoding = job.done["columns"]["encoding"]
    kind = DTYPES["float16" if job.half else "float32"]
    chunks = (_encoded(job, frame, encoding, kind) for frame in _feature_chunks(job, report))
    return {"arrays": {"x": write_array(job.folder, "x", kind, chunks, width(encoding))}}


def _encoded(job: Job, frame: pl.DataFrame, encoding: Encoding, kind: str) -> np.ndarray:
    x, _ = encode(frame, job.nodes.title, encoding)
    with np.errstate(over="ignore"):
        narrow = x.astype(kind)
    if not np.isfinite(narrow).all():
        raise Node2SeqError(
            job.nodes.title,
            "features are too large for 16 bits",
            "Give --dtype float32, or leave out --raw",
        )
    return narrow


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
        _check_split(job, request.split, arrays)
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


def _check_split(job: Job, split: str, arrays: dict[str, Any]) -> None:
    """Refuse a split of which a part has no labelled node."""
    parts, y = map_array(job.folder, arrays["split"]), map_array(job.folder, arrays["y"])
    there = np.zeros(len(PARTS) + 1, dtype=np.int64)
    for start in range(0, parts.size, CHUNK):
        known = labelled(torch.from_numpy(y[start : start + CHUNK])).numpy()
        there += np.bincount(parts[start : start + CHUNK][known], minlength=len(PARTS) + 1)
    check_parts(there, job.nodes.title, split)


def _describe_labels(job: Job, entry: dict[str, Any], title: str) -> tuple[int, dict[str, float]]:
    """How many nodes are labelled, and the range of numbers to predict."""
    y = map_array(job.folder, entry)
    if y.dtype.kind != "f":
        return sum(int((y[i : i + CHUNK] >= 0).sum()) for i in range(0, y.size, CHUNK)), {}
    known = np.array(y[~np.isnan(y)])
    if np.unique(known).size < 2:
        raise Node2SeqError(title, "all numbers to predict are equal or missing", "Name another column")
    figures = {"mean": known.mean(), "sd": known.std(), "least": known.min(), "largest": known.max()}
    return known.size, {name: float(value) for name, value in figures.items()}


def join_edges(job: Job, report: Report) -> dict[str, Any]:
    """Write each edge as one number: target · 2³² + source."""
    table, ids, path = job.edges, literal(str(job.work / "ids.parquet")), job.work / "keys.parquet"
    source, target = (job.id_of(table, name) for name in (job.source, job.target))
    pairs = f"SELECT {source} AS s, {target} AS t FROM {table.sql}"
    query = (
        f"SELECT (b.node << 32) | a.node AS key FROM ({pairs}) e "
        f"LEFT JOIN {ids} a ON e.s = a.id LEFT JOIN {ids} b ON e.t = b.id"
    )
    with job.engine() as engine:
        given = engine.copy(query, path, report, title=table.title, options="compression uncompressed")
        known, loops = engine.rows(
            f"SELECT count(key), count_if(key >> 32 = key & {_LOW}) FROM {literal(str(path))}"
        )[0]
        if known < given:
            path.unlink()
            raise _unknown_ends(job, engine, pairs, ids)
    return {"given": given, "self_loops": int(loops or 0)}


def _unknown_ends(job: Job, engine: Engine, pairs: str, ids: str) -> Node2SeqError:
    title = job.edges.title
    empty = engine.rows(f"SELECT count(*) FROM ({pairs}) WHERE s IS NULL OR t IS NULL", title)[0][0]
    if empty:
        return Node2SeqError(
            title, f"{empty} rows have no id at one of their ends", "Complete the rows, or remove them"
        )
    both = f'SELECT s AS "end" FROM ({pairs}) UNION SELECT t FROM ({pairs})'
    query = f'SELECT "end"::VARCHAR FROM ({both}) e ANTI JOIN {ids} i ON e."end" = i.id ORDER BY 1 LIMIT 4'
    names = [str(row[0]) for row in engine.rows(query, title)]
    which = f"id {names[0]!r} is" if len(names) == 1 else f"ids {first_few(names)} are"
    return Node2SeqError(title, f"{which} not in {job.nodes.title}", "Add these nodes, or remove their edges")


def sort_edges(job: Job, report: Report) -> dict[str, Any]:
    """Sort these numbers; an undirected edge has two of them, self loops have none."""
    keys, path = literal(str(job.work / "keys.parquet")), job.work / "sorted.parquet"
    pairs = f"SELECT key FROM {keys}"
    if not job.request.directed:
        pairs += f" UNION ALL SELECT ((key & {_LOW}) << 32) | (key >> 32) AS key FROM {keys}"
    query = f"SELECT key FROM ({pairs}) WHERE key >> 32 <> key & {_LOW} ORDER BY key"
    options = "compression uncompressed, parquet_version v2"  # differences of sorted keys take few bits
    with job.engine() as engine:
        rows = engine.copy(query, path, report, title=job.edges.title, options=options, ordered=True)
    return {"rows": rows}


def write_edges(job: Job, report: Report) -> dict[str, Any]:
    """Write the source of each edge, and where the edges into each node start."""
    nodes, rows = job.done["ids"]["nodes"], job.done["sort"]["rows"]
    (job.work / "keys.parquet").unlink(missing_ok=True)
    labels = job.done["labels"]
    classes = map_array(job.folder, labels["arrays"]["y"]) if labels["names"] else None
    counted = _EdgeCounter(nodes, job.request.directed, classes)
    frames = reported(chunks_of([job.work / "sorted.parquet"], ["key"], _KEYS), rows, report)
    sources = counted.sources(frame["key"].to_numpy() for frame in frames)
    arrays = {"row": write_array(job.folder, "row", "<i4", sources)}
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counted.into)])
    arrays["colptr"] = write_array(job.folder, "colptr", "<i8", [ends])
    touched = counted.into
    if counted.out is not None:
        arrays["out_degree"] = write_array(job.folder, "out_degree", "<i4", [counted.out])
        touched = touched + counted.out
    return {
        "arrays": arrays,
        "edges": int(ends[-1]),
        "isolated": int((touched == 0).sum()),
        "largest_degree": int(touched.max()),
        "homophily": counted.homophily,
    }


class _EdgeCounter:
    """Counts edges while they are written.

    Args:
        nodes: Of the graph.
        directed: Whether edges that leave a node are counted too.
        classes: Of each node, if classes are predicted.
    """

    def __init__(self, nodes: int, directed: bool, classes: np.ndarray | None) -> None:
        self.into = np.zeros(nodes, dtype=np.int64)
        self.out = np.zeros(nodes, dtype=np.int64) if directed else None
        self._classes, self._same, self._pairs = classes, 0, 0

    @property
    def homophily(self) -> float | None:
        """The share of edges between labelled nodes that join two of one class."""
        return self._same / self._pairs if self._pairs else None

    def sources(self, keys: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The source of each edge of keys (target · 2³² + source) in order, each edge once."""
        last = -1
        for key in keys:
            first = np.empty(key.size, dtype=bool)
            first[0], first[1:] = key[0] != last, key[1:] != key[:-1]
            last = int(key[-1])
            key = key if first.all() else key[first]
            if not key.size:
                continue
            target, source = key >> 32, key & _LOW
            low, high = int(target[0]), int(target[-1])
            self.into[low : high + 1] += np.bincount(target - low, minlength=high - low + 1)
            if self.out is not None:
                self.out += np.bincount(source, minlength=self.out.size)
            if self._classes is not None:
                one, other = self._classes[source], self._classes[target]
                known = (one >= 0) & (other >= 0)
                self._pairs += int(known.sum())
                self._same += int((known & (one == other)).sum())
            yield source.astype(np.int32)

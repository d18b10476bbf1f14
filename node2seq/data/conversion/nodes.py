"""The table of nodes → their ids and features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from node2seq.data.conversion.columns import choose_encoding_by_chunks, flat
from node2seq.data.conversion.engine import CHUNK, Report, chunks_of, literal, quoted_name
from node2seq.data.conversion.job import DTYPES, Job, reported
from node2seq.data.encoding import Encoding, encode, width
from node2seq.data.store import write_array
from node2seq.data.tabular import pl, subject
from node2seq.errors import Node2SeqError

_MOST_NODES = 2**31 - 1


def copy_nodes(job: Job, report: Report) -> dict[str, Any]:
    """Copy the columns that are used to a Parquet file, in their order."""
    roles = [name for name in (job.id, job.request.label, job.request.split) if name is not None]
    names = ", ".join(quoted_name(name) for name in dict.fromkeys([*roles, *job.columns]))
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
    as_number = job.joins_numbers
    key = quoted_name(job.id) + "::BIGINT" if as_number else table.text_of(job.id)
    query = f"SELECT {key} AS id, (row_number() OVER () - 1)::BIGINT AS node FROM {table.sql}"
    with job.engine() as engine:
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
    arrays = {
        "id_order": write_array(job.folder, "id_order", "<i4", _ordered_nodes(job, path)),
        "id_text": write_array(job.folder, "id_text", "|u1", _id_texts(job)),
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


def _id_texts(job: Job) -> Iterator[np.ndarray]:
    for ids in _id_chunks(job):
        yield np.frombuffer("".join(ids.to_list()).encode(), dtype=np.uint8)


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

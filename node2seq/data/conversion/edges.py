"""The table of edges → sources by target, each edge once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from node2seq.data.conversion.engine import Engine, Report, chunks_of, literal, quoted_name
from node2seq.data.conversion.job import Job
from node2seq.data.store import write_array
from node2seq.data.tabular import first_few
from node2seq.errors import Node2SeqError

_KEYS = 2**21
# The half of a key that holds the source.
_LOW = 0xFFFFFFFF


def join_edges(job: Job, report: Report) -> dict[str, Any]:
    """Write each edge as one number: target · 2³² + source."""
    table, ids, path = job.edges, literal(str(job.work / "ids.parquet")), job.work / "keys.parquet"
    if job.joins_numbers:
        ends = [f"{quoted_name(name)}::BIGINT" for name in (job.source, job.target)]
    else:
        ends = [table.text_of(name) for name in (job.source, job.target)]
    pairs = f"SELECT {ends[0]} AS s, {ends[1]} AS t FROM {table.sql}"
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
    counted = _Counted(nodes, job.request.directed, _classes(job))
    arrays = {"row": write_array(job.folder, "row", "<i4", counted.sources(_sorted(job, report, rows)))}
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


def _classes(job: Job) -> np.ndarray | None:
    labels = job.done["labels"]
    if not labels["names"]:
        return None
    return np.asarray(np.memmap(job.folder / "y.bin", dtype="<i8", mode="r"))


def _sorted(job: Job, report: Report, rows: int) -> Iterator[np.ndarray]:
    seen = 0
    for frame in chunks_of([job.work / "sorted.parquet"], ["key"], _KEYS):
        yield frame["key"].to_numpy()
        seen += frame.height
        report(seen / rows)


class _Counted:
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

    def sources(self, keys: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
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

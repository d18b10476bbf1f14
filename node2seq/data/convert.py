"""Files larger than memory → a store (:mod:`node2seq.data.store`), step by step.

DuckDB joins ids and sorts edges within a limit of memory; features and labels are read in chunks. Every step
writes files under temporary names and renames them, and then enters itself in a journal: a conversion that
was killed resumes with the step that it was at, and ends with the same bytes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from node2seq.data.conversion.engine import Report, Table, parse_size
from node2seq.data.conversion.job import Job, Request
from node2seq.data.conversion.steps import (
    choose_columns,
    copy_nodes,
    encode_features,
    join_edges,
    number_nodes,
    read_labels,
    sort_edges,
    sort_ids,
    write_edges,
)
from node2seq.data.encoding import described_columns, width
from node2seq.data.graph import estimate
from node2seq.data.schema import make_schema
from node2seq.data.splits import REGRESSION
from node2seq.data.store import JOURNAL, MANIFEST, StoredGraph, write_manifest
from node2seq.data.tabular import pl
from node2seq.errors import Node2SeqError
from node2seq.storage import (
    LOCK_FILES,
    DiskFullError,
    locked,
    make_folder,
    read_json,
    remove_leftovers,
    write_json,
)

__all__ = ["Progress", "Request", "convert"]

WORK = "work"
FORMAT = 1
DEFAULT_MEMORY = "4GB"
_LEAST_MEMORY = 256 * 10**6


@dataclass(frozen=True)
class Progress:
    """How far a conversion is.

    Args:
        step: The number of the step, from 1.
        steps: How many there are.
        title: What is done.
        share: Of all work, 0 to 1.
        seconds_left: An estimate; None while nothing is known.
    """

    step: int
    steps: int
    title: str
    share: float
    seconds_left: float | None


OnProgress = Callable[[Progress], None]


def convert(
    request: Request,
    out: str | Path,
    *,
    memory: str = DEFAULT_MEMORY,
    on_progress: OnProgress | None = None,
) -> StoredGraph:
    """Make a store of files; resume if an earlier process was stopped or killed.

    Args:
        request: What to convert.
        out: The folder of the store.
        memory: What the conversion may take, such as ``"4GB"``.
        on_progress: Called often.

    Raises:
        DiskFullError: If the disk is full. What was done is kept, and the same call resumes.
    """
    folder, limit = Path(out), parse_size(memory)
    if limit < _LEAST_MEMORY:
        raise Node2SeqError(f"memory {memory}", "it is too little to convert anything", "Give 256MB or more")
    _check_free(folder)
    begun = not folder.exists()
    make_folder(folder / WORK)
    try:
        with locked(folder):
            _Conversion(request, folder, limit, on_progress or (lambda _: None)).run()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Stopped. Run the same command to resume.") from None
    except Node2SeqError as error:
        if begun and not (folder / JOURNAL).exists():  # what cannot be begun leaves no folder behind
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, DiskFullError):
            cure = "Free some space, then run the same command again: it resumes where it stopped"
            raise DiskFullError(error.given, error.reason, cure) from error
        raise
    return StoredGraph(folder)


def _check_free(folder: Path) -> None:
    """Refuse a folder that holds something else."""
    if not folder.exists():
        return
    own = folder.is_dir() and any((folder / name).is_file() for name in (MANIFEST, JOURNAL))
    if not own and (
        not folder.is_dir() or any(entry.name not in (WORK, *LOCK_FILES) for entry in folder.iterdir())
    ):
        raise Node2SeqError(
            str(folder), "it exists, and there is something else than a store in it", "Give another folder"
        )


@dataclass
class _Step:
    name: str
    title: str
    weight: float
    run: Callable[[Job, Report], dict[str, Any]]


@dataclass
class _Clock:
    """Estimates the time that is left from the work that this process has done."""

    total: float
    done: float
    started: float = field(default_factory=time.monotonic)
    here: float = 0.0

    def left(self, within: float) -> float | None:
        """Seconds left, where ``within`` is the work done of the present step."""
        worked = self.here + within
        seconds = time.monotonic() - self.started
        if worked <= 0 or seconds < 1:
            return None
        return seconds / worked * max(self.total - self.done - worked, 0.0)


class _Conversion:
    """One conversion: its tables, its steps and its journal.

    Args:
        request: What to convert.
        folder: The store.
        memory: Bytes that it may take.
        on_progress: Called often.
    """

    def __init__(self, request: Request, folder: Path, memory: int, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self.job = Job(request, folder, folder / WORK, memory)

    def run(self) -> None:
        """Take the steps that are left."""
        if (self.job.folder / MANIFEST).is_file():
            if StoredGraph(self.job.folder).manifest.get("request") != self._identity:
                raise Node2SeqError(
                    str(self.job.folder),
                    "it is a store of other files, or of these with other options, and nothing is "
                    "overwritten",
                    "Give another folder, or remove this one",
                )
            self._clean()
            return
        self._resume()
        self._begin()
        steps = self._steps()
        finished = sum(step.weight for step in steps if step.name in self.job.done)
        clock = _Clock(sum(step.weight for step in steps), finished)
        for number, step in enumerate(steps, start=1):
            if step.name not in self.job.done:
                self._take(step, number, len(steps), clock)
        self._write_manifest()
        self._clean()

    def _take(self, step: _Step, number: int, steps: int, clock: _Clock) -> None:
        def report(share: float) -> None:
            within = step.weight * min(max(share, 0.0), 1.0)
            overall = (clock.done + clock.here + within) / clock.total
            self._on_progress(Progress(number, steps, step.title, overall, clock.left(within)))

        report(0.0)
        self.job.done[step.name] = step.run(self.job, report)
        self._write_journal()
        clock.here += step.weight
        report(0.0)

    @property
    def _identity(self) -> dict[str, Any]:
        """What decides the content of the store, ready for JSON."""
        request = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self.job.request).items()
        }
        for name, table in (("edges", self.job.edges), ("nodes", self.job.nodes)):
            request[name] = [[file.name, file.stat().st_size] for file in table.files]
        return request

    @property
    def _times(self) -> list[int]:
        return [file.stat().st_mtime_ns for table in (self.job.edges, self.job.nodes) for file in table.files]

    def _resume(self) -> None:
        """Take up what an earlier process has done; of files that were corrected since, nothing."""
        path = self.job.folder / JOURNAL
        journal = read_json(path) if path.is_file() else {"format": FORMAT, "request": self._identity}
        if journal.get("format") != FORMAT or _without_sizes(journal["request"]) != _without_sizes(
            self._identity
        ):
            raise Node2SeqError(
                str(self.job.folder),
                "a conversion of other files or with other options was begun there",
                "Give the same files and options, or another folder, or remove this one",
            )
        if journal["request"] == self._identity and journal.get("times") == self._times:
            self.job.done, self.job.notes = journal["done"], journal["notes"]

    def _begin(self) -> None:
        """Make sure that there is room, and remove what cannot be used."""
        self._check_space()
        if not self.job.done:
            shutil.rmtree(self.job.work, ignore_errors=True)
            make_folder(self.job.work)
            self._write_journal()
        for folder in (self.job.folder, self.job.work):
            remove_leftovers(folder)

    def _write_journal(self) -> None:
        known = {"format": FORMAT, "request": self._identity, "times": self._times}
        write_json(self.job.folder / JOURNAL, {**known, "done": self.job.done, "notes": self.job.notes})

    def _clean(self) -> None:
        shutil.rmtree(self.job.work, ignore_errors=True)
        (self.job.folder / JOURNAL).unlink(missing_ok=True)
        remove_leftovers(self.job.folder)

    def _steps(self) -> list[_Step]:
        """All steps; weights are about the seconds of a processor, measured on 1M nodes and 10M edges."""
        nodes, edges = (self._sizes[name] / 1e6 for name in ("nodes", "edges"))
        cells = nodes * max(self.job.num_numbers, 8)
        text = 3.0 if self.job.nodes.kind != "Parquet" else 1.0
        steps = [
            _Step("ids", "numbering the nodes", 0.1 * nodes, number_nodes),
            _Step("order", "sorting the ids", 0.6 * nodes, sort_ids),
            _Step("labels", "reading the labels", 0.3 * nodes, read_labels),
            _Step("columns", "looking at the columns", 0.045 * cells * text, choose_columns),
            _Step("features", "encoding the features", 0.055 * cells * text, encode_features),
            _Step("join", "looking up the ends of the edges", 0.2 * edges, join_edges),
            _Step("sort", "sorting the edges", 0.2 * edges, sort_edges),
            _Step("edges", "writing the edges", 0.1 * edges, write_edges),
        ]
        if self.job.copies:
            steps.insert(0, _Step("nodes", "reading the nodes", 0.05 * cells, copy_nodes))
        return steps

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """About how many rows the tables have."""
        return {"nodes": _count_rows(self.job.nodes), "edges": _count_rows(self.job.edges)}

    def _check_space(self) -> None:
        """Refuse to begin what the disk has no room for."""
        nodes, edges = self._sizes["nodes"], self._sizes["edges"]
        entries = edges if self.job.request.directed else 2 * edges
        per_node = 2 * self.job.num_numbers * (1 if self.job.half else 2) + 64
        needed = nodes * per_node + entries * 4  # the store itself
        needed += entries * 8 + edges * 8 + max(entries * 16 - self.job.memory, 0)  # sorted, joined, spilled
        needed += self.job.nodes.size if self.job.copies else 0
        have = sum(file.stat().st_size for file in self.job.folder.rglob("*") if file.is_file())
        free = shutil.disk_usage(self.job.folder).free
        if needed > free + have:
            raise Node2SeqError(
                str(self.job.folder),
                f"the conversion takes about {needed / 1e9:.1f} GB of disk, and {free / 1e9:.1f} GB are free",
                "Free some space, or give a folder on another disk",
            )

    def _write_manifest(self) -> None:
        """Make a store of the arrays that were written."""
        job, arrays = self.job, {}
        for result in job.done.values():
            arrays |= result.get("arrays", {})
        names, directed = job.done["labels"]["names"], job.request.directed
        columns = {"source": job.source, "target": job.target, "id": job.id, "label": job.request.label}
        schema = make_schema(columns, job.done["columns"]["encoding"], names, directed=directed)
        if job.done["labels"]["task"] == REGRESSION:
            schema["target"] = {"kind": REGRESSION}
        about = {
            "nodes": job.done["ids"]["nodes"],
            "edges": job.done["edges"]["edges"],
            "schema": schema,
            "summary": _summary(job),
            "request": self._identity,
        }
        write_manifest(job.folder, dict(sorted(arrays.items())), about)


def _without_sizes(request: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, whatever the files hold."""
    return {**request, **{part: [name for name, _ in request[part]] for part in ("edges", "nodes")}}


def _summary(job: Job) -> dict[str, Any]:
    """The fields of :class:`~node2seq.data.Summary`; components are not looked for."""
    labels, edges, join, request = (*(job.done[name] for name in ("labels", "edges", "join")), job.request)
    encoding, nodes = job.done["columns"]["encoding"], job.done["ids"]["nodes"]
    kept = edges["edges"] // (1 if request.directed else 2)
    seconds, memory = estimate(nodes, edges["edges"], width(encoding))
    kind = "a number" if labels["task"] == REGRESSION else "a class"
    roles = {"id of the node": job.id, f"to predict, as {kind}": request.label, "split": request.split}
    return {
        "nodes": nodes,
        "edges": kept,
        "directed": request.directed,
        "features": width(encoding),
        "classes": len(labels["names"]),
        "labelled": labels["labelled"],
        "class_counts": labels["counts"],
        "homophily": edges["homophily"],
        "components": None,
        "largest_component": None,
        "isolated": edges["isolated"],
        "largest_degree": edges["largest_degree"],
        "self_loops_dropped": join["self_loops"],
        "duplicates_merged": join["given"] - join["self_loops"] - kept,
        "seconds_per_epoch": seconds,
        "training_bytes": memory,
        "notes": job.notes,
        "task": labels["task"],
        "target": labels["target"],
        "columns": {name: words for words, name in roles.items() if name} | described_columns(encoding),
    }


def _count_rows(table: Table) -> int:
    """How many rows a table has; of text, an estimate by its first lines."""
    if table.kind == "Parquet":
        return sum(int(pl.scan_parquet(file).select(pl.len()).collect().item()) for file in table.files)
    with table.files[0].open("rb") as file:
        start = file.read(2**16)
    return max(int(table.size / (len(start) / max(start.count(b"\n"), 1))), 1)

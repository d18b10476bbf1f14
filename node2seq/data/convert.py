"""Files larger than memory → a store (:mod:`node2seq.data.store`), step by step.

DuckDB joins ids and sorts edges within a limit of memory; features and labels are read in chunks. Every step
writes files under temporary names and renames them, and then enters itself in a journal: a conversion that
was killed resumes with the step that it was at, and ends with the same bytes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from node2seq.data.conversion.engine import Report, parse_size
from node2seq.data.conversion.job import WORK, Job, Request
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
from node2seq.errors import Node2SeqError
from node2seq.storage import LOCK_FILES, DiskFullError, locked, make_folder

__all__ = ["Progress", "Request", "convert"]

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
    begun, held = not folder.exists(), False
    make_folder(folder / WORK)
    try:
        with locked(folder):
            held = True
            _run(Job(request, folder, limit), on_progress or (lambda _: None))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Stopped. Run the same command to resume.") from None
    except Node2SeqError as error:
        is_full = isinstance(error, DiskFullError)
        # What is refused leaves no folder behind, which would ask for the same options again.
        if begun and (not (folder / JOURNAL).exists() or (held and not is_full)):
            shutil.rmtree(folder, ignore_errors=True)
        if is_full:
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
            str(folder), "it exists and contains something other than a store", "Give another folder"
        )


@dataclass(frozen=True)
class _Step:
    name: str
    title: str
    weight: float
    run: Callable[[Job, Report], dict[str, Any]]


def _run(job: Job, on_progress: OnProgress) -> None:
    """Take the steps that are left, and make a store of what they wrote."""
    if not (job.folder / MANIFEST).is_file():
        job.resume()
        _check_space(job)
        job.begin()
        _take_steps(job, on_progress)
        _write_manifest(job)
    elif StoredGraph(job.folder).manifest.get("request") != job.identity:
        raise Node2SeqError(
            str(job.folder),
            "it is a store of other files, or of these with other options, and nothing is overwritten",
            "Give another folder, or remove this one",
        )
    job.clean()


def _take_steps(job: Job, on_progress: OnProgress) -> None:
    """Take the steps that are left; the time left is estimated from the work that this process has done."""
    steps, started = _steps(job), time.monotonic()
    total = sum(step.weight for step in steps)
    begun = done = sum(step.weight for step in steps if step.name in job.done)

    def tell(number: int, step: _Step, before: float, share: float) -> None:
        here = before + step.weight * min(max(share, 0.0), 1.0)
        worked, seconds = here - begun, time.monotonic() - started
        left = seconds / worked * max(total - here, 0.0) if worked > 0 and seconds >= 1 else None
        on_progress(Progress(number, len(steps), step.title, here / total, left))

    for number, step in enumerate(steps, start=1):
        if step.name not in job.done:
            report = partial(tell, number, step, done)
            report(0.0)
            job.done[step.name] = step.run(job, report)
            job.write_journal()
            report(1.0)
            done += step.weight


def _steps(job: Job) -> list[_Step]:
    """All steps; weights are about the seconds of a processor, measured on 1M nodes and 10M edges."""
    nodes, edges = job.nodes.rows / 1e6, job.edges.rows / 1e6
    cells = nodes * max(job.num_numbers, 8)
    text = 3.0 if job.nodes.kind != "Parquet" else 1.0
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
    if job.copies:
        steps.insert(0, _Step("nodes", "reading the nodes", 0.05 * cells, copy_nodes))
    return steps


def _check_space(job: Job) -> None:
    """Refuse to begin what the disk has no room for."""
    nodes, edges = job.nodes.rows, job.edges.rows
    entries = edges if job.request.directed else 2 * edges
    per_node = 2 * job.num_numbers * (1 if job.half else 2) + 64
    needed = nodes * per_node + entries * 4  # the store itself
    needed += entries * 8 + edges * 8 + max(entries * 16 - job.memory, 0)  # sorted, joined, spilled
    needed += job.nodes.size if job.copies else 0
    have = sum(file.stat().st_size for file in job.folder.rglob("*") if file.is_file())
    free = shutil.disk_usage(job.folder).free
    if needed > free + have:
        raise Node2SeqError(
            str(job.folder),
            f"the conversion takes about {_amount(needed)} of disk, and {_amount(free)} are free",
            "Free some space, or give a folder on another disk",
        )


def _amount(size: int) -> str:
    unit, name = (1e9, "GB") if size >= 1e9 else (1e6, "MB") if size >= 1e5 else (1e3, "kB")
    return f"{size / unit:.1f} {name}"


def _write_manifest(job: Job) -> None:
    """Make a store of the arrays that were written."""
    arrays = {name: entry for result in job.done.values() for name, entry in result.get("arrays", {}).items()}
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
        "request": job.identity,
    }
    write_manifest(job.folder, dict(sorted(arrays.items())), about)


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

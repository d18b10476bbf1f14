"""``node2seq data``: the known sets as files; a check of your own graph, and its conversion into a store."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields

from rich.console import Console
from rich.markup import escape
from torch_geometric.data import Data

from node2seq.cli.commands import echo, shortened
from node2seq.cli.flags import DataCheckFlags, DataConvertFlags, DataExportFlags, DataFetchFlags
from node2seq.cli.settings import checked, source_of, standardized
from node2seq.cli.show import LINE_SECONDS
from node2seq.data import (
    Summary,
    load,
    make_split,
    summarise,
    write_graph,
)
from node2seq.data.convert import OnProgress, Progress, Request, convert
from node2seq.data.graph import COUNTED, described_target, report_of
from node2seq.data.sources import Say
from node2seq.options import number_or_word
from node2seq.runs.graph import read_source

_MOST_CLASSES_SHOWN = 12


def fetch(flags: DataFetchFlags) -> None:
    """Get data sets."""
    fetched = []
    for name in flags.names:
        with _steps(quiet=flags.as_json) as say:
            data = load(name, root=flags.data_root, say=say)
        fetched.append({"name": name, "nodes": int(data.num_nodes or 0), "source": data.source})
        if not flags.as_json:
            echo(f"{name}: {data.num_nodes} nodes, from {data.source}")
    if flags.as_json:
        echo(json.dumps(fetched))


def export(flags: DataExportFlags) -> None:
    """Write a data set as files."""
    with _steps(quiet=False) as say:
        data = load(flags.name, root=flags.data_root, say=say)
    split = None if flags.seed is None else make_split(data, seed=flags.seed)
    write_graph(data, flags.edges, flags.nodes, split=split)
    echo(f"{flags.name}: edges in {flags.edges}, nodes in {flags.nodes}")


def check(flags: DataCheckFlags) -> None:
    """Read a graph and describe it."""
    source = standardized(checked(source_of(flags)), raw=False)  # as training reads it
    with _steps(quiet=flags.as_json) as say:
        data = read_source(source, say)
        say("summarising")
        summary = summarise(data)
    warnings = list(report_of(data).warnings)
    if not summary.edges:
        warnings.append("there are no edges between different nodes, so no model can be trained on it")
    split = _split_sizes(data)
    if flags.as_json:
        more = {"split": split, "warnings": warnings}
        echo(json.dumps(summary.as_dict() | {name: value for name, value in more.items() if value}))
    else:
        for line in _lines(summary, split):
            echo(line)
        for warning in warnings:
            echo(f"warning: {warning}")


def _split_sizes(data: Data) -> dict[str, int]:
    """How many nodes each part of the split has that training would take; none without labels."""
    return {} if data.y is None else make_split(data).sizes


@contextmanager
def _steps(*, quiet: bool) -> Iterator[Say]:
    """Show on stderr what is being done: a spinner on a terminal, else a plain line for each step."""
    begun = time.monotonic()
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with Console(stderr=True).status("starting") as status:
            yield lambda line: status.update(escape(f"{line} ({time.monotonic() - begun:.0f} s)"))
    else:
        yield lambda line: echo(f"[{time.monotonic() - begun:5.1f} s] {line}", error=True)


def _lines(summary: Summary, split: Mapping[str, int]) -> Iterator[str]:
    kind = "directed" if summary.directed else "undirected"
    yield f"nodes              {summary.nodes} ({summary.isolated} without a neighbour)"
    yield f"edges              {summary.edges} ({kind}); largest degree {summary.largest_degree}"
    yield f"components         {summary.components}; the largest has {_nodes(summary.largest_component)}"
    yield f"features           {summary.features}"
    known = f"{summary.labelled} of {summary.nodes} nodes labelled"
    if summary.task in COUNTED:
        yield f"{COUNTED[summary.task]:<18} {summary.classes}; {known}"
    else:
        yield f"to predict         {described_target(summary.target)}; {known}"
    counts = sorted(summary.class_counts.items(), key=lambda item: -item[1])
    for name, count in counts[:_MOST_CLASSES_SHOWN]:
        share = 100 * count / max(summary.labelled, 1)
        yield f"  {shortened(name):<16} {count} ({share:.1f} %)"
    if len(counts) > _MOST_CLASSES_SHOWN:
        yield f"  and {len(counts) - _MOST_CLASSES_SHOWN} more"
    if summary.homophily is not None:
        yield f"homophily          {summary.homophily:.3f} of the edges join nodes of one class"
    if split:
        train, val, test = split.values()
        yield f"split              {train} nodes to train, {val} to validate, {test} to test"
    yield f"self loops         {summary.self_loops_dropped} dropped"
    yield f"duplicate edges    {summary.duplicates_merged} merged"
    memory = summary.training_bytes / 2**30
    yield (
        f"training           about {_duration(summary.seconds_per_epoch)} an epoch on two CPU cores and "
        f"{memory:.1f} GiB (an estimate)"
    )
    for number, (name, words) in enumerate(summary.columns.items()):
        yield f"{'columns' if number == 0 else '':<18} {shortened(name) or repr(name)}: {words}"
    for note in summary.notes:
        yield f"note: {note}"


def _nodes(count: int | None) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def convert_files(flags: DataConvertFlags) -> None:
    """Convert files and say what the store holds."""
    given = {field.name: getattr(flags, field.name) for field in fields(Request)}
    given |= {name: list(given[name]) for name in ("features", "categorical", "ignore")}
    given |= {name: str(given[name]) for name in ("edges", "nodes")}
    request = Request(**{**given, "fill": flags.fill and number_or_word(flags.fill)})
    with _shown(quiet=flags.as_json) as on_progress:
        graph = convert(request, flags.out, memory=flags.memory, on_progress=on_progress)
    about = graph.summary
    if flags.as_json:
        echo(json.dumps({"store": str(flags.out), "sha256": graph.sha256, **about.as_dict()}))
        return
    classes = f", {about.classes} classes" if about.classes else ""
    echo(f"{about.nodes} nodes, {about.edges} edges, {about.features} features{classes}: {flags.out}")
    echo(f"{about.self_loops_dropped} self loops dropped, {about.duplicates_merged} duplicate edges merged")
    for note in about.notes:
        echo(f"note: {note}")
    if graph.has_labels:
        echo(f"Train on it with `node2seq train --store {flags.out}`.")


@contextmanager
def _shown(*, quiet: bool) -> Iterator[OnProgress]:
    """Progress and the time left on stderr: a bar on a terminal, else a line now and then."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        with Bar(*columns, TextColumn("{task.fields[left]}"), console=Console(stderr=True)) as bar:
            task = bar.add_task("starting", total=1.0, left="")
            yield lambda at: bar.update(
                task, completed=at.share, description=_title(at), left=_left(at.seconds_left)
            )
    else:
        yield _Lines()


class _Lines:
    """A line for each step, and one every few seconds."""

    def __init__(self) -> None:
        self._step, self._told = 0, time.monotonic()

    def __call__(self, at: Progress) -> None:
        """Take in how far it is."""
        now = time.monotonic()
        if at.step == self._step and now - self._told < LINE_SECONDS:
            return
        self._step, self._told = at.step, now
        left = _left(at.seconds_left)
        echo(f"{_title(at)}: {100 * at.share:.0f} % done{left and ', ' + left}", error=True)


def _title(at: Progress) -> str:
    return f"step {at.step} of {at.steps}, {at.title}"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"about {seconds:.0f} s left" if seconds < 120 else f"about {seconds / 60:.0f} min left"

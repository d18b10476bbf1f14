"""``node2seq data convert``: files larger than memory → a store."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

from node2seq.cli.commands import echo
from node2seq.cli.flags import DataConvertFlags
from node2seq.cli.settings import number_or_word
from node2seq.cli.show import LINE_SECONDS
from node2seq.data.convert import OnProgress, Progress, Request, convert


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
        from rich.console import Console
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

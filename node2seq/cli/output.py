"""What is seen of a command: lines of text, and while a model trains a bar on a terminal or a few lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from node2seq.train.progress import EpochRecord

# Often enough to see that it lives, seldom enough for a log file.
LINE_SECONDS = 10.0

OnEpoch = Callable[["EpochRecord"], None]


def echo(line: str, *, error: bool = False) -> None:
    """Print a line at once, to stderr if it is an error."""
    stream = sys.stderr if error else sys.stdout
    stream.write(line + "\n")
    stream.flush()


def step_teller(quiet: bool) -> Callable[[str], None]:
    """Return what tells the steps before training, which take a while on large files: lines on stderr."""
    return (lambda _: None) if quiet else lambda line: echo(line, error=True)


@contextmanager
def progress(console: Console, title: str, epochs: int, done: int) -> Iterator[OnEpoch]:
    """Show the epochs of one training run on ``console``."""
    if console.quiet:
        yield lambda _: None
    elif console.is_terminal:
        with _bar(console, title, epochs, done) as on_epoch:
            yield on_epoch
    else:
        yield _lines(console, title, epochs)


@contextmanager
def _bar(console: Console, title: str, epochs: int, done: int) -> Iterator[OnEpoch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]} · validation {task.fields[accuracy]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=epochs, completed=done, loss="–", accuracy="–")

        def show(record: EpochRecord) -> None:
            bar.update(
                task,
                completed=record.epoch,
                loss=f"{record.loss:.3f}",
                accuracy=f"{100 * record.val_accuracy:.1f} %",
            )

        yield show


def _lines(console: Console, title: str, epochs: int) -> OnEpoch:
    started = last = time.monotonic()
    first: int | None = None

    def show(record: EpochRecord) -> None:
        nonlocal last, first
        now = time.monotonic()
        if first is None:
            first = record.epoch
        if now - last < LINE_SECONDS and record.epoch not in (first, epochs):
            return
        last = now
        rate = (now - started) / (record.epoch - first + 1)
        console.print(
            f"{title}  epoch {record.epoch}/{epochs}  loss {record.loss:.3f}  "
            f"validation {100 * record.val_accuracy:.1f} %  {rate * (epochs - record.epoch):.0f} s left",
            highlight=False,
            soft_wrap=True,
        )

    return show

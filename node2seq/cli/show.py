"""What is seen of a training: its progress on a terminal or in a log, tables for people, JSON for scripts."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from node2seq.cli.commands import make_table, print_line, print_table
from node2seq.data.graph import COUNTED, described_target
from node2seq.reporting.run import PARTS, classes_table, other_figures, parts_table, result_row, values_of
from node2seq.train.measured import result_warnings
from node2seq.train.metrics import METRIC_TITLES, shown, title_with_unit

if TYPE_CHECKING:
    from rich.console import Console

    from node2seq.runs.folder import RunConfig, RunResult
    from node2seq.runs.training import RunStart
    from node2seq.train.measured import Measured
    from node2seq.train.progress import BatchProgress, EpochRecord

# Often enough to see that it lives, seldom enough for a log file.
LINE_SECONDS = 10.0
# The epoch after which an estimate is shown even if no line is due.
_FIRST_ESTIMATE = 5
# The time that is left is estimated by no more epochs than these.
_LATEST = 20
# The longest list of classes that is shown, in characters.
_WIDEST = 200

OnEpoch = Callable[["EpochRecord"], None]


@dataclass(frozen=True)
class Finished:
    """A run, and the one it is compared with."""

    own: RunResult
    baseline: RunResult | None


def start(console: Console, begun: RunStart, with_graph: bool) -> None:
    """Say what is about to be trained, and on what graph unless that was said before."""
    if with_graph:
        _graph(console, begun)
    for warning in begun.warnings:
        print_line(console, f"[yellow]warning:[/] {escape(warning)}")
    if begun.batches is not None:
        print_line(console, escape(begun.batches))
    epochs = begun.config.settings.epochs - begun.epoch
    state = f"resumes after epoch {begun.epoch}" if begun.epoch else _counted(epochs, "epochs")
    print_line(console, f"[bold]{begun.config.model}[/]: {state} → {escape(str(begun.folder))}")


def finished_before(console: Console, config: RunConfig, folder: Path, runs: int) -> None:
    """Say that there was nothing left to train."""
    which = "this run is finished" if runs == 1 else f"all {runs} runs are finished"
    print_line(console, f"[bold]{config.model}[/]: {which}, nothing is left to train → {escape(str(folder))}")


def _counted(number: int, things: str) -> str:
    """A number with its noun, in the singular or plural."""
    return f"{number} {things.removesuffix('s') if number == 1 else things}"


def _graph(console: Console, begun: RunStart) -> None:
    about = begun.graph.summary
    split = " / ".join(map(str, begun.split.sizes.values()))
    homophily = "" if about.homophily is None else f", homophily {about.homophily:.2f}"
    components = "" if about.components is None else f"{_counted(about.components, 'components')}, "
    balance = ", ".join(f"{name} {count}" for name, count in about.class_counts.items())
    balance = balance if len(balance) <= _WIDEST else f"{balance[: _WIDEST - 2]} …"
    kind = COUNTED.get(about.task)
    target, classes = f"{kind}: {balance}", f", {about.classes} {kind}"
    if kind is None:
        target, classes = f"to predict: {described_target(about.target)}", ""
    sizes = ", ".join(_counted(getattr(about, of), of) for of in ("nodes", "edges", "features"))
    print_line(
        console,
        f"[bold]{escape(begun.config.source.title)}[/]: {sizes}{classes}; "
        f"{components}{_counted(about.isolated, 'isolated nodes')}{homophily}",
    )
    print_line(console, f"{escape(target)}; split {split} ({begun.split.rule}, seed {begun.split.seed})")
    for note in about.notes:
        print_line(console, f"note: {escape(note)}")


@contextmanager
def progress(console: Console, title: str, epochs: int, done: int, metric: str) -> Iterator[OnEpoch]:
    """Show the epochs of one training run on ``console``; ``metric`` chooses among them."""
    if console.quiet:
        yield lambda _: None
    elif console.is_terminal:
        with _bar(console, title, epochs, done, metric) as on_epoch:
            yield on_epoch
    else:
        yield _lines(console, title, epochs, done, metric)


@contextmanager
def _bar(console: Console, title: str, epochs: int, done: int, metric: str) -> Iterator[OnEpoch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]} · validation {task.fields[accuracy]}"),
        TextColumn("{task.fields[left]}"),
    )
    pace = _Pace(epochs, done)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=epochs, completed=done, loss="–", accuracy="–", left="")

        def show(record: EpochRecord) -> None:
            bar.update(
                task,
                completed=record.epoch,
                loss=f"{record.loss:.3f}",
                accuracy=shown(metric, record.val_score, " %"),
                left=pace.left(record.epoch),
            )

        yield show
        trained = bar.tasks[0].completed
        if trained < epochs:
            bar.update(task, total=trained, left="stopped early")


class _Pace:
    """How long a run still takes, by the epochs that were trained.

    The first one compiles loops or loads them, the next ones may record a CUDA graph: what counts is the
    median of the later half. Early stopping may end a run before.

    Args:
        epochs: How many there are.
        done: How many were trained before.
    """

    def __init__(self, epochs: int, done: int) -> None:
        self._epochs, self._epoch, self._time = epochs, done, time.monotonic()
        self._seconds: list[float] = []  # each time that it was called, for an epoch

    def left(self, epoch: int) -> str:
        """To be called after every epoch, or every few; in words, or nothing while nothing is known."""
        now = time.monotonic()
        self._seconds.append((now - self._time) / (epoch - self._epoch))
        self._epoch, self._time = epoch, now
        count = len(self._seconds)
        later = self._seconds[max(1, count // 2, count - _LATEST) :]
        if epoch == self._epochs:
            return "0 s left"
        return f"{statistics.median(later) * (self._epochs - epoch):.0f} s left" if later else ""


def _lines(console: Console, title: str, epochs: int, done: int, metric: str) -> OnEpoch:
    last, pace, shown_lines = time.monotonic(), _Pace(epochs, done), 0

    def show(record: EpochRecord) -> None:
        nonlocal last, shown_lines
        now, left = time.monotonic(), pace.left(record.epoch)
        is_due = now - last >= LINE_SECONDS or record.epoch in (done + _FIRST_ESTIMATE, epochs)
        if shown_lines and not is_due:
            return
        last, shown_lines = now, shown_lines + 1
        score = shown(metric, record.val_score, " %")
        text = f"{title}  epoch {record.epoch}/{epochs}  loss {record.loss:.3f}  validation {score}  {left}"
        print_line(console, text.rstrip())

    return show


class BatchLines:
    """A line every few seconds while an epoch of mini-batches lasts; short epochs have none.

    Args:
        console: Where it is shown.
        title: Of the run.
        epochs: How many there are.
    """

    def __init__(self, console: Console, title: str, epochs: int) -> None:
        self._console, self._title, self._epochs = console, title, epochs
        self._phase, self._begun, self._first, self._told = (0, ""), 0.0, 0, time.monotonic()

    def __call__(self, at: BatchProgress) -> None:
        """Take in how far an epoch is."""
        now = time.monotonic()
        if self._phase != (at.epoch, at.doing):
            self._phase, self._begun, self._first = (at.epoch, at.doing), now, at.done
        if now - self._told < LINE_SECONDS:
            return
        self._told = now
        since = at.done - self._first  # of the first batch, it is not known how long it took
        left = f", {(now - self._begun) / since * (at.total - at.done):.0f} s left" if since else ""
        epoch = f"epoch {at.epoch}/{self._epochs}" if at.epoch <= self._epochs else "at the end"
        text = f"{self._title}  {epoch}  {at.doing}, {at.done:,} of {at.total:,} nodes{left}"
        print_line(self._console, text)


def results(console: Console, finished: Sequence[Finished]) -> None:
    """Show the runs, or the mean of several, beside what they are compared with."""
    many = len(finished) > 1
    metric = finished[0].own.config.settings.metric
    title = title_with_unit(metric) + (", mean ± sd" if many else "")
    tests = [run.own.metrics["test"] for run in finished if "test" in run.own.metrics]
    if tests:
        mean = statistics.mean(found.reference for found in tests)
        metric_of_it = tests[0].reference_metric
        unit = " % of the test nodes" if metric_of_it == "accuracy" else " %"
        title += f"; {tests[0].reference_title}: {shown(metric_of_it, mean, unit)}"
    others = [
        f"{METRIC_TITLES[figure]}\n(test)" for figure in other_figures(finished[0].own.metrics["val"], metric)
    ]
    header = ["model", "validation", "test", *others, "epoch", "seconds"]
    lines = [
        [*result_row(outcomes, metric), f"{sum(outcome.seconds for outcome in outcomes):.1f}"]
        for outcomes in _side_by_side(finished)
    ]
    names = header[:1]
    print_table(console, make_table(header, lines, words=names, unbroken=names, title=title, pad_edge=False))
    for text in _linear_parts(finished):
        print_line(console, escape(text))
    for warning in _warnings(finished):
        print_line(console, f"[yellow]warning:[/] {escape(warning)}")
    for run in finished:
        print_line(console, f"run folder: {escape(str(run.own.folder.path))}")
    if not many:
        print_line(console, f"report:     {escape(str(finished[0].own.folder.report_file))}")


def _linear_parts(finished: Sequence[Finished]) -> list[str]:
    """To which networks a linear model was added, and what that changed."""
    texts = []
    for outcomes in _side_by_side(finished):
        metric, gains = outcomes[0].config.settings.metric, [outcome.linear for outcome in outcomes]
        added = [gain for gain in gains if gain is not None and gain.share]
        if added:
            before, after = (
                shown(metric, statistics.mean(values["val"] or 0.0 for values in figures), " %")
                for figures in ([gain.before for gain in added], [gain.after for gain in added])
            )
            runs = "" if len(outcomes) == 1 else f" in {len(added)} of {len(outcomes)} runs"
            texts.append(
                f"{outcomes[0].config.model}: with a linear model of the features within {added[0].hops} hops"
                f"{runs}, validation {METRIC_TITLES[metric]} {before} → {after}"
            )
    return texts


def _warnings(finished: Sequence[Finished]) -> list[str]:
    """What was found out at the end of the runs; what was known before was said before."""
    texts = []
    for outcomes in _side_by_side(finished):
        for outcome in outcomes:
            found = result_warnings(outcome.metrics, outcome.config.settings.metric)
            texts += [f"{outcome.config.model}: {text}" for text in found]
    return list(dict.fromkeys(texts))


def metrics(console: Console, measured: Mapping[str, Measured], class_names: Sequence[str]) -> None:
    """Show what a model reaches on each part of a split, and class by class on the last."""
    part = "test" if "test" in measured else "val"
    tables = {"": parts_table(measured, digits=4)}
    if measured[part].rows:
        word = measured[part].row_word
        tables[f"{PARTS[part]}, {word} by {word}"] = classes_table(measured[part], class_names)
    for title, grid in tables.items():
        lines = [[escape(str(cell)) for cell in line] for line in grid.lines]
        print_table(console, make_table(grid.header, lines, words=grid.header[:1], title=title or None))


def as_json(finished: Sequence[Finished]) -> str:
    """Return one JSON object: the run, or the runs with mean and standard deviation."""
    entries = [_entry(run) for run in finished]
    if len(entries) == 1:
        return json.dumps(entries[0])
    own, *others = [_summary(outcomes) for outcomes in _side_by_side(finished)]
    return json.dumps({"runs": entries, **own, "baseline": others[0] if others else None})


def _side_by_side(finished: Sequence[Finished]) -> list[list[RunResult]]:
    own = [run.own for run in finished]
    others = [run.baseline for run in finished if run.baseline is not None]
    return [own, others] if others else [own]


def _summary(outcomes: Sequence[RunResult]) -> dict[str, Any]:
    values = {
        f"{part}_{figure.replace('-', '_')}": values_of(outcomes, part, figure)
        for part in ("val", "test")
        for figure in dict.fromkeys((*outcomes[0].metrics["val"].figures, outcomes[0].config.settings.metric))
    }
    kept = {name: found for name, found in values.items() if len(found) > 1}
    return {
        "model": outcomes[0].config.model,
        "mean": {name: statistics.mean(found) for name, found in kept.items()},
        "sd": {name: statistics.stdev(found) for name, found in kept.items()},
    }


def _entry(run: Finished) -> dict[str, Any]:
    def describe(outcome: RunResult) -> dict[str, Any]:
        return {
            "run": str(outcome.folder.path),
            "model": outcome.config.model,
            "data": outcome.config.source.title,
            "seed": outcome.config.seed,
            "metric": outcome.config.settings.metric,
            "best_epoch": outcome.best_epoch,
            "epochs": outcome.epochs,
            "seconds": outcome.seconds,
            outcome.metrics["val"].reference_name: {
                part: found.reference for part, found in outcome.metrics.items()
            },
            "metrics": {part: found.to_dict() for part, found in outcome.metrics.items()},
            "calibration": None if outcome.calibration is None else asdict(outcome.calibration),
            "linear": None if outcome.linear is None else asdict(outcome.linear),
            "warnings": list(outcome.warnings),
        }

    return {
        **describe(run.own),
        "baseline": None if run.baseline is None else describe(run.baseline),
    }

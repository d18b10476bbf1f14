"""``node2seq train``: a graph → a run folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from torch_geometric.data import Data

from node2seq.cli import show
from node2seq.cli.commands import echo, step_teller
from node2seq.cli.definitions import definitions
from node2seq.cli.flags import TrainFlags
from node2seq.cli.settings import graph_of, make_config, read_file
from node2seq.cli.show import Finished, OnEpoch
from node2seq.data import NAMES
from node2seq.environment import Processes, is_launched, this_process
from node2seq.errors import Node2SeqError
from node2seq.options import build
from node2seq.reporting.run import write_report
from node2seq.runs import series, training
from node2seq.runs.folder import (
    FORMAT,
    RunConfig,
    RunFolder,
    RunResult,
    check_format,
    free_folder,
    newest_folder,
)
from node2seq.runs.graph import read_source
from node2seq.runs.training import RunStart
from node2seq.storage import make_folder, read_json, remove_unused, write_json
from node2seq.train.processes import SharedError, join

RUNS = Path("runs")
SERIES_FILE = "series.json"
# What may differ when a run is resumed: where things are, and what is shown.
_FREE_ON_RESUME = {
    "name",
    "data_root",
    "device",
    "out",
    "resume",
    "checkpoint_seconds",
    "timeout_seconds",
    "draw",
    "as_json",
}


@dataclass(frozen=True)
class Job:
    """One run to train. ``resume``: what is in the folder is this run's, and training resumes from it."""

    config: RunConfig
    folder: Path
    resume: bool


def train(flags: TrainFlags) -> int:
    """Train the runs that the flags ask for, and show what came out."""
    with _processes(flags) as processes:
        try:
            _train_all(flags, processes)
        except (SharedError, training.Stopped) as ended:
            if processes.is_first:
                raise
            processes.wait_for_first()  # which says why
            return getattr(ended, "exit_status", 2)
    return 0


def _processes(flags: TrainFlags) -> AbstractContextManager[Processes]:
    """Join the processes that a launcher started with this one, if one did."""
    if is_launched(os.environ):
        return join(flags.timeout_seconds, flags.draw)
    return nullcontext(this_process())


def _train_all(flags: TrainFlags, processes: Processes) -> None:
    console = Console(quiet=flags.as_json or not processes.is_first)
    with processes.reporting():
        todo, data = _jobs(flags, console, processes)
    try:
        together = len(todo) > 1 and series.trains_together(todo[0].config, todo[0].folder.parent)
        groups = [todo] if together else [[job] for job in todo]
        how = (console, flags.checkpoint_seconds, data, processes)
        finished = [run for group in groups for run in _train_group(group, *how)]
    except (Node2SeqError, KeyboardInterrupt):
        if len(todo) > 1 and processes.is_first:  # if no run has started, there is no series to resume
            remove_unused(todo[0].folder.parent, [SERIES_FILE])
        raise
    if not processes.is_first:
        return
    if flags.as_json:
        echo(show.as_json(finished))
    else:
        show.results(console, finished)


def _jobs(flags: TrainFlags, console: Console, processes: Processes) -> tuple[list[Job], Data | None]:
    """What to train, and the graph if it had to be read to know. The first process chooses the folders."""
    folder = processes.share(lambda: _run_to_resume(flags)) if flags.resume else None
    if folder is None:
        file = read_file(flags)
        source = graph_of(flags, file)
        own = source.files or source.store is not None
        data = read_source(source, step_teller(console.quiet)) if own else None
        config, how = make_config(flags, file, data), (flags.out, flags.resume, processes.restarted)
        todo = processes.share(lambda: _new_jobs(config, flags.runs, *how))
        seeds = range(config.seed, config.seed + len(todo))
        # Each process with its own settings, which are compared.
        return [
            replace(job, config=_with_seed(config, seed)) for job, seed in zip(todo, seeds, strict=True)
        ], data
    _refuse_changes(flags)
    todo = processes.share(lambda: _jobs_of(folder))
    if flags.device is None:
        return todo, None
    return [replace(job, config=replace(job.config, device=flags.device)) for job in todo], None


def _run_to_resume(flags: TrainFlags) -> Path | None:
    """Return the folder that ``--resume`` names by itself; None if the other flags have to tell."""
    name = flags.name
    if name is not None and _is_run(Path(name)):
        return Path(name)
    given = (name, flags.edges, flags.nodes, flags.store, flags.config)
    if all(value is None for value in given):
        return flags.out or _newest_run()
    if name is not None and (name not in NAMES or Path(name).is_dir()):
        raise Node2SeqError(name, "there is no run in this folder to resume", "Check the path")
    return None


def _refuse_changes(flags: TrainFlags) -> None:
    """A resumed run keeps the settings that it was started with; say so instead of ignoring a flag."""
    for each in definitions(TrainFlags):
        if each.field not in _FREE_ON_RESUME and getattr(flags, each.field) != each.default:
            raise Node2SeqError(
                f"--resume with {each.typed}",
                "a resumed run keeps the settings that it was started with",
                f"Leave {each.typed} out, or start a new run",
            )


def _new_jobs(config: RunConfig, count: int, out: Path | None, resume: bool, is_again: bool) -> list[Job]:
    """Give folders to ``count`` runs of ``config`` with successive seeds.

    With ``resume``, the newest folder of that name is taken up again if there is one; if torchrun starts the
    command again (``is_again``), only one that is not finished.
    """
    if count == 1:
        return [Job(config, _choose(config.name, out, resume, is_again), resume or is_again)]
    folder = _choose(f"{config.name}-x{count}", out, resume, is_again)
    file = folder / SERIES_FILE
    if file.is_file():
        if not (resume or is_again):
            raise Node2SeqError(
                str(folder),
                "it holds a series of runs, and nothing is overwritten",
                "Resume with `--resume`, or give another folder with `--out`",
            )
    else:
        if RunFolder(folder).exists:
            raise Node2SeqError(
                str(folder), "it holds a single run, not a series", "Give another folder with `--out`"
            )
        make_folder(folder)
        write_json(file, {"format": FORMAT, "count": count, "run": config.as_dict()})
    return _series_jobs(folder, config, count)


def _jobs_of(folder: Path) -> list[Job]:
    """Take up the run, or the series of runs, that a folder holds."""
    file = folder / SERIES_FILE
    if not file.is_file():
        return [Job(RunFolder(folder).run, folder, resume=True)]
    values = read_json(file)
    check_format(values, file)
    config = build(RunConfig, values.get("run") or {}, str(file))
    count = values.get("count")
    if not isinstance(count, int) or count < 1:
        raise Node2SeqError(f"{file}: count={count!r}", "it is no number of runs", "Restore the file")
    return _series_jobs(folder, config, count)


def _is_run(path: Path) -> bool:
    """Whether a path is a folder that training can be resumed in."""
    return (path / "config.json").is_file() or (path / SERIES_FILE).is_file()


def _newest_run() -> Path:
    """Return the folder of the run that was started last."""
    folder = newest_folder(RUNS, None, ("config.json", SERIES_FILE))
    if folder is None:
        raise Node2SeqError(
            f"the folder {RUNS}", "there is no run in it to resume", "Name one: `--resume RUN`"
        )
    return folder


def _choose(name: str, out: Path | None, resume: bool, is_again: bool) -> Path:
    if out is not None:
        return out
    found = newest_folder(RUNS, name, ("config.json", SERIES_FILE)) if resume or is_again else None
    if found is not None and (resume or not all(RunFolder(job.folder).finished for job in _jobs_of(found))):
        return found
    return free_folder(RUNS, name)


def _series_jobs(folder: Path, config: RunConfig, count: int) -> list[Job]:
    # Always resumed: a series that was stopped has finished, unfinished and unstarted runs.
    return [
        Job(_with_seed(config, seed), folder / f"s{seed}", resume=True)
        for seed in range(config.seed, config.seed + count)
    ]


def _with_seed(config: RunConfig, seed: int) -> RunConfig:
    baseline = None if config.baseline is None else replace(config.baseline, seed=seed)
    return replace(config, seed=seed, baseline=baseline)


def _train_group(
    group: Sequence[Job],
    console: Console,
    checkpoint_seconds: float,
    data: Data | None,
    processes: Processes,
) -> list[Finished]:
    """Train one run, or several together, then what they are compared with; write the reports."""
    runs, home = [(job.config, job.folder) for job in group], group[0].folder.parent
    how = (console, checkpoint_seconds, data, processes)
    own = _train(runs, home, *how, resume=group[0].resume)
    compared = [
        (config.baseline, RunFolder(folder).baseline_folder(config.baseline).path)
        for config, folder in runs
        if config.baseline is not None
    ]
    baselines: list[RunResult | None] = [None] * len(own)
    if compared:
        baselines = [*_train(compared, home, *how, with_graph=False)]
    finished = [Finished(*pair) for pair in zip(own, baselines, strict=True)]
    for run in finished if processes.is_first else []:
        compared = [] if run.baseline is None else [run.baseline]
        for other in compared:
            write_report(other.folder, [])
        write_report(run.own.folder, compared)
    return finished


def _train(
    runs: Sequence[tuple[RunConfig, Path]],
    home: Path,
    console: Console,
    checkpoint_seconds: float,
    data: Data | None,
    processes: Processes,
    *,
    resume: bool = True,
    with_graph: bool = True,
) -> list[RunResult]:
    """Train in run folders with progress on the console; ``home`` is the folder of a series."""
    together = f", {len(runs)} runs together" if len(runs) > 1 else ""
    with ExitStack() as stack:
        shown: list[OnEpoch] = []
        batches: list[show.BatchLines] = []

        def on_start(begun: RunStart) -> None:
            stack.close()  # the bar of the runs before
            show.start(console, begun, with_graph)
            title = begun.config.model + together
            settings = begun.config.settings
            bar = show.progress(console, title, settings.epochs, begun.epoch, settings.metric)
            shown.append(stack.enter_context(bar))
            batches.append(show.BatchLines(console, title, settings.epochs))

        told: dict[str, Any] = {
            "on_start": on_start,
            "on_epoch": lambda record: shown[-1](record),
            "checkpoint_seconds": checkpoint_seconds,
            "say": step_teller(console.quiet),
            "data": data,
        }
        if len(runs) > 1:
            results = series.train_series(runs, home, **told)
        else:
            told |= {"processes": processes, "on_batch": lambda at: batches[-1](at)}
            results = [training.train_run(*runs[0], resume=resume, **told)]
    if not shown:
        show.finished_before(console, runs[0][0], home if together else runs[0][1], len(runs))
    return results

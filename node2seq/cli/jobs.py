"""Which runs a ``train`` command means, and in which folders: new ones, or ones to resume."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from node2seq.errors import Node2SeqError
from node2seq.options import build
from node2seq.runs.folder import FORMAT, RunConfig, RunFolder, check_format, free_folder, newest_folder
from node2seq.storage.files import make_folder, read_json, write_json

RUNS = Path("runs")
SERIES_FILE = "series.json"


@dataclass(frozen=True)
class Job:
    """One run to train. ``resume``: what is in the folder is this run's, and training resumes from it."""

    config: RunConfig
    folder: Path
    resume: bool


def new_jobs(config: RunConfig, count: int, out: Path | None, resume: bool) -> list[Job]:
    """Give folders to ``count`` runs of ``config`` with successive seeds.

    With ``resume``, the newest folder of that name is taken up again if there is one.
    """
    if count == 1:
        return [Job(config, _choose(config.name, out, resume), resume)]
    folder = _choose(f"{config.name}-x{count}", out, resume)
    series = folder / SERIES_FILE
    if series.is_file():
        if not resume:
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
        write_json(series, {"format": FORMAT, "count": count, "run": asdict(config)})
    return _series_jobs(folder, config, count)


def jobs_of(folder: Path) -> list[Job]:
    """Take up the run, or the series of runs, that a folder holds."""
    series = folder / SERIES_FILE
    if not series.is_file():
        return [Job(RunFolder(folder).run, folder, resume=True)]
    values = read_json(series)
    check_format(values, series)
    config = build(RunConfig, values.get("run") or {}, str(series))
    count = values.get("count")
    if not isinstance(count, int) or count < 1:
        raise Node2SeqError(f"{series}: count={count!r}", "it is no number of runs", "Restore the file")
    return _series_jobs(folder, config, count)


def is_run(path: Path) -> bool:
    """Whether a path is a folder that training can be resumed in."""
    return (path / "config.json").is_file() or (path / SERIES_FILE).is_file()


def newest_run() -> Path:
    """Return the folder of the run that was started last."""
    folder = newest_folder(RUNS, None, ("config.json", SERIES_FILE))
    if folder is None:
        raise Node2SeqError(
            f"the folder {RUNS}", "there is no run in it to resume", "Name one: `--resume RUN`"
        )
    return folder


def _choose(name: str, out: Path | None, resume: bool) -> Path:
    if out is not None:
        return out
    if resume and (found := newest_folder(RUNS, name, ("config.json", SERIES_FILE))):
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

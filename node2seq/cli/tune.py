"""``node2seq tune``: a graph → settings for it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from node2seq.cli.commands import echo, import_rich, step_teller
from node2seq.cli.flags import TuneFlags
from node2seq.cli.settings import checked, search_size, source_of, standardized, with_absolute_paths
from node2seq.environment import repeating
from node2seq.errors import Node2SeqError
from node2seq.recipes import default_model
from node2seq.search.bayes import Bayes, journal_files
from node2seq.search.evaluate import Say, SearchProgress
from node2seq.search.halving import Halving
from node2seq.search.report import write_summary
from node2seq.search.session import Request, SearchResult, run
from node2seq.search.settings import SearchSettings
from node2seq.search.trials import add_search, read_table
from node2seq.storage import locked, make_folder, remove_unused

# A log shows a line at least this often; the next one may take a moment more than promised.
_LINE_SECONDS = 8.0


def tune(flags: TuneFlags) -> None:
    """Search, write the recipe and the report, and show what was found."""
    graph = standardized(checked(with_absolute_paths(source_of(flags)), labelled=True), flags.raw)
    model = flags.model or (default_model(graph.name) if flags.space == "paper" else "node2seq")
    name = f"tune-{graph.title}-{model}-{flags.space}".replace("*", "-star")
    folder = flags.out or Path("runs") / name
    request = Request(
        source=graph,
        out=folder / "trials.jsonl",
        recipe=folder / "recipe.toml",
        model=model,
        metric=flags.metric,
        space=flags.space,
        fix=flags.fix,
        start=flags.start,
        rule=flags.rule,
        plan=_plan(flags),
        device=flags.device,
        budget_seconds=flags.budget_seconds,
        storage=flags.storage,
    )
    _check_files(request, flags.table)
    is_new = not folder.exists()
    make_folder(folder)
    try:
        # Optuna hands out trials to any number of processes; halving is one plan.
        is_shared = isinstance(request.plan, Bayes)
        with nullcontext() if is_shared else locked(folder), _progress(flags.as_json) as (say, tell):
            found = run(
                request,
                say,
                tell,
                step_teller(flags.as_json),
                on_best=lambda found: write_summary(folder / "report.html", request, found),
            )
            if flags.table is not None and found.finished:
                add_search(flags.table, flags.space, found.trials)
    except Exception:
        if is_new:  # a folder without a training is of no use
            remove_unused(folder, [file.name for file in journal_files(request.out)])
        raise
    except KeyboardInterrupt as stop:
        kept = " Finished trainings are kept; run the same command to resume."
        recipe = folder / "recipe.toml"
        best = f" The best settings so far are in {recipe}." if recipe.exists() else ""
        stop.args = (f"Stopped.{kept}{best}",)
        raise
    if flags.as_json:
        echo(json.dumps(_entry(found, folder)))
    else:
        _show(found, folder)


def _check_files(request: Request, table: Path | None) -> None:
    """Refuse a folder of something else, whose files would be replaced, and a table that is none."""
    folder = request.out.parent
    own = {"recipe.toml", *(file.name for file in journal_files(request.out))}  # of a search that begins
    found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in found if name not in own and name[0] != "." and not name.endswith(".part")]
    if others and not request.out.is_file():
        reason = "it exists and contains something other than a search"
        raise Node2SeqError(str(folder), reason, "Give another folder with `--out`")
    if table is not None:
        read_table(table)


def _plan(flags: TuneFlags) -> SearchSettings:
    if flags.storage is not None and flags.sampler != "bayes":
        raise Node2SeqError(
            f"--storage with --sampler {flags.sampler}",
            "only optuna keeps its trials in a database",
            "Leave it out, or take --sampler bayes",
        )
    plan = Bayes if flags.sampler == "bayes" else Halving
    return plan.in_proportion(flags.trials, **search_size(flags))


@contextmanager
def _progress(quiet: bool) -> Iterator[tuple[Say, Callable[[SearchProgress], None] | None]]:
    """Lines for what was done; for what is being done a bar on a terminal, and elsewhere further lines."""
    if quiet:
        yield lambda _: None, None
    else:
        rich = import_rich() if sys.stdout.isatty() else None
        with _lines() if rich is None else _bar(rich.progress) as both:
            yield both


@contextmanager
def _lines(every: float = _LINE_SECONDS) -> Iterator[tuple[Say, Callable[[SearchProgress], None] | None]]:
    """Lines for what was done; if none is due for ``every`` seconds, a line for what is being done."""
    begun = last = time.monotonic()
    latest = "preparing"

    def say(line: str) -> None:
        nonlocal last
        last = time.monotonic()
        echo(line)

    def tell(standing: SearchProgress) -> None:
        nonlocal latest
        latest = _in_words(standing)

    def repeat() -> float:
        if time.monotonic() >= last + every:
            say(f"  {time.monotonic() - begun:.0f} s: {latest}")
        return max(last + every - time.monotonic(), 0.01)

    with repeating(repeat, every):
        yield say, tell


def _in_words(standing: SearchProgress) -> str:
    left = "" if standing.seconds_left is None else f"; about {standing.seconds_left:.0f} s left"
    return f"{standing.runs} runs, {100 * standing.share:.0f} % of their epochs; {standing.best}{left}"


@contextmanager
def _bar(rich: Any) -> Iterator[tuple[Say, Callable[[SearchProgress], None] | None]]:
    """The same with a bar of the package ``rich.progress``."""
    title, *texts = map(rich.TextColumn, ("{task.description}", "{task.fields[best]}", "{task.fields[left]}"))
    with rich.Progress(title, rich.BarColumn(), *texts) as bar:
        task = bar.add_task("preparing", total=1.0, best="", left="")

        def say(line: str) -> None:
            bar.console.print(line, highlight=False, soft_wrap=True, markup=False)

        def tell(standing: SearchProgress) -> None:
            title = f"group {standing.program} of {standing.programs}, {standing.runs} runs"
            if bar.tasks[0].description != title:
                bar.reset(task, total=1.0, description=title)
            left = "" if standing.seconds_left is None else f"{standing.seconds_left:.0f} s left"
            bar.update(task, completed=standing.share, best=standing.best, left=left)

        yield say, tell


def _entry(found: SearchResult, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "recipe": str(found.recipe_file),
        "trial": found.best.number,
        "trials": len(found.trials),
        "settings": found.best.settings,
        "metric": found.recipe.settings.metric,
        "val_score": found.best.mean(),  # an error is negative
        "sd": found.best.deviation,
        "seeds": sorted(found.best.accuracies),
        "finished": found.finished,
        "verdict": found.verdict,
    }


def _show(found: SearchResult, folder: Path) -> None:
    if found.others_finish:
        echo("Nothing is left to train here: another process finishes this search.")
        return
    if not found.finished:
        echo("The time is up; run the same command to resume.")
    echo(found.verdict)
    echo(f"Trial {found.best.number} of {len(found.trials)}, {found.recipe.source}")
    echo(f"report: {folder / 'report.html'}")
    echo(f"train:  node2seq train --config {found.recipe_file}")

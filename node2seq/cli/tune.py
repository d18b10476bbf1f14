"""``node2seq tune``: a graph → settings for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from node2seq.cli.commands import echo, step_teller
from node2seq.cli.flags import TuneFlags
from node2seq.cli.settings import checked, checked_metric, lasting, source_of, standardized
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice
from node2seq.recipes import default_model
from node2seq.search.bayes import Bayes
from node2seq.search.evaluate import Say, SearchProgress
from node2seq.search.halving import Halving
from node2seq.search.report import write_summary
from node2seq.search.session import Request, SearchResult, run
from node2seq.search.settings import SearchSettings, parse_seeds
from node2seq.search.table import add_search
from node2seq.storage import locked, make_folder, remove_unused

SAMPLERS = ("bayes", "halving")


def tune(flags: TuneFlags) -> None:
    """Search, write the recipe and the report, and show what was found."""
    graph = standardized(checked(lasting(source_of(flags)), labelled=True), flags.raw)
    model = flags.model or (default_model(graph.name) if flags.space == "paper" else "node2seq")
    name = f"tune-{graph.title}-{model}-{flags.space}".replace("*", "-star")
    folder = flags.out or Path("runs") / name
    request = Request(
        source=graph,
        out=folder / "trials.jsonl",
        recipe=folder / "recipe.toml",
        model=model,
        metric=None if flags.metric is None else checked_metric(flags.metric),
        space=flags.space,
        fix=flags.fix,
        start=flags.start,
        rule=flags.rule,
        plan=_plan(flags),
        device=flags.device,
        budget_seconds=flags.budget_seconds,
    )
    is_new = not folder.exists()
    make_folder(folder)
    try:
        with locked(folder), _progress(flags.as_json) as (say, tell):
            found = run(request, say, tell, step_teller(flags.as_json))
            write_summary(folder / "report.html", request, found)
            if flags.table is not None and found.finished:
                add_search(flags.table, flags.space, found.trials)
    except Node2SeqError:
        if is_new:
            remove_unused(folder)
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "Stopped. Finished trainings are kept; run the same command to resume."
        ) from None
    if flags.as_json:
        echo(json.dumps(_entry(found, folder)))
    else:
        _show(found, folder)


def _plan(flags: TuneFlags) -> SearchSettings:
    check_choice("sampler", flags.sampler, SAMPLERS)
    return (Bayes if flags.sampler == "bayes" else Halving)(
        trials=flags.trials,
        seeds=parse_seeds(flags.seeds),
        final_seeds=parse_seeds(flags.final_seeds),
        finalists=flags.finalists,
        seed=flags.seed,
    )


@contextmanager
def _progress(quiet: bool) -> Iterator[tuple[Say, Callable[[SearchProgress], None] | None]]:
    """Lines for what was done, and on a terminal a bar for the program that is being trained."""
    if quiet:
        yield lambda _: None, None
    elif not sys.stdout.isatty():
        yield echo, None
    else:
        with _bar() as both:
            yield both


@contextmanager
def _bar() -> Iterator[tuple[Say, Callable[[SearchProgress], None] | None]]:
    try:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ModuleNotFoundError:  # a search runs without the command line's extra, too
        yield echo, None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    with Progress(*columns) as bar:
        task = bar.add_task("", total=1.0)

        def say(line: str) -> None:
            bar.console.print(line, highlight=False, soft_wrap=True, markup=False)

        def tell(standing: SearchProgress) -> None:
            title = f"program {standing.program} of {standing.programs}, {standing.runs} runs"
            if bar.tasks[0].description != title:
                bar.reset(task, total=1.0, description=title)
            bar.update(task, completed=standing.share)

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
    }


def _show(found: SearchResult, folder: Path) -> None:
    if not found.finished:
        echo("The time is up; run the same command to resume.")
    echo(f"Trial {found.best.number} of {len(found.trials)}, {found.recipe.source}")
    echo(f"report: {folder / 'report.html'}")
    echo(f"train:  node2seq train --config {found.recipe_file}")

"""``node2seq train``: a graph → a run folder."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node2seq.cli import reading
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from node2seq.cli.jobs import Job
    from node2seq.cli.progress import OnEpoch
    from node2seq.cli.settings import Given
    from node2seq.cli.show import Finished
    from node2seq.runs.folder import RunConfig
    from node2seq.runs.result import RunResult
    from node2seq.runs.training import RunStart

EPILOG = """Examples:

node2seq train karate --epochs 50

node2seq train cora-r --baseline gcn

node2seq train texas --runs 5 --json

node2seq train --edges edges.csv --nodes nodes.csv --label kind

node2seq train --resume runs/cora-r-node2seq-s0
"""


def train(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Data set (see `node2seq data list`); with --resume also a run folder.", show_default=False
        ),
    ] = None,
    edges: reading.Edges = None,
    nodes: reading.Nodes = None,
    label: reading.Label = None,
    source: reading.SourceColumn = None,
    target: reading.TargetColumn = None,
    id_column: reading.IdColumn = None,
    split: reading.SplitColumn = None,
    directed: reading.Directed = False,
    fill: reading.Fill = None,
    features: reading.Features = None,
    categorical: reading.Categorical = None,
    ignore: reading.Ignore = None,
    delimiter: reading.Delimiter = None,
    data_root: reading.DataRoot = None,
    model: Annotated[str | None, typer.Option(help="Which model.", show_default="node2seq")] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="Which recipe: paper; plus, with options that the paper does not have; or directed.",
            show_default="paper",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="A second model to train on the same split for comparison.", show_default="none"),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="An option of the model or of its training, as often as needed, such as kernel_size=5 or "
            "lr=0.02; `node2seq info --model NAME` lists them.",
            show_default="the recipe's",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with any of these settings.", show_default="none")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs at most.", show_default="the recipe's")] = None,
    class_weights: Annotated[
        bool | None,
        typer.Option("--class-weights", help="Let every class count the same.", show_default="no"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the split and the initial weights.", show_default="0")
    ] = None,
    runs: Annotated[
        int, typer.Option(help="Train this often with successive seeds; mean ± sd at the end.", min=1)
    ] = 1,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 …", show_default="auto")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder.", show_default="runs/DATA-MODEL-sSEED")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with a run that was stopped: the one named, or the newest. Changes nothing else.",
        ),
    ] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Save the state this often.", min=0.0, max=30.0)
    ] = 15.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Train a model on a data set or on your own graph, and keep everything in a run folder."""
    from rich.console import Console

    from node2seq.cli import jobs, settings, show
    from node2seq.runs.recipe_file import RecipeFile, read_recipe_file
    from node2seq.runs.training import trains_together

    given = settings.Given(
        source=reading.make_source(
            name,
            data_root,
            edges,
            nodes,
            label,
            source=source,
            target=target,
            id=id_column,
            split=split,
            directed=directed,
            fill=fill,
            features=features,
            categorical=categorical,
            ignore=ignore,
            delimiter=delimiter,
        ),
        model=model,
        variant=variant,
        baseline=baseline,
        seed=seed,
        device=device,
        epochs=epochs,
        class_weights=class_weights,
        assignments=tuple(assignments or ()),
    )
    console = Console(quiet=as_json)
    folder = _run_to_go_on_with(name, out, given, config) if resume else None
    if folder is not None:
        _refuse_changes(given, config, runs)
        todo = jobs.jobs_of(folder)
        if device is not None:
            todo = [replace(job, config=replace(job.config, device=device)) for job in todo]
    else:
        file = RecipeFile() if config is None else read_recipe_file(config, model)
        todo = jobs.new_jobs(settings.make_config(given, file), runs, out, resume)
    if len(todo) > 1 and trains_together(todo[0].config, todo[0].folder.parent):
        finished = _run_together(todo, console, checkpoint_seconds)
    else:
        finished = [_run(job, console, checkpoint_seconds) for job in todo]
    if as_json:
        typer.echo(show.as_json(finished))
    else:
        show.results(console, finished)


def _run(job: Job, console: Console, checkpoint_seconds: float) -> Finished:
    """Train one run and what it is compared with, and write their reports."""
    from node2seq.cli.show import Finished
    from node2seq.reporting.run import write_report
    from node2seq.runs.folder import RunFolder

    own = _train(job.config, job.folder, job.resume, console, checkpoint_seconds)
    baseline = None
    if job.config.baseline is not None:
        second = RunFolder(job.folder).baseline_folder(job.config.baseline)
        baseline = _train(job.config.baseline, second.path, True, console, checkpoint_seconds, False)
        write_report(second.path)
    write_report(job.folder)
    return Finished(own, baseline)


def _run_together(todo: Sequence[Job], console: Console, checkpoint_seconds: float) -> list[Finished]:
    """Train a series as one program, then what its runs are compared with, and write their reports."""
    from node2seq.cli.show import Finished
    from node2seq.reporting.run import write_report
    from node2seq.runs.folder import RunFolder

    home = todo[0].folder.parent
    own = _train_series([(job.config, job.folder) for job in todo], home, console, checkpoint_seconds)
    second = [
        (job.config.baseline, RunFolder(job.folder).baseline_folder(job.config.baseline).path)
        for job in todo
        if job.config.baseline is not None
    ]
    baselines: list[RunResult | None] = [None] * len(own)
    if second:
        baselines = [*_train_series(second, home, console, checkpoint_seconds, with_graph=False)]
    for _, folder in second:
        write_report(folder)
    for job in todo:
        write_report(job.folder)
    return [Finished(*pair) for pair in zip(own, baselines, strict=True)]


def _train_series(
    runs: Sequence[tuple[RunConfig, Path]],
    home: Path,
    console: Console,
    checkpoint_seconds: float,
    with_graph: bool = True,
) -> list[RunResult]:
    from node2seq.cli.progress import progress, step_teller
    from node2seq.cli.show import start
    from node2seq.runs.training import train_series

    with ExitStack() as stack:
        shown: list[OnEpoch] = []

        def on_start(begun: RunStart) -> None:
            stack.close()  # the bar of the program before
            start(console, begun, with_graph)
            title = f"{begun.config.model}, {len(runs)} runs together"
            bar = progress(console, title, begun.config.settings.epochs, begun.epoch)
            shown.append(stack.enter_context(bar))

        return train_series(
            runs,
            home,
            on_start=on_start,
            on_epoch=lambda record: shown[-1](record),
            checkpoint_seconds=checkpoint_seconds,
            say=step_teller(console.quiet),
        )


def _train(
    config: RunConfig,
    folder: Path,
    resume: bool,
    console: Console,
    checkpoint_seconds: float,
    with_graph: bool = True,
) -> RunResult:
    from node2seq.cli.progress import progress, step_teller
    from node2seq.cli.show import start
    from node2seq.runs.training import train_run

    with ExitStack() as stack:
        shown: list[OnEpoch] = []

        def on_start(begun: RunStart) -> None:
            start(console, begun, with_graph)
            bar = progress(console, begun.config.model, begun.config.settings.epochs, begun.epoch)
            shown.append(stack.enter_context(bar))

        return train_run(
            config,
            folder,
            resume=resume,
            on_start=on_start,
            on_epoch=lambda record: shown[0](record),
            checkpoint_seconds=checkpoint_seconds,
            say=step_teller(console.quiet),
        )


def _run_to_go_on_with(name: str | None, out: Path | None, given: Given, config: Path | None) -> Path | None:
    """Return the folder that ``--resume`` names by itself; None if the other options have to tell."""
    from node2seq.cli import jobs

    if name is not None and jobs.is_run(Path(name)):
        return Path(name)
    if name is None and not given.source.files and config is None:
        return out or jobs.newest_run()
    if name is not None and (len(Path(name).parts) > 1 or Path(name).is_dir()):
        raise Node2SeqError(name, "there is no run in this folder to go on with", "Check the path")
    return None


def _refuse_changes(given: Given, config: Path | None, runs: int) -> None:
    """A run that goes on keeps what it was started with; say so instead of ignoring an option."""
    changes = {
        "--label": given.source.label,
        "--model": given.model,
        "--variant": given.variant,
        "--baseline": given.baseline,
        "--set": given.assignments,
        "--config": config,
        "--epochs": given.epochs,
        "--class-weights": given.class_weights,
        "--seed": given.seed,
        "--runs": runs if runs != 1 else None,
        "--edges": given.source.edges,
        "--nodes": given.source.nodes,
    }
    named = [option for option, value in changes.items() if value not in (None, ())]
    if named:
        raise Node2SeqError(
            f"--resume with {named[0]}",
            "a run that goes on keeps what it was started with",
            f"Leave {named[0]} out, or start a new run",
        )

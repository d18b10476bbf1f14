"""``node2seq tune``: a graph → settings for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from node2seq.cli import reading
from node2seq.errors import check_choice

if TYPE_CHECKING:
    from rich.console import Console

    from node2seq.search.evaluate import Standing
    from node2seq.search.plan import Plan
    from node2seq.search.session import Found

SAMPLERS = ("bayes", "halving")
EPILOG = """Examples:

node2seq tune texas --trials 4 --fix epochs=10 --seeds 100-101 --final-seeds 200-201

node2seq tune cornell --model gcn --sampler halving --trials 8 --fix epochs=10 --out runs/cornell

node2seq tune --edges edges.csv --nodes nodes.csv --label kind --trials 4 --fix epochs=10
"""


def tune(
    name: Annotated[
        str | None, typer.Argument(help="Data set (see `node2seq data list`).", show_default=False)
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
    model: Annotated[str, typer.Option(help="Which model.")] = "node2seq",
    space: Annotated[
        str, typer.Option(help="paper: what the paper leaves open; plus: what it does not have, too.")
    ] = "paper",
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="OPTION=VALUE",
            help="Decide an option instead of searching it, as often as needed; OPTION=[A, B] leaves these.",
            show_default="none",
        ),
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="TOML file with settings to begin with.", show_default="the recipe's")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="How to split, a rule of `node2seq data list`; redrawn makes several of a fixed split.",
            show_default="as the data says",
        ),
    ] = None,
    sampler: Annotated[
        str,
        typer.Option(help="bayes: optuna's, with pruning; halving: successive halving, without optuna."),
    ] = "bayes",
    trials: Annotated[int, typer.Option(help="Different settings to try.")] = 64,
    seeds: Annotated[
        str, typer.Option(help="Seeds of the splits that settings are compared on.")
    ] = "100-104",
    final_seeds: Annotated[
        str, typer.Option(help="Seeds of further splits for the best settings.")
    ] = "200-209",
    finalists: Annotated[int, typer.Option(help="How many are trained on the further splits.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the search itself.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    budget_seconds: Annotated[
        float | None,
        typer.Option(help="Stop after so much time; the same command goes on.", show_default="none"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the search.", show_default="runs/tune-DATA-MODEL-SPACE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Search good settings by validation accuracy; the recipe is ready for `train --config`.

    Stop it at any moment: the same command goes on.
    """
    import json

    from rich.console import Console

    from node2seq.cli.progress import step_teller
    from node2seq.cli.settings import check_source
    from node2seq.search.report import write_summary
    from node2seq.search.session import Request, run
    from node2seq.storage.files import make_folder
    from node2seq.storage.lock import locked

    graph = reading.make_source(
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
    )
    check_source(graph)
    folder = out or Path("runs") / f"tune-{graph.title}-{model}-{space}".replace("*", "-star")
    request = Request(
        source=graph,
        out=folder / "trials.jsonl",
        recipe=folder / "recipe.toml",
        model=model,
        space=space,
        fix=tuple(fix or ()),
        start=start,
        rule=rule,
        plan=_plan(sampler, trials, seeds, final_seeds, finalists, seed),
        device=device,
        budget_seconds=budget_seconds,
    )
    console = Console(quiet=as_json)
    make_folder(folder)
    try:
        with locked(folder), _progress(console) as (say, tell):
            found = run(request, say, tell, step_teller(as_json))
            write_summary(folder / "report.html", request, found)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Stopped. What was trained is kept; the same command goes on.") from None
    if as_json:
        typer.echo(json.dumps(_entry(found, folder)))
    else:
        _show(console, found, folder)


def _plan(sampler: str, trials: int, seeds: str, final_seeds: str, finalists: int, seed: int) -> Plan:
    from node2seq.search.bayes import Bayes
    from node2seq.search.halving import Halving
    from node2seq.search.seeds import parse_seeds

    check_choice("sampler", sampler, SAMPLERS)
    return (Bayes if sampler == "bayes" else Halving)(
        trials=trials,
        seeds=parse_seeds(seeds),
        final_seeds=parse_seeds(final_seeds),
        finalists=finalists,
        seed=seed,
    )


@contextmanager
def _progress(console: Console) -> Iterator[tuple[Callable[[str], None], Callable[[Standing], None] | None]]:
    """Lines for what was done, and on a terminal a bar for the program that is being trained."""

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    if console.quiet or not console.is_terminal:
        yield say, None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=1.0)

        def tell(standing: Standing) -> None:
            title = f"program {standing.program} of {standing.programs}, {standing.runs} runs"
            if bar.tasks[0].description != title:
                bar.reset(task, total=1.0, description=title)
            bar.update(task, completed=standing.share)

        yield say, tell


def _entry(found: Found, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "recipe": str(found.recipe_file),
        "trial": found.best.number,
        "trials": len(found.trials),
        "settings": found.best.settings,
        "val_accuracy": found.best.mean(),
        "sd": found.best.deviation,
        "seeds": sorted(found.best.accuracies),
        "finished": found.finished,
    }


def _show(console: Console, found: Found, folder: Path) -> None:
    from rich.markup import escape

    def line(text: str) -> None:
        console.print(escape(text), highlight=False, soft_wrap=True)

    if not found.finished:
        line("The time is spent; the same command goes on.")
    line(f"Trial {found.best.number} of {len(found.trials)}, {found.recipe.source}")
    line(f"report: {folder / 'report.html'}")
    line(f"train:  node2seq train --config {found.recipe_file}")

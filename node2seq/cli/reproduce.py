"""``node2seq reproduce``: the paper's tables from the data sets, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:

node2seq reproduce --list

node2seq reproduce 2 --columns cora-f --models gcn --models sgc --jobs 2

node2seq reproduce 2 3 --device cuda --jobs 8 --budget-seconds 540

node2seq reproduce --check 5

node2seq reproduce --render
"""


def reproduce(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            help="1 to 6; ours are order, readout, hops, plus-2, plus-3, ablation-2, ablation-3, directed.",
            show_default="the paper's",
            metavar="[TABLE]...",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Only this column; as often as needed.", show_default="all")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option(help="Only this model; as often as needed.", show_default="all")
    ] = None,
    runs: Annotated[int, typer.Option(help="Seeds 0 to RUNS − 1 of each cell.", min=1)] = 20,
    jobs: Annotated[int, typer.Option(help="Processes at once.", min=1)] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    budget_seconds: Annotated[
        float | None,
        typer.Option(help="Stop after so much time; the same command goes on later.", show_default="none"),
    ] = None,
    check: Annotated[
        int | None,
        typer.Option(
            help="Instead, make N random rows again and compare.", metavar="N", min=1, show_default=False
        ),
    ] = None,
    check_seed: Annotated[
        int | None, typer.Option(help="Which rows to check.", show_default="another draw each time")
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Instead, list the cells and how many runs they have.")
    ] = False,
    retire: Annotated[
        bool, typer.Option("--retire", help="First move rows of past recipes to retired.jsonl.")
    ] = False,
    render_only: Annotated[
        bool, typer.Option("--render", help="Instead, only render the rows that are there.")
    ] = False,
    epochs: Annotated[
        int | None,
        typer.Option(help="At most so many epochs, for a trial in --results of its own.", show_default=False),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of the rows.")] = Path("results"),
    docs: Annotated[
        Path | None,
        typer.Option(help="Folder to render to, after training too.", show_default="docs, with --render"),
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(
            help="Folder with data sets in PyTorch Geometric's layout.", show_default="$NODE2SEQ_DATA"
        ),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(help="What the rows say of the code, where there is no checkout.", show_default=False),
    ] = None,
) -> None:
    """Make the tables of the paper, and ours: stop it at any moment, and the same command goes on."""
    import sys

    from node2seq.experiments.verb import Request, run

    request = Request(
        tables=tuple(tables or ()),
        columns=tuple(columns or ()),
        models=tuple(models or ()),
        runs=runs,
        jobs=jobs,
        device=device,
        budget_seconds=budget_seconds,
        check=check,
        check_seed=check_seed,
        list_only=list_only,
        retire=retire,
        render_only=render_only,
        epochs=epochs,
        results=results,
        docs=docs,
        data_root=None if data_root is None else str(data_root),
        commit=commit,
    )
    raise typer.Exit(run(request, typer.echo, live=sys.stdout.isatty()))

"""``node2seq data``: the known sets, fetched, listed and written as files; and a check of your own graph."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from node2seq.cli import reading

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from node2seq.data import Summary
    from node2seq.data.sources import Say

app = typer.Typer(
    help="List, fetch and write the known data sets; check a graph of your own.", no_args_is_help=True
)

_MOST_CLASSES_SHOWN = 12
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder with data sets in PyTorch Geometric's layout.", show_default="$NODE2SEQ_DATA"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command("list", epilog="Example: node2seq data list")
def list_sets(as_json: Json = False) -> None:
    """Show the known data sets, their sizes and their known defects."""
    from node2seq.data import DATASETS, NAMES, RULES

    rows = []
    for name, column in NAMES.items():
        dataset = DATASETS[column.dataset]
        facts = asdict(dataset.facts)
        about = {"split": column.rule, "defects": list(dataset.defects)}
        rows.append({"name": name, "title": dataset.title, **facts, **about})
    if as_json:
        typer.echo(json.dumps(rows))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        caption="edges counted once; homophily: share of edges within a class",
    )
    columns = ("name", "nodes", "edges", "features", "classes", "homophily", "largest_degree", "split")
    for column in columns:
        justify = "left" if column in ("name", "split") else "right"
        table.add_column(column.replace("_", "\n"), justify=justify, no_wrap=column in ("name", "split"))
    for row in rows:
        table.add_row(*(f"{row[key]:.2f}" if key == "homophily" else str(row[key]) for key in columns))
    console.print(table)
    console.print("Splits:", highlight=False)
    for rule, words in RULES.items():
        console.print(f"  {rule}: {words}", highlight=False, soft_wrap=True)
    console.print("Known defects:", highlight=False)
    for title, defects in dict.fromkeys((row["title"], tuple(row["defects"])) for row in rows):
        for defect in defects:
            console.print(f"  {title}: {defect}", highlight=False, soft_wrap=True)


@app.command("fetch", epilog="Example: node2seq data fetch karate")
def fetch(
    names: Annotated[list[str], typer.Argument(help="Data sets, see `node2seq data list`.")],
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """Get data sets, so that later runs need no network; downloads are kept in the user's cache."""
    from node2seq.data import load

    fetched = []
    for name in names:
        with _steps(quiet=as_json) as say:
            data = load(name, root=data_root, say=say)
        fetched.append({"name": name, "nodes": int(data.num_nodes or 0), "source": data.source})
        if not as_json:
            typer.echo(f"{name}: {data.num_nodes} nodes, from {data.source}")
    if as_json:
        typer.echo(json.dumps(fetched))


@app.command("export", epilog="Example: node2seq data export karate --edges edges.csv --nodes nodes.csv")
def export(
    name: Annotated[str, typer.Argument(help="Data set, see `node2seq data list`.")],
    edges: Annotated[Path, typer.Option(help="File to write the edges into: .csv, .tsv or .parquet.")],
    nodes: Annotated[Path, typer.Option(help="File to write the nodes into.")],
    seed: Annotated[
        int | None, typer.Option(help="Write the split of this seed, too.", show_default="no split")
    ] = None,
    data_root: DataRoot = None,
) -> None:
    """Write a data set as a file of edges and a file of nodes, in its own order."""
    from node2seq.data import load, make_split, write_graph

    with _steps(quiet=False) as say:
        data = load(name, root=data_root, say=say)
    write_graph(data, edges, nodes, split=None if seed is None else make_split(data, seed=seed))
    typer.echo(f"{name}: edges in {edges}, nodes in {nodes}")


@app.command("check", epilog="Example: node2seq data check --edges edges.csv --nodes nodes.csv --label label")
def check(
    name: Annotated[
        str | None, typer.Argument(help="A data set instead of files.", show_default="your files")
    ] = None,
    edges: Annotated[Path | None, typer.Option(help="File of edges.", show_default=False)] = None,
    nodes: Annotated[Path | None, typer.Option(help="File of nodes.", show_default=False)] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of --nodes to predict.", show_default=False)
    ] = None,
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
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """Read a graph as training would, and say what it is like."""
    from node2seq.data import summarise

    options = reading.arguments(
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
    with _steps(quiet=as_json) as say:
        data = _read(name, edges, nodes, label, options, data_root, say)
        say("summarising")
        summary = summarise(data)
    if as_json:
        typer.echo(json.dumps(summary.as_dict()))
    else:
        for line in _lines(summary):
            typer.echo(line)


def _read(
    name: str | None,
    edges: Path | None,
    nodes: Path | None,
    label: str | None,
    options: dict[str, Any],
    data_root: Path | None,
    say: Say,
) -> Data:
    from node2seq.data import load, read_graph
    from node2seq.errors import Node2SeqError

    if name is None:
        return read_graph(edges, nodes, label, say=say, **options)
    misplaced = [flag for flag, given in (("edges", edges), ("nodes", nodes), ("label", label)) if given]
    misplaced += sorted(set(options) - {"directed"})
    if misplaced:
        raise Node2SeqError(
            f"--{misplaced[0]} with the data set {name}",
            "that is for your own files",
            "Give one or the other",
        )
    return load(name, root=data_root, say=say, directed=bool(options.get("directed")))


@contextmanager
def _steps(*, quiet: bool) -> Iterator[Say]:
    """Show on stderr what is being done: a spinner on a terminal, else a plain line for each step."""
    begun = time.monotonic()
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status("starting") as status:
            yield lambda line: status.update(escape(f"{line} ({time.monotonic() - begun:.0f} s)"))
    else:
        yield lambda line: typer.echo(f"[{time.monotonic() - begun:5.1f} s] {line}", err=True)


def _lines(summary: Summary) -> Iterator[str]:
    kind = "directed" if summary.directed else "undirected"
    yield f"nodes              {summary.nodes} ({summary.isolated} without a neighbour)"
    yield f"edges              {summary.edges} ({kind}); largest degree {summary.largest_degree}"
    yield f"components         {summary.components}; the largest has {summary.largest_component} nodes"
    yield f"features           {summary.features}"
    yield f"classes            {summary.classes}; {summary.labelled} of {summary.nodes} nodes labelled"
    counts = sorted(summary.class_counts.items(), key=lambda item: -item[1])
    for name, count in counts[:_MOST_CLASSES_SHOWN]:
        share = 100 * count / max(summary.labelled, 1)
        yield f"  {name:<16} {count} ({share:.1f} %)"
    if len(counts) > _MOST_CLASSES_SHOWN:
        yield f"  and {len(counts) - _MOST_CLASSES_SHOWN} smaller ones"
    if summary.homophily is not None:
        yield f"homophily          {summary.homophily:.3f} of the edges join nodes of one class"
    yield f"self loops         {summary.self_loops_dropped} dropped"
    yield f"duplicate edges    {summary.duplicates_merged} merged"
    memory = summary.training_bytes / 2**30
    yield (
        f"training           about {_duration(summary.seconds_per_epoch)} an epoch on two CPU cores and "
        f"{memory:.1f} GiB (an estimate)"
    )
    for note in summary.notes:
        yield f"note: {note}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

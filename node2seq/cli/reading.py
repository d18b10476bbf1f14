"""Options for reading one's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_PANEL = "Your own graph"

Edges = Annotated[
    Path | None, typer.Option(help="File of edges.", show_default=False, rich_help_panel=_PANEL)
]
Nodes = Annotated[
    Path | None, typer.Option(help="File of nodes.", show_default=False, rich_help_panel=_PANEL)
]
Label = Annotated[
    str | None,
    typer.Option(help="Column of --nodes to predict.", show_default=False, rich_help_panel=_PANEL),
]
SourceColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of --edges: where an edge starts.",
        show_default="found by its name",
        rich_help_panel=_PANEL,
    ),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of --edges: where an edge ends.",
        show_default="found by its name",
        rich_help_panel=_PANEL,
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="Column of --nodes: the node's id.",
        show_default="found by its name",
        rich_help_panel=_PANEL,
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of --nodes: train, val, test or nothing.",
        show_default="60/20/20 of each class",
        rich_help_panel=_PANEL,
    ),
]
Directed = Annotated[
    bool, typer.Option("--directed", help="Keep the direction of the edges.", rich_help_panel=_PANEL)
]
Fill = Annotated[
    str | None,
    typer.Option(
        help="What stands for missing numbers: mean, or a number.",
        show_default="missing values are errors",
        rich_help_panel=_PANEL,
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--feature",
        help="Column of --nodes to learn from, as often as needed.",
        show_default="all",
        rich_help_panel=_PANEL,
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        help="Feature column that holds categories although it looks like numbers.",
        show_default="none",
        rich_help_panel=_PANEL,
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Column of --nodes to leave out.", show_default="none", rich_help_panel=_PANEL),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="What separates the cells of a CSV file.", show_default="found", rich_help_panel=_PANEL
    ),
]


def arguments(fill: str | None, directed: bool, **columns: Any) -> dict[str, Any]:
    """Return the arguments of ``node2seq.data.read_graph`` that were given."""
    given = {name: value for name, value in columns.items() if value}
    if fill is not None:
        given["fill"] = _number_or_word(fill)
    if directed:
        given["directed"] = True
    return given


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text

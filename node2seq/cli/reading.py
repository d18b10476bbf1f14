"""Options for reading one's own files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from node2seq.runs.folder import Source

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
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder with data sets in PyTorch Geometric's layout.", show_default="$NODE2SEQ_DATA"),
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


def make_source(
    name: str | None,
    data_root: Path | None,
    edges: Path | None,
    nodes: Path | None,
    label: str | None,
    **given: Any,
) -> Source:
    """Return the graph that a command names; ``given`` is what :func:`arguments` takes."""
    from node2seq.runs.folder import Source

    return Source(
        name=name,
        root=_absolute(data_root),
        edges=_absolute(edges),
        nodes=_absolute(nodes),
        label=label,
        reading=arguments(**given),
    )


def _absolute(path: Path | None) -> str | None:
    """Return a path that still means the same file when the run is taken up from elsewhere."""
    return None if path is None else str(path.absolute())


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text

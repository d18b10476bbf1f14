"""The paper's tables as data, the tables that we add to them, and the trainings that they are made of.

Test accuracies in percent, as printed: mean and standard deviation over 20 runs (Tables 4 to 6: means only).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from node2seq.nn.models import MODELS
from node2seq.options import check_choice
from node2seq.recipes import RECIPES, Recipe, family_of, network_for
from node2seq.search.space import Settings
from node2seq.train.settings import TrainSettings, option_defaults


@dataclass(frozen=True)
class Figure:
    """A mean of the paper's, with its standard deviation where one is printed."""

    mean: float
    sd: float | None = None


@dataclass(frozen=True)
class TableLine:
    """One line of a table: a model under a study, and what the paper prints for each column."""

    label: str
    model: str
    study: str = "main"
    figures: Mapping[str, Figure] = field(default_factory=dict)
    variant: str = "paper"


@dataclass(frozen=True)
class ResultTable:
    """Lines over columns.

    Args:
        title: Its heading.
        columns: Names of columns.
        lines: Each has a cell in every column that there is a recipe for.
        contrasts: Which lines' differences to tell, as labels: first minus second; none: all of them.
    """

    title: str
    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]
    contrasts: tuple[tuple[str, str], ...] = ()


#: How the paper writes the columns.
COLUMN_TITLES: dict[str, str] = {
    "cora-f": "Cora-F",
    "cora-r": "Cora-R",
    "citeseer-f": "Citeseer-F",
    "citeseer-r": "Citeseer-R",
    "amazon-r": "Amazon-R",
    "chameleon": "Chameleon",
    "squirrel": "Squirrel",
    "actor": "Actor",
    "cornell": "Cornell",
    "texas": "Texas",
    "wisconsin": "Wisconsin",
}

#: How the paper writes the models.
MODEL_TITLES: dict[str, str] = {
    "node2seq": "Node2Seq",
    "gcn": "GCN",
    "gat": "GAT",
    "cheby": "Cheby",
    "sgc": "SGC",
    "lgcn": "LGCN",
    "gcn*": "GCN*",
    "mlp": "MLP",
    "gin": "GIN",
}

#: What the variant "plus" has beyond the paper, and the options or training settings that make it up.
PLUS_OPTIONS: dict[str, tuple[str, ...]] = {
    "few weights per tap": ("taps",),
    "own features apart": ("own",),
    "node dropout": ("node_dropout",),
    "normalisation": ("norm",),
    "smoothing over the graph": ("smoothing", "teleport", "smoothed"),
    "neighbours without oneself": ("self_loops",),
    "consistent views": ("views", "consistency", "sharpening"),
    "averaged weights": ("averaging",),
    "smoothed labels": ("label_smoothing",),
}

#: What each study changes in the recipe of its model and column; None: back to what it is in the paper.
STUDIES: dict[str, dict[str, str | int | float | None]] = {
    "main": {},
    "local": {"hops": 1},
    **{f"k={k}": {"kernel_size": k} for k in (3, 5, 8, 10)},
    **{f"order={order}": {"order": order} for order in ("attention", "degree", "random")},
    **{f"readout={readout}": {"readout": readout} for readout in ("max", "mean", "sum")},
    **{
        f"hops={hops},threshold={threshold:g}": {"hops": hops, "threshold": threshold}
        for hops in (2, 3)
        for threshold in (-0.5, 0.0, 0.5)
    },
    **{f"without {option}": dict.fromkeys(names) for option, names in PLUS_OPTIONS.items()},
}

_HOMOPHILIC = ("cora-f", "cora-r", "citeseer-f", "citeseer-r", "amazon-r")
_HETEROPHILIC = ("chameleon", "squirrel", "actor", "cornell", "texas", "wisconsin")
_NONLOCAL = ("cora-f", "citeseer-f", "citeseer-r", "chameleon", "squirrel", "texas")
_ABLATED = ("cora-f", "cora-r", "citeseer-f", "citeseer-r", "chameleon", "squirrel")
_KERNELS = ("cora-f", "squirrel")


def _figures(columns: tuple[str, ...], means: str, sds: str | None = None) -> dict[str, Figure]:
    spread = [None] * len(columns) if sds is None else [float(sd) for sd in sds.split()]
    pairs = zip(columns, map(float, means.split()), spread, strict=True)
    return {column: Figure(mean, sd) for column, mean, sd in pairs}


def _lines(columns: tuple[str, ...], *printed: tuple[str, ...]) -> tuple[TableLine, ...]:
    """A line for each model: its means over the runs, and their standard deviations where there are some."""
    return tuple(
        TableLine(MODEL_TITLES[model], model, figures=_figures(columns, *figures))
        for model, *figures in printed
    )


TABLES: dict[str, ResultTable] = {
    "2": ResultTable(
        "Table 2: citation and co-purchase graphs",
        _HOMOPHILIC,
        _lines(
            _HOMOPHILIC,
            ("cheby", "80.7 76.5 69.9 67.2 88.0", "1.1 1.6 1.0 1.6 1.9"),
            ("gcn", "81.6 79.2 70.3 67.9 87.6", "0.8 1.9 0.9 1.7 2.1"),
            ("gat", "82.9 81.1 70.7 69.1 89.4", "0.5 1.2 0.6 1.6 1.8"),
            ("sgc", "81.2 80.7 71.0 68.3 89.5", "1.6 1.8 0.5 1.4 1.8"),
            ("lgcn", "82.7 80.5 71.2 68.6 88.9", "0.7 1.5 0.6 1.7 1.9"),
            ("node2seq", "84.0 82.0 72.4 70.8 90.1", "0.6 1.2 1.1 1.7 1.1"),
        ),
    ),
    "3": ResultTable(
        "Table 3: graphs whose neighbours differ",
        _HETEROPHILIC,
        _lines(
            _HETEROPHILIC,
            ("gcn", "68.1 54.1 30.6 57.2 61.2 60.7", "1.6 1.7 1.0 7.3 5.6 5.5"),
            ("gat", "66.3 50.8 29.6 55.1 58.1 58.7", "2.8 2.1 0.8 5.9 5.1 7.7"),
            ("sgc", "65.0 45.5 30.2 55.8 55.1 53.7", "2.1 1.8 1.3 5.3 5.4 6.3"),
            ("node2seq", "69.4 58.8 31.4 58.7 63.7 60.3", "1.6 1.4 1.0 6.8 6.1 7.0"),
        ),
    ),
    "4": ResultTable(
        "Table 4: local neighbours only, and adaptive non-local ones",
        _NONLOCAL,
        (
            TableLine("local", "node2seq", "local", _figures(_NONLOCAL, "81.8 70.7 69.8 68.5 57.0 61.5")),
            TableLine(
                "with non-local", "node2seq", figures=_figures(_NONLOCAL, "84.0 72.4 70.8 69.4 58.8 63.7")
            ),
        ),
        contrasts=(("with non-local", "local"),),
    ),
    "5": ResultTable(
        "Table 5: a GCN layer in the Node2Seq layer's place",
        _ABLATED,
        _lines(
            _ABLATED,
            ("gcn", "81.6 79.2 70.3 67.9 68.1 54.1"),
            ("gcn*", "80.7 79.1 69.2 69.1 68.6 56.5"),
            ("node2seq", "84.0 82.0 72.4 70.8 69.4 58.8"),
        ),
        contrasts=(("Node2Seq", "GCN*"),),
    ),
    "6": ResultTable(
        "Table 6: kernel sizes",
        _KERNELS,
        tuple(
            TableLine(f"k = {k}", "node2seq", f"k={k}", _figures(_KERNELS, means))
            for k, means in ((3, "83.5 58.8"), (5, "83.7 58.1"), (8, "83.8 57.8"), (10, "84.0 57.6"))
        ),
    ),
    "order": ResultTable(
        "Does the learned order matter? (ours)",
        _ABLATED,
        tuple(
            TableLine(f"by {order}" if order != "random" else "at random", "node2seq", f"order={order}")
            for order in ("attention", "degree", "random")
        ),
    ),
    "readout": ResultTable(
        "The readout over the windows (ours)",
        _ABLATED,
        tuple(TableLine(readout, "node2seq", f"readout={readout}") for readout in ("max", "mean", "sum")),
    ),
    "hops": ResultTable(
        "Hops ℓ and threshold β (ours)",
        ("cora-f", "citeseer-f", "chameleon", "texas"),
        (
            TableLine("ℓ = 1", "node2seq", "local"),
            *(
                TableLine(
                    f"ℓ = {hops}, β = {threshold:g}".replace("-", "−"),
                    "node2seq",
                    f"hops={hops},threshold={threshold:g}",
                )
                for hops in (2, 3)
                for threshold in (-0.5, 0.0, 0.5)
            ),
        ),
    ),
}


def _plus(table: str) -> ResultTable:
    """A table of the paper's, of the variant "plus"; the paper's figures stand beside Node2Seq's alone.

    The MLP, which sees no neighbours, shows what a network that keeps a node's own features apart may owe
    to them.
    """
    shape = TABLES[table]
    *baselines, ours = (replace(line, variant="plus") for line in shape.lines)
    baselines = [*(replace(line, figures={}) for line in baselines), TableLine("MLP", "mlp", variant="plus")]
    return ResultTable(
        f"Table {table} with options beyond the paper (plus)",
        shape.columns,
        (*baselines, ours),
        tuple((ours.label, line.label) for line in baselines),
    )


def _ablation(table: str) -> ResultTable:
    """Every option of the variant "plus" taken out alone."""
    lines = tuple(
        TableLine(f"without {option}", "node2seq", f"without {option}", variant="plus")
        for option in PLUS_OPTIONS
    )
    return ResultTable(
        f"Table {table} without one of the options (plus)",
        TABLES[table].columns,
        (TableLine("with all", "node2seq", variant="plus"), *lines),
        tuple(("with all", line.label) for line in lines),
    )


TABLES |= {
    "plus-2": _plus("2"),
    "plus-3": _plus("3"),
    "ablation-2": _ablation("2"),
    "ablation-3": _ablation("3"),
    "directed": ResultTable(
        "Edges that keep their direction (directed)",
        ("chameleon", "squirrel"),
        (
            TableLine("direction dropped (paper)", "node2seq"),
            TableLine("direction dropped (plus)", "node2seq", variant="plus"),
            TableLine("direction kept", "node2seq", variant="directed"),
        ),
    ),
}


#: What the paper prints for its own network in Tables 2 and 3, by column.
PRINTED = {
    column: figure
    for name in ("2", "3")
    for line in TABLES[name].lines
    if line.model == "node2seq"
    for column, figure in line.figures.items()
}


def first_in_print(columns: Container[str]) -> int:
    """In how many of these columns the paper's own network is above all others that it prints."""
    count = 0
    for name in ("2", "3"):
        *others, ours = TABLES[name].lines
        for column in TABLES[name].columns:
            above = all(ours.figures[column].mean > line.figures[column].mean for line in others)
            count += above and column in columns
    return count


#: The paper's Table 1 as printed: nodes, edges, features and classes. Its edges are directed or not.
TABLE_1 = {
    "cora": (2708, 5429, 1433, 7),
    "citeseer": (3327, 4732, 3703, 6),
    "photo": (7487, 119043, 745, 8),
    "chameleon": (2277, 36101, 2325, 5),
    "squirrel": (5201, 217073, 2089, 5),
    "actor": (7600, 33544, 931, 5),
    "cornell": (183, 295, 1703, 5),
    "texas": (183, 309, 1703, 5),
    "wisconsin": (251, 499, 1703, 5),
}

#: What the printed numbers of edges count, where it is not what they say.
EDGE_NOTES: dict[str, str] = {
    "cora": "citations as listed in the original release",
    "citeseer": "citations as listed in the original release",
    "chameleon": "entries of the directed list with self loops",
    "squirrel": "entries of the directed list with self loops",
    "actor": "matches nothing in the public file; nor do the features",
    "cornell": "entries of the directed list without self loops",
    "texas": "entries of the directed list without self loops",
    "wisconsin": "entries of the directed list without self loops",
}


K = TypeVar("K")
V = TypeVar("V")

RUNS = 20


class Cell(NamedTuple):
    """One figure of a table: a model on a column, under a study."""

    model: str
    column: str
    variant: str = "paper"
    study: str = "main"

    def __str__(self) -> str:
        extra = [part for part in (self.variant, self.study) if part not in ("paper", "main")]
        return " ".join([self.column, self.model, *extra])


class Key(NamedTuple):
    """One training: a cell and the seed of its split and its initial weights."""

    model: str
    column: str
    variant: str
    study: str
    seed: int

    @property
    def cell(self) -> Cell:
        """The figure that this training counts for."""
        return Cell(*self[:4])


@dataclass(frozen=True)
class Run:
    """A training to be done, with everything that it takes.

    Args:
        key: Which training: a :class:`Key`, or one of a search.
        recipe: How; None: by the rule for any graph, from the training nodes of its split.
        settings: In a search, what was drawn for it.
    """

    key: Any
    recipe: Recipe | None
    settings: Settings = field(default_factory=dict)


def cell_of(line: TableLine, column: str) -> Cell | None:
    """The cell of a line and a column; None if it has no recipe, or not the option that the line takes out.

    Any other study that changes nothing there is the main one.
    """
    if column not in RECIPES[line.variant].get(line.model, {}):
        return None
    cell = Cell(line.model, column, line.variant, line.study)
    main = cell._replace(study="main")
    if _effect(cell) != _effect(main):
        return cell
    return None if None in STUDIES[line.study].values() else main


def _effect(cell: Cell) -> tuple[dict[str, Any], TrainSettings]:
    """What a cell is trained with, the model's defaults included."""
    recipe = recipe_of(cell)
    network = network_for(cell.model, cell.variant)
    return {**option_defaults(network), **recipe.options}, recipe.settings


def recipe_of(cell: Cell) -> Recipe:
    """The settings that a cell is trained with."""
    return RECIPES[cell.variant][cell.model][cell.column].updated(**STUDIES[cell.study])


def cells_of(table: str) -> list[Cell]:
    """The cells of a table, line by line; one that stands for two lines is listed twice."""
    shape = TABLES[table]
    cells = [cell_of(line, column) for line in shape.lines for column in shape.columns]
    return [cell for cell in cells if cell is not None]


def choose_cells(
    tables: Iterable[str] = (), columns: Iterable[str] = (), models: Iterable[str] = ()
) -> list[Cell]:
    """The distinct cells of tables (all of the paper's if none is named), on some columns and models only."""
    tables, columns, models = list(tables), list(columns), list(models)
    names = [name for name in MODELS if family_of(name) == name]
    known = {"table": ["1", *TABLES], "column": list(COLUMN_TITLES), "model": names}
    for kind, given in (("table", tables), ("column", columns), ("model", models)):
        for name in given:
            check_choice(kind, name, known[kind])
    named = [table for table in tables or ("2", "3", "4", "5", "6") if table != "1"]
    cells = dict.fromkeys(cell for table in named for cell in cells_of(table))
    return [
        cell
        for cell in cells
        if (not columns or cell.column in columns) and (not models or cell.model in models)
    ]


def grouped(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Values by a key, groups and members in the order in which they come."""
    found: dict[K, list[V]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return found


def runs_of(cells: Iterable[Cell], count: int = RUNS, epochs: int | None = None) -> list[Run]:
    """The trainings of cells with seeds 0 to count − 1; ``epochs`` cuts them short for a trial."""
    recipes = {cell: recipe_of(cell) for cell in cells}
    if epochs is not None:
        recipes = {
            cell: recipe.updated(epochs=min(epochs, recipe.settings.epochs))
            for cell, recipe in recipes.items()
        }
    # The longest first, so that no worker is left with one of them at the end.
    longest = sorted(recipes.items(), key=lambda pair: -pair[1].settings.epochs)
    return [Run(Key(*cell, seed), recipe) for cell, recipe in longest for seed in range(count)]

"""Which trainings the tables are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from node2seq.experiments.paper import COLUMN_TITLES, STUDIES, TABLES, TableLine
from node2seq.nn.models import MODELS
from node2seq.options import check_choice
from node2seq.recipes import RECIPES, Recipe, family_of, network_for
from node2seq.search.space import Settings
from node2seq.train.settings import TrainSettings, option_defaults

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

"""All cells of the tables exist, and each can be trained on the real data."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from result_rows import result_row

from node2seq.data import load
from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import (
    PLUS_OPTIONS,
    STUDIES,
    TABLES,
    Cell,
    cells_of,
    choose_cells,
    recipe_of,
    runs_of,
)
from node2seq.experiments.rows import ResultRow, RowStore
from node2seq.experiments.trainer import CellTrainer
from node2seq.nn.models import MODELS
from node2seq.recipes import RECIPES, Recipe, plus
from node2seq.recipes.plus import TRAINING_OPTIONS
from node2seq.train.settings import TrainSettings, recipe

RealData = Callable[..., Any]
ROOT = Path(__file__).parents[2]
CELLS = choose_cells()


def test_the_cells_of_the_paper_are_counted() -> None:
    counts = {table: len(cells_of(table)) for table in "23456"}
    assert counts == {"2": 30, "3": 24, "4": 12, "5": 18, "6": 8}
    assert len(CELLS) == len(set(CELLS)) == 72
    assert len(runs_of(CELLS)) == 1440
    assert len({run.key for run in runs_of(CELLS)}) == 1440


def test_the_paper_prints_a_figure_for_each_of_its_cells() -> None:
    for name in "23456":
        for line in TABLES[name].lines:
            assert list(line.figures) == list(TABLES[name].columns)


def test_what_the_tables_give_away_is_in_the_recipes() -> None:
    assert recipe_of(Cell("node2seq", "cora-f")).options["kernel_size"] == 10
    assert recipe_of(Cell("node2seq", "squirrel")).options["kernel_size"] == 3
    for column in TABLES["4"].columns:
        assert recipe_of(Cell("node2seq", column)).options["hops"] > 1
        assert recipe_of(Cell("node2seq", column, study="local")).options["hops"] == 1
    assert recipe_of(Cell("lgcn", "cora-f")).settings.optimizer == "nadam"
    others = {recipe_of(cell).settings.optimizer for cell in CELLS if cell.model != "lgcn"}
    assert others == {"adam"}


@pytest.fixture
def plus_on_texas(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A recipe of the variant plus that has two of its options."""
    options = {"hidden_channels": 8, "taps": "scalar", "smoothing": 2, "teleport": 0.2}
    own = recipe(options, {"epochs": 3, "averaging": 0.9})
    monkeypatch.setitem(RECIPES["plus"], "node2seq", {"texas": own})
    monkeypatch.setitem(RECIPES["directed"], "node2seq", {"texas": own.updated(directed=True)})
    return own


def test_variants_are_cells_of_their_own(plus_on_texas: Recipe) -> None:
    assert Cell("node2seq", "texas", "plus") in cells_of("plus-3")
    assert recipe_of(Cell("node2seq", "texas", "plus")) == plus_on_texas
    assert recipe_of(Cell("node2seq", "texas")).options["hops"] == 2
    assert all(cell.variant == "paper" for cell in CELLS)


def test_recipes_of_the_paper_have_no_option_beyond_it() -> None:
    beyond = {name for names in PLUS_OPTIONS.values() for name in names} | {"directed"}
    usual = asdict(TrainSettings())
    for by_column in RECIPES["paper"].values():
        for own in by_column.values():
            assert not beyond & own.options.keys()
            changes = {name for name, value in asdict(own.settings).items() if value != usual[name]}
            assert not beyond & changes
    for by_column in RECIPES["plus"].values():
        assert not any(own.options.get("directed") for own in by_column.values())


def test_an_option_is_taken_out_only_where_it_is(plus_on_texas: Recipe) -> None:
    cells = cells_of("ablation-3")
    assert [cell.study for cell in cells] == [
        "main",
        "without few weights per tap",
        "without smoothing over the graph",
        "without averaged weights",
    ]
    found = {cell.study: recipe_of(cell) for cell in cells}
    assert found["without few weights per tap"] == replace(
        plus_on_texas, options={"hidden_channels": 8, "smoothing": 2, "teleport": 0.2}
    )
    assert found["without smoothing over the graph"].options == {"hidden_channels": 8, "taps": "scalar"}
    assert found["without averaged weights"].settings == replace(plus_on_texas.settings, averaging=0.0)
    assert found["without averaged weights"].options == plus_on_texas.options


def test_a_name_of_the_plus_options_is_one_of_the_network_or_the_trainer() -> None:
    known = {*inspect.signature(MODELS["node2seq-plus"]).parameters, *TrainSettings.__dataclass_fields__}
    assert {name for names in PLUS_OPTIONS.values() for name in names} <= known
    assert {*TRAINING_OPTIONS} <= set(TrainSettings.__dataclass_fields__)


def test_baselines_are_trained_as_plus_is(monkeypatch: pytest.MonkeyPatch, plus_on_texas: Recipe) -> None:
    monkeypatch.setitem(plus._NODE2SEQ, "texas", plus_on_texas)
    found, of_paper = plus._inherited("gcn")["texas"], RECIPES["paper"]["gcn"]["texas"]
    assert found.options == of_paper.options
    assert found.settings == replace(of_paper.settings, averaging=0.9)
    assert "texas" not in plus._inherited("cheby")


@pytest.mark.usefixtures("plus_on_texas")
def test_only_the_directed_variant_keeps_directions(
    trainer: CellTrainer, real_data: Callable[..., Any]
) -> None:
    real_data("texas", load)
    for variant in ("plus", "directed"):
        (run,) = runs_of([Cell("node2seq", "texas", variant)], 1)
        (row,), failures = trainer.train([run])
        assert not failures
        assert row.key.variant == variant
    assert {way for column, way in trainer._graphs if column == "texas"} == {"", "directed"}
    ways = trainer.graph("texas", "directed").edge_index, trainer.graph("texas").edge_index
    assert [edges.size(1) for edges in ways if edges is not None] == [309, 2 * 279]


def test_committed_rows_are_of_the_present_recipes() -> None:
    rows = RowStore(ROOT / "results").rows
    assert len(rows) >= 860
    stale = [key for key, row in rows.items() if not row.is_of(recipe_of(key.cell))]
    assert not stale


def test_every_recipe_names_its_source() -> None:
    assert all(recipe_of(cell).source for cell in CELLS)


def test_every_study_changes_what_it_names() -> None:
    for table in TABLES:
        for cell in cells_of(table):
            if not cell.study.startswith("without"):
                options = recipe_of(cell).options
                assert all(options[key] == value for key, value in STUDIES[cell.study].items())


def test_names_that_do_not_exist_are_refused() -> None:
    for arguments in ({"tables": ["7"]}, {"columns": ["pubmed"]}, {"models": ["gpt"]}):
        with pytest.raises(Node2SeqError, match="there is no such choice"):
            choose_cells(**arguments)


def test_a_recipe_survives_its_row() -> None:
    for cell in CELLS:
        recipe = recipe_of(cell)
        row = ResultRow.from_json(json.loads(json.dumps(result_row(cell, 0).to_json())))
        assert row.is_of(recipe)
        assert row.trained_with.settings == recipe.settings
        changed = replace(recipe, settings=replace(recipe.settings, lr=0.123))
        assert not row.is_of(changed)


@pytest.fixture(scope="module")
def trainer() -> CellTrainer:
    return CellTrainer(torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", dict.fromkeys([*CELLS, *choose_cells(["plus-2", "plus-3", "directed"])]), ids=str
)
def test_every_cell_trains_on_the_real_data(
    cell: Cell, trainer: CellTrainer, real_data: Callable[..., Any]
) -> None:
    real_data(cell.column, load)
    (run,) = runs_of([cell], 1, epochs=2)
    (row,), failures = trainer.train([run])
    assert not failures
    assert row.epochs == 2
    assert 0 < row.val < 1
    assert (row.test_rest is not None) == cell.column.endswith("-f")
    assert row.key == run.key


def test_a_run_is_the_same_every_time(trainer: CellTrainer, real_data: RealData) -> None:
    real_data("texas", load)
    for model in ("node2seq", "gat"):
        (run,) = runs_of([Cell(model, "texas")], 1, epochs=10)
        (first,), (second,) = (trainer.train([run])[0] for _ in range(2))
        assert replace(first, seconds=0, at=0) == replace(second, seconds=0, at=0)

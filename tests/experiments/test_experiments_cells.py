"""All cells of the tables exist, and each can be trained on the real data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from node2seq.data import load
from node2seq.errors import Node2SeqError
from node2seq.experiments import Bench, Cell, Key, cells_of, choose_cells, recipe_of, runs_of
from node2seq.experiments.cells import recipe_from_row, recipe_to_row, same_recipe
from node2seq.paper import STUDIES, TABLES

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


def test_every_recipe_names_its_source() -> None:
    assert all(recipe_of(cell).source for cell in CELLS)


def test_every_study_changes_what_it_names() -> None:
    for table in TABLES:
        for cell in cells_of(table):
            options = recipe_of(cell).options
            assert all(options.get(key) == value for key, value in STUDIES[cell.study].items())


def test_names_that_do_not_exist_are_refused() -> None:
    for arguments in ({"tables": ["7"]}, {"columns": ["pubmed"]}, {"models": ["gpt"]}):
        with pytest.raises(Node2SeqError, match="there is no such one"):
            choose_cells(**arguments)


def test_a_recipe_survives_its_row() -> None:
    for cell in CELLS:
        recipe = recipe_of(cell)
        row = {"recipe": json.loads(json.dumps(recipe_to_row(recipe)))}
        assert same_recipe(row, recipe)
        assert recipe_from_row(row["recipe"]).settings == recipe.settings
        changed = replace(recipe, settings=replace(recipe.settings, lr=0.123))
        assert not same_recipe(row, changed)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_cell_trains_on_the_real_data(cell: Cell, bench: Bench, real_data: Callable[..., Any]) -> None:
    real_data(cell.column, load)
    (run,) = runs_of([cell], 1, epochs=2)
    (row,), failures = bench.train([run])
    assert not failures
    assert row["epochs"] == 2
    assert 0 < row["val"] < 1
    assert ("test_rest" in row) == cell.column.endswith("-f")
    assert Key.of(row) == run.key


def test_a_run_is_the_same_every_time(bench: Bench, real_data: Callable[..., Any]) -> None:
    real_data("texas", load)
    for model in ("node2seq", "gat"):
        (run,) = runs_of([Cell(model, "texas")], 1, epochs=10)
        (first,), (second,) = (bench.train([run])[0] for _ in range(2))
        assert {**first, "seconds": 0} == {**second, "seconds": 0}

"""Rows for tests: complete ones, of which a test names what it is about."""

from __future__ import annotations

from typing import Any

from node2seq.experiments.paper import Cell, Key, recipe_of
from node2seq.experiments.rows import ResultRow, recipe_to_json
from node2seq.recipes import RECIPES


def result_row(cell: Cell, seed: int, **values: Any) -> ResultRow:
    """A row of a cell, with its recipe if there is one."""
    known = cell.column in RECIPES.get(cell.variant, {}).get(cell.model, {})
    usual: dict[str, Any] = {
        "val": 0.8,
        "test": 0.7,
        "test_nodes": 1000,
        "epoch": 10,
        "epochs": 20,
        "seconds": 2.0,
        "recipe": recipe_to_json(recipe_of(cell if known else cell._replace(variant="paper"))),
        "device": "a device",
        "versions": {},
        "commit": None,
        "call": "one",
        "jobs": 1,
        "at": 1.0,
    }
    return ResultRow(key=Key(*cell, seed), **(usual | values))

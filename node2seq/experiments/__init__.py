"""The paper's tables, reproduced: cells → trainings → rows → rendered tables.

Needs torch, torch_geometric and numpy alone, as ``python -m node2seq reproduce`` does.
"""

from node2seq.experiments.cell_trainer import CellTrainer
from node2seq.experiments.cells import RUNS, Cell, Key, Run, cells_of, choose_cells, recipe_of, runs_of
from node2seq.experiments.check import STATED_TOLERANCE, Comparison, check_rows
from node2seq.experiments.rows import ResultRow
from node2seq.experiments.store import RowStore
from node2seq.experiments.workers import reproduce

__all__ = [
    "RUNS",
    "STATED_TOLERANCE",
    "Cell",
    "CellTrainer",
    "Comparison",
    "Key",
    "ResultRow",
    "RowStore",
    "Run",
    "cells_of",
    "check_rows",
    "choose_cells",
    "recipe_of",
    "reproduce",
    "runs_of",
]

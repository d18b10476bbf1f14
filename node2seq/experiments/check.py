"""Rows trained again and compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from node2seq.environment import pick_device, source_commit
from node2seq.errors import Node2SeqError
from node2seq.experiments.cell_trainer import CellTrainer, ReproduceCall
from node2seq.experiments.cells import Key, Run
from node2seq.experiments.rows import ResultRow, RowStore

# Another device, version or way of computing rounds differently, and a training is a long chain of roundings:
# it may choose another epoch, a few test nodes better or worse.
TOLERANCE_POINTS = 3.0
TOLERANCE_NODES = 4

STATED_TOLERANCE = (
    "equal validation and test accuracy and epoch where device, versions and commit are those of the row; "
    f"elsewhere a test accuracy within {TOLERANCE_POINTS:g} points or {TOLERANCE_NODES} test nodes, "
    "whichever is more"
)


@dataclass(frozen=True)
class Comparison:
    """A row and what the same training gives here."""

    row: ResultRow
    val: float
    test: float
    epoch: int
    same_bits: bool
    """Whether machine and code are those of the row, so that every bit has to be."""

    @property
    def allowed(self) -> float:
        """The largest difference in test accuracy that passes, as a fraction."""
        if self.same_bits:
            return 0.0
        return max(TOLERANCE_POINTS / 100, TOLERANCE_NODES / self.row.test_nodes) + 1e-9

    @property
    def passed(self) -> bool:
        """Whether the row holds here."""
        if self.same_bits:
            found = (self.val, self.test, self.epoch)
            return found == (self.row.val, self.row.test, self.row.epoch)
        return abs(self.test - self.row.test) <= self.allowed


def check_rows(
    folder: str,
    count: int,
    *,
    seed: int,
    device: str = "auto",
    root: str | Path | None = None,
    only: Callable[[Key], bool] = lambda _: True,
    on_comparison: Callable[[Comparison], None] = lambda _: None,
) -> Sequence[Comparison]:
    """Train random rows again, each with the recipe that it was made with.

    Args:
        folder: Where the rows are kept.
        count: How many of them.
        seed: Which of them.
        device: Where to train.
        root: The folder of the data sets; None for the usual places.
        only: Which rows may be drawn.
        on_comparison: Called after each.
    """
    rows = RowStore(folder).rows
    keys = sorted(key for key in rows if only(key))
    trainer = CellTrainer(pick_device(device), root, ReproduceCall(commit=source_commit()))
    comparisons = []
    for key in random.Random(seed).sample(keys, min(count, len(keys))):
        comparison = _compare(trainer, rows[key])
        on_comparison(comparison)
        comparisons.append(comparison)
    return comparisons


def _compare(trainer: CellTrainer, row: ResultRow) -> Comparison:
    """Train a row again: on the same machine in the same company, which gives the same bits."""
    same = trainer.made(row)
    seeds = row.together if same and row.together is not None else [row.key.seed]
    recipe = row.trained_with
    rows, failures = trainer.train([Run(row.key._replace(seed=seed), recipe) for seed in seeds])
    if row.key in failures:
        raise Node2SeqError(
            f"{row.key.cell}, seed {row.key.seed}", failures[row.key], "Yet it has a row: restore the code"
        )
    again = next(again for again in rows if again.key == row.key)
    return Comparison(row, again.val, again.test, again.epoch, same)

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
from node2seq.experiments.variation import Difference, Variation, difference


@dataclass(frozen=True)
class Comparison:
    """A row and what the same training gives here."""

    row: ResultRow
    again: ResultRow
    same_bits: bool
    """Whether machine type and code are those of the row, so that every bit has to be."""

    @property
    def difference(self) -> Difference:
        """How far the two are apart."""
        return difference(self.row, self.again)

    @property
    def equal(self) -> bool:
        """Whether validation and test accuracy and the epoch are the same."""
        return self.difference == (0, 0, 0)


def judge(comparisons: Sequence[Comparison], variation: Variation) -> bool:
    """Whether rows hold: each is equal where it has to be, the others differ as repeated trainings do."""
    elsewhere = [one.difference for one in comparisons if not one.same_bits]
    return all(one.equal for one in comparisons if one.same_bits) and variation.holds(elsewhere)


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
    return Comparison(row, next(again for again in rows if again.key == row.key), same)

"""Rows trained again and compared: how far the same training differs when it is made twice, what a check
allows for it, and what it would notice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import ceil, comb
from pathlib import Path
from typing import NamedTuple

from node2seq.environment import pick_device, source_commit
from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import Key, Run, grouped
from node2seq.experiments.rows import ResultRow, RowStore, recipe_to_json
from node2seq.experiments.trainer import CellTrainer, ReproduceCall

CLOSE_SHARE = 0.95
"""The share of repeated trainings that are within each bound of :attr:`Variation.close`."""

FALSE_ALARMS = 0.05
"""How often several rows that are right may fail together, at most."""

FEWEST_REPEATS = 100
"""With fewer repeated trainings among the rows of a folder, the stated bounds apply."""

FEWEST_OF_A_MODEL = 20
"""With fewer repeated trainings, a model has no share of its own."""


class Difference(NamedTuple):
    """How far two trainings are apart.

    Args:
        val: In validation accuracy, as a fraction.
        test: In test accuracy, as a fraction.
        epoch: In the chosen epoch, as a share of the later one.
    """

    val: float
    test: float
    epoch: float

    def within(self, bounds: Difference) -> bool:
        """Whether none of the three exceeds its bound."""
        return all(found <= bound + 1e-9 for found, bound in zip(self, bounds, strict=True))


def difference(one: ResultRow, other: ResultRow) -> Difference:
    """How far two rows are apart."""
    return Difference(
        abs(one.val - other.val),
        abs(one.test - other.test),
        abs(one.epoch - other.epoch) / max(one.epoch, other.epoch, 1),
    )


@dataclass(frozen=True)
class Variation:
    """What repeated trainings differ by, and what is allowed for it.

    Args:
        close: What most repeated trainings are within.
        widest: What all of them are within.
        close_share: The share of them that is close in all three, for the model whose trainings vary most.
        repeats: How many there are; 0 if the bounds are the stated ones.
    """

    close: Difference
    widest: Difference
    close_share: float
    repeats: int = 0

    def needed(self, rows: int) -> int:
        """How many of the rows have to be close, so that right rows are rarely rejected."""
        enough = (k for k in range(rows, 1, -1) if at_least(k, rows, self.close_share) >= 1 - FALSE_ALARMS)
        return next(enough, min(rows, 1))

    def holds(self, found: Sequence[Difference]) -> bool:
        """Whether rows hold: none beyond what any repeat shows, and enough of them close."""
        close = sum(one.within(self.close) for one in found)
        return all(one.within(self.widest) for one in found) and close >= self.needed(len(found))

    def right_rate(self, rows: int) -> float:
        """How often right rows pass, for the model whose trainings vary most."""
        return at_least(self.needed(rows), rows, self.close_share)

    def pass_rate(self, population: Sequence[Difference], rows: int) -> float:
        """How often rows pass if their differences are drawn from a population."""
        if not population:
            return 0.0
        close = sum(one.within(self.close) for one in population) / len(population)
        between = sum(one.within(self.widest) for one in population) / len(population) - close
        return at_least(self.needed(rows), rows, close, between)


STATED = Variation(
    close=Difference(val=0.0066, test=0.0192, epoch=0.4),
    widest=Difference(val=0.04, test=0.0513, epoch=1.0),
    close_share=0.76,
)
"""For folders with too few repeated trainings: what the committed rows give, rounded."""


def at_least(k: int, rows: int, close: float, between: float | None = None) -> float:
    """The probability that ``k`` or more of the rows are close and the others between the bounds."""
    between = 1 - close if between is None else between
    return sum(comb(rows, j) * close**j * between ** (rows - j) for j in range(k, rows + 1))


def variation_of(rows: Iterable[ResultRow]) -> Variation:
    """The bounds that the repeated trainings among rows give."""
    by_model = repeated(rows)
    found = [one for differences in by_model.values() for one in differences]
    if len(found) < FEWEST_REPEATS:
        return STATED
    ordered = [sorted(values) for values in zip(*found, strict=True)]
    close = Difference(*(values[ceil(CLOSE_SHARE * len(values)) - 1] for values in ordered))
    shares = [
        sum(one.within(close) for one in group) / len(group)
        for group in (found, *by_model.values())
        if len(group) >= FEWEST_OF_A_MODEL
    ]
    # Any epoch may be chosen where the validation accuracy hardly changes: it is no ground to fail alone.
    widest = Difference(ordered[0][-1], ordered[1][-1], 1.0)
    return Variation(close, widest, min(shares), len(found))


def repeated(rows: Iterable[ResultRow]) -> dict[str, list[Difference]]:
    """The differences of trainings that were made twice, by other code or on another machine type, by model.

    Where the variants ``paper`` and ``plus`` have one recipe for a model, their rows are the same training.
    """
    found: dict[str, list[Difference]] = {}
    for group in grouped(rows, _training).values():
        for one, other in combinations(group, 2):
            if _origin(one) != _origin(other):
                found.setdefault(one.key.model, []).append(difference(one, other))
    return found


def foreign(rows: Iterable[ResultRow]) -> list[Difference]:
    """The differences to rows of other models: those of the same column, variant, study and seed."""
    return [
        difference(one, other)
        for group in grouped(rows, lambda row: row.key._replace(model="")).values()
        for one, other in permutations(group, 2)
    ]


def _training(row: ResultRow) -> Hashable:
    """What decides about the outcome of a training: equal for rows of the same one."""
    recipe = json.dumps(recipe_to_json(row.trained_with), sort_keys=True)
    return row.key.model, row.key.column, row.key.variant == "directed", row.key.seed, recipe


def _origin(row: ResultRow) -> tuple[str | None, str, str]:
    return row.commit, row.device, json.dumps(dict(row.versions), sort_keys=True)


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
    """Train a row again: on the same machine with the same runs beside it, which gives the same bits."""
    same = trainer.made(row)
    seeds = row.together if same and row.together is not None else [row.key.seed]
    recipe = row.trained_with
    rows, failures = trainer.train([Run(row.key._replace(seed=seed), recipe) for seed in seeds])
    if row.key in failures:
        raise Node2SeqError(
            f"{row.key.cell}, seed {row.key.seed}", failures[row.key], "Yet it has a row: restore the code"
        )
    return Comparison(row, next(again for again in rows if again.key == row.key), same)

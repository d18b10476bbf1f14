"""What a recipe is, and short ways of writing one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from node2seq.train.settings import TrainSettings

#: The source of whatever was searched for.
OURS = "chosen on validation accuracy, seeds 100 and up"


@dataclass(frozen=True)
class Recipe:
    """Settings of one model for one data set.

    Args:
        options: Arguments of the model's constructor.
        settings: How to train.
        row_normalize: Divide each node's features by their sum first.
        source: Where the values come from.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    settings: TrainSettings = field(default_factory=TrainSettings)
    row_normalize: bool = False
    source: str = ""


def recipe(
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    row_normalize: bool = False,
    source: str = OURS,
) -> Recipe:
    """A recipe from plain values, as a row of the results or the outcome of a search holds them."""
    return Recipe(dict(options), TrainSettings(**settings), row_normalize, source)


def changed(
    base: Recipe, source: str | None = None, *, row_normalize: bool | None = None, **values: Any
) -> Recipe:
    """The same recipe with other options or training settings."""
    of_training = {setting.name for setting in fields(TrainSettings)}
    return Recipe(
        options={**base.options, **{key: v for key, v in values.items() if key not in of_training}},
        settings=replace(base.settings, **{key: v for key, v in values.items() if key in of_training}),
        row_normalize=base.row_normalize if row_normalize is None else row_normalize,
        source=source or base.source,
    )

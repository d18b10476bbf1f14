"""A row: one training of the tables, what came out of it, and what it was made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from node2seq.experiments.cells import Key
from node2seq.recipes import Recipe
from node2seq.train.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """A line of ``runs.jsonl``.

    Args:
        key: Which training.
        val: Validation accuracy at the chosen epoch.
        test: Test accuracy at that epoch.
        test_nodes: How many test nodes there are.
        test_rest: The accuracy over all nodes that are neither trained nor validated on, on fixed splits.
        epoch: The chosen epoch.
        epochs: How many epochs were trained.
        recipe: What it was trained with, as :func:`recipe_to_json` writes it.
        seconds: Its share of the time that the runs of its program took.
        together: The seeds of that program; None in rows made before runs were trained together.
        device: The name of the GPU or the processor.
        versions: Versions of Python and packages.
        commit: The commit of the code, where it is known.
        call: The name of the call of ``reproduce`` that made it.
        jobs: How many processes that call had.
        at: Seconds from the start of the call.
    """

    key: Key
    val: float
    test: float
    test_nodes: int
    test_rest: float | None = None
    epoch: int
    epochs: int
    recipe: Mapping[str, Any]
    seconds: float
    together: Sequence[int] | None = None
    device: str
    versions: Mapping[str, str]
    commit: str | None
    call: str
    jobs: int
    at: float

    @property
    def trained_with(self) -> Recipe:
        """The recipe; settings that came later have their defaults."""
        return Recipe(
            options=self.recipe["options"],
            settings=TrainSettings(**self.recipe["settings"]),
            row_normalize=self.recipe["row_normalize"],
        )

    def is_of(self, recipe: Recipe) -> bool:
        """Whether it was trained as ``recipe`` says."""
        return self.trained_with == replace(recipe, options=dict(recipe.options), source="")

    def to_json(self) -> dict[str, Any]:
        """The row as a JSON object; :meth:`from_json` reads it."""
        values = self.key._asdict() | {name: getattr(self, name) for name in _ORDER}
        if self.together is None:  # the order of the rows that do not have it
            values["recipe"] = values.pop("recipe")
            values |= {name: values.pop(name) for name in _PROVENANCE}
        return {name: value for name, value in values.items() if value is not None or name == "commit"}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ResultRow:
        """Read a row; a TypeError or KeyError says what is missing or too much."""
        key = Key(*(values[name] for name in Key._fields))
        return cls(key=key, **{name: value for name, value in values.items() if name not in Key._fields})


_PROVENANCE = ("device", "versions", "commit", "call", "jobs", "at")
_ORDER = (
    *("val", "test", "test_nodes", "test_rest", "epoch", "epochs", "recipe", "seconds", "together"),
    *_PROVENANCE,
)


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    """What a row says of its recipe: all that is needed to train it again."""
    return {
        "options": dict(recipe.options),
        "settings": asdict(recipe.settings),
        "row_normalize": recipe.row_normalize,
    }

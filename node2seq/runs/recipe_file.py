"""A recipe as a TOML file: what ``node2seq tune`` writes and ``train --config`` reads."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from node2seq.data.reading import Source
from node2seq.errors import Node2SeqError
from node2seq.options import build, check_values
from node2seq.storage import read_errors
from node2seq.train.settings import TRAINING_TYPES, Recipe, current, option_types, settings_of


@dataclass(frozen=True)
class BatchTable:
    """What a TOML file may say of mini-batches.

    Args:
        batch_size: Training nodes of a step; None: the full batch.
        fanout: Neighbours drawn of each node: one number for all hops, or one for each.
        workers: Processes that draw batches.
        scale_lr: Whether the learning rate is that of the full batch, and is scaled to the batches.
    """

    batch_size: int | None = None
    fanout: int | tuple[int, ...] | None = None
    workers: int | None = None
    scale_lr: bool | None = None


@dataclass(frozen=True)
class RecipeFile:
    """What a TOML file may say; what it leaves out comes from elsewhere.

    Args:
        model: A key of ``node2seq.nn.models.MODELS``.
        variant: The recipe that the file overrides.
        baseline: A second model to compare with.
        seed: Of the split and of the initial weights.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` …
        row_normalize: Divide each node's features by their sum first.
        split_rule: A key of ``node2seq.data.RULES``.
        source: The graph.
        options: Options of the model.
        settings: How to train.
        batches: Mini-batches.
    """

    model: str | None = None
    variant: str | None = None
    baseline: str | None = None
    seed: int | None = None
    device: str | None = None
    row_normalize: bool | None = None
    split_rule: str | None = None
    source: Source = field(default_factory=Source)
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    batches: BatchTable = field(default_factory=BatchTable)

    @property
    def values(self) -> dict[str, Any]:
        """What :meth:`Recipe.updated` takes."""
        normalize = {} if self.row_normalize is None else {"row_normalize": self.row_normalize}
        return {**self.options, **self.settings, **normalize}


def read_recipe_file(
    path: Path, model: str | None = None, default: Callable[[Source], str] = lambda _: "node2seq"
) -> RecipeFile:
    """Read a TOML file; unknown keys and wrong types are errors that name the field.

    Args:
        path: The file.
        model: Whose options they are; None: as the file says.
        default: Whose they are if it does not say, by the graph that it names.
    """
    read = read_settings(path)
    asked = model or read.model or default(read.source)
    name, options = current(asked, read.options)
    return replace(
        read,
        model=read.model if name == asked else name,
        options=check_values(options, option_types(name), f"{path}: options"),
    )


def read_settings(path: Path) -> RecipeFile:
    """Read a TOML file as far as it depends on no model: all but its options are checked."""
    try:
        with read_errors(path):
            values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Node2SeqError(str(path), f"it is not TOML ({error})", "Correct that line") from error
    read = build(RecipeFile, values, str(path))
    settings = check_values(read.settings, TRAINING_TYPES, f"{path}: settings")
    return replace(read, settings=settings)


def write_recipe(model: str, recipe: Recipe, source: Source, comment: str) -> str:
    """The text of a recipe's file, complete, so that no default changes it later."""
    values = settings_of(model, recipe)
    normalize = values.pop("row_normalize")
    training = {name: values.pop(name) for name in asdict(recipe.settings)}
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"model = {_toml(model)}", f"row_normalize = {_toml(normalize)}"]
    graph = {name: value for name, value in asdict(source).items() if value != {}}
    for title, table in (("source", graph), ("options", values), ("settings", training)):
        lines += ["", f"[{title}]"]
        lines += [f"{name} = {_toml(value)}" for name, value in table.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it: for these types the same as JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)

"""What a recipe is, and the one way from a name and a value to a setting of it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.options import parse, suggestion, unknown
from node2seq.train.settings import TrainSettings

#: The source of whatever was searched for.
OURS = "chosen on validation accuracy, seeds 100 and up"

_CHANNELS = ("in_channels", "out_channels")
#: The type of each training setting.
TRAINING_TYPES: dict[str, Any] = typing.get_type_hints(TrainSettings)
_OF_TRAINING = {setting.name: setting.default for setting in fields(TrainSettings)}


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

    def updated(self, source: str | None = None, /, **values: Any) -> Recipe:
        """The recipe with other values for some settings, each put where it belongs by its name.

        Args:
            source: Where the values come from; None: as before.
            **values: Options of the model, fields of ``TrainSettings``, or ``row_normalize``. None stands
                for the default.
        """
        options, training = dict(self.options), {}
        row_normalize = bool(values.pop("row_normalize", self.row_normalize))
        for name, value in values.items():
            if name in _OF_TRAINING:
                training[name] = _OF_TRAINING[name] if value is None else value
            elif value is None:
                options.pop(name, None)
            else:
                options[name] = value
        return Recipe(options, replace(self.settings, **training), row_normalize, source or self.source)


def recipe(
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    row_normalize: bool = False,
    source: str = OURS,
) -> Recipe:
    """A recipe from plain values, as a row of the results or the outcome of a search holds them."""
    return Recipe(dict(options), TrainSettings(**settings), row_normalize, source)


def model_options(model: str) -> dict[str, inspect.Parameter]:
    """The options of a model by name, with their types and defaults."""
    if model not in MODELS:
        raise Node2SeqError(f"model {model!r}", "there is no such model", suggestion(model, MODELS))
    hints = typing.get_type_hints(MODELS[model].__init__)
    return {
        name: parameter.replace(annotation=hints.get(name, Any))
        for name, parameter in inspect.signature(MODELS[model]).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name not in _CHANNELS
    }


def option_types(model: str) -> dict[str, Any]:
    """The type of each option of a model."""
    return {name: option.annotation for name, option in model_options(model).items()}


def setting_types(model: str) -> dict[str, Any]:
    """The type of everything that can be set by name for a model."""
    return {**option_types(model), **TRAINING_TYPES, "row_normalize": bool}


def parse_setting(model: str, text: str, flag: str) -> tuple[str, Any]:
    """Read ``name=value``, or ``name=[value, value]`` for several values, as given to a flag."""
    name, equals, given = (part.strip() for part in text.partition("="))
    if not equals:
        raise Node2SeqError(f"{flag} {text}", "there is no = in it", f"Write {flag} setting=value")
    types = setting_types(model)
    if name not in types:
        raise unknown(f"{flag} {name}", name, types)
    several = given.startswith("[") and given.endswith("]")
    parts = given[1:-1].split(",") if several else [given]
    values = [parse(part.strip(), types[name], f"{flag} {name}") for part in parts]
    return name, values if several else values[0]


def settings_of(model: str, recipe: Recipe, names: Iterable[str] | None = None) -> dict[str, Any]:
    """All that a recipe decides by name, or some of it; no default is left to be filled in later."""
    found = {
        name: option.default
        for name, option in model_options(model).items()
        if option.default is not option.empty and name != "backend"
    }
    found |= {**recipe.options, **asdict(recipe.settings), "row_normalize": recipe.row_normalize}
    # TOML has no word for None, and what a file leaves out would come from another recipe.
    if found["conv_weight_decay"] is None:
        found["conv_weight_decay"] = found["weight_decay"]
    if found["patience"] is None:
        found["patience"] = found["epochs"]
    return found if names is None else {name: found[name] for name in names}

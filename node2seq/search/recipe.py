"""Settings by name ↔ a recipe ↔ a TOML file that ``node2seq train --config`` takes."""

from __future__ import annotations

import inspect
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.options import constructor_options, suggestion
from node2seq.recipes import Recipe
from node2seq.search.space import Settings
from node2seq.storage.files import read_errors
from node2seq.train.settings import TrainSettings

_CHANNELS = ("in_channels", "out_channels")
_NORMALIZE = "row_normalize"


def check_model(model: str) -> None:
    """Refuse a model that there is not."""
    if model not in MODELS:
        raise Node2SeqError(f"model {model!r}", "there is no such model", suggestion(model, MODELS))


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """The recipe with settings put where they belong: model, training or features."""
    training = {name: value for name, value in settings.items() if name in TrainSettings.__dataclass_fields__}
    options = {name: value for name, value in settings.items() if name not in {*training, _NORMALIZE}}
    return replace(
        recipe,
        options={**recipe.options, **options},
        settings=replace(recipe.settings, **training),
        row_normalize=settings.get(_NORMALIZE, recipe.row_normalize),
    )


def settings_of(model: str, recipe: Recipe, names: Iterable[str] | None = None) -> Settings:
    """All that a recipe decides by name, or some of it; nothing is left to be filled in by anybody."""
    found: Settings = {
        name: parameter.default
        for name, parameter in constructor_options(MODELS[model], leave_out=(*_CHANNELS, "backend")).items()
        if parameter.default is not inspect.Parameter.empty
    }
    found |= {**recipe.options, **asdict(recipe.settings), _NORMALIZE: recipe.row_normalize}
    # TOML has no word for None, and what a file leaves out would come from another recipe.
    if found["conv_weight_decay"] is None:
        found["conv_weight_decay"] = found["weight_decay"]
    if found["patience"] is None:
        found["patience"] = found["epochs"]
    return found if names is None else {name: found[name] for name in names}


def parse_setting(model: str, text: str) -> tuple[str, Any]:
    """Read ``name=value`` or ``name=[value, value]``, with values as in TOML but words without quotes."""
    name, equals, given = (part.strip() for part in text.partition("="))
    if not equals:
        raise Node2SeqError(f"--fix {text}", "there is no = in it", "Write --fix setting=value")
    annotation = _annotation(model, name)
    several = given.startswith("[") and given.endswith("]")
    parts = [part.strip() for part in given[1:-1].split(",")] if several else [given]
    values = [_typed(_value(part), annotation, f"--fix {name}") for part in parts]
    return name, values if several else values[0]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def to_toml(model: str, recipe: Recipe, source: Mapping[str, Any], comment: str) -> str:
    """The recipe as a file for ``node2seq train --config``, complete, so that no default changes it later."""
    values = settings_of(model, recipe)
    normalize = values.pop(_NORMALIZE)
    training = {name: values.pop(name) for name in TrainSettings.__dataclass_fields__}
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"model = {_toml(model)}", f"row_normalize = {_toml(normalize)}"]
    for title, table in (("source", source), ("options", values), ("settings", training)):
        lines += ["", f"[{title}]"]
        lines += [f"{name} = {_toml(value)}" for name, value in table.items() if value is not None]
    return "\n".join(lines) + "\n"


def read_toml(path: Path, model: str, base: Recipe) -> Recipe:
    """The recipe of a file that :func:`to_toml` wrote; what it leaves out is as in ``base``."""
    try:
        with read_errors(path):
            values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Node2SeqError(str(path), f"it is not TOML ({error})", "Correct that line") from error
    if values.get("model", model) != model:
        raise Node2SeqError(
            f"{path}: model={values['model']!r}", f"the search is for {model}", "Give a recipe of that model"
        )
    settings = {**values.get("options", {}), **values.get("settings", {})}
    if _NORMALIZE in values:
        settings[_NORMALIZE] = values[_NORMALIZE]
    for name, value in settings.items():
        settings[name] = _typed(value, _annotation(model, name), f"{path}: {name}")
    return with_settings(base, settings)


def _annotation(model: str, name: str) -> Any:
    known = {
        **{key: option.annotation for key, option in constructor_options(MODELS[model], _CHANNELS).items()},
        **typing.get_type_hints(TrainSettings),
        _NORMALIZE: bool,
    }
    if name not in known:
        raise Node2SeqError(
            f"setting {name!r}",
            f"neither the model {model} nor its training has such a one",
            suggestion(name, known),
        )
    return known[name]


def _typed(value: Any, annotation: Any, where: str) -> Any:
    """The value as the annotation wants it. By hand: pydantic is not there wherever a search may run."""
    options = (
        typing.get_args(annotation)
        if typing.get_origin(annotation) in (typing.Union, types.UnionType)
        else (annotation,)
    )
    if value == "none" and type(None) in options:
        return None
    for option in options:
        if typing.get_origin(option) is typing.Literal:
            if value in typing.get_args(option):
                return value
        elif option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        elif isinstance(option, type) and type(value) is option:
            return value
    names = " or ".join(getattr(option, "__name__", str(option)) for option in options)
    raise Node2SeqError(f"{where}={value!r}", f"it should be of type {names}", "Give a value of that kind")


def _toml(value: Any) -> str:
    """A value as TOML writes it: for these types the same as JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)

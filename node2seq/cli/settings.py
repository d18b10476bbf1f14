"""Recipe < config file < command line → one checked :class:`~node2seq.runs.RunConfig`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.options import build, check_keys, constructor_options, parse, suggestion
from node2seq.recipes import recipe_for
from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.pretrained import complete_options, model_options
from node2seq.storage.files import read_errors
from node2seq.train.settings import TrainSettings


@dataclass(frozen=True)
class ConfigFile:
    """What a TOML file may say; what it leaves out comes from the recipe."""

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


@dataclass(frozen=True)
class Given:
    """What the command line says; None is what it leaves out."""

    source: Source
    model: str | None = None
    variant: str | None = None
    baseline: str | None = None
    seed: int | None = None
    device: str | None = None
    split_rule: str | None = None
    epochs: int | None = None
    class_weights: bool | None = None
    assignments: tuple[str, ...] = ()


def read_config_file(path: Path) -> ConfigFile:
    """Read a TOML file; unknown keys and wrong types are errors that name the field."""
    try:
        with read_errors(path), path.open("rb") as file:
            values = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Node2SeqError(str(path), f"it is not TOML ({error})", "Correct that line") from error
    read = build(ConfigFile, values, str(path))
    check_keys(TrainSettings, read.settings, f"{path}: settings")
    return read


def check_source(source: Source) -> None:
    """Refuse what names no graph, or two."""
    if source.name is None and source.edges is None and source.nodes is None:
        raise Node2SeqError(
            "no graph",
            "training needs one",
            "Name a data set (`node2seq data list` shows them) or give --edges, --nodes and --label",
        )
    if source.name is not None and source.files:
        raise Node2SeqError(
            f"the data set {source.name} and {source.files[0]}",
            "a run has one graph",
            "Give a name or files, not both",
        )
    misplaced = sorted(set(source.reading) - {"directed"}) + (["label"] if source.label else [])
    if source.name is not None and misplaced:
        raise Node2SeqError(
            f"{misplaced[0]} with the data set {source.name}",
            "it tells how to read files of your own",
            "Leave it out",
        )


def make_config(given: Given, file: ConfigFile) -> RunConfig:
    """Put recipe, config file and command line together, the later ones winning."""
    source = file.source if given.source == Source() else given.source
    check_source(source)
    seed = _first(given.seed, file.seed, 0)
    if seed < 0:
        raise Node2SeqError(f"seed={seed}", "a seed cannot be negative", "Give 0 or more")
    model = _first(given.model, file.model, "node2seq")
    variant = _first(given.variant, file.variant, "paper")
    if variant == "directed":
        source = replace(source, reading={**source.reading, "directed": True})
    options, settings = _assigned(model, given.assignments)
    flags = {"epochs": given.epochs, "class_weights": given.class_weights}
    flags = {key: value for key, value in flags.items() if value is not None}

    config = RunConfig(
        source=source,
        split_rule=_first(given.split_rule, file.split_rule, None),
        seed=seed,
        device=_first(given.device, file.device, "auto"),
    )
    baseline = _first(given.baseline, file.baseline, None)
    normalize = {} if file.row_normalize is None else {"row_normalize": file.row_normalize}
    own_options, own_settings = file.options | options, file.settings | settings | flags
    return replace(
        _with_recipe(config, variant, model, own_options, own_settings, normalize),
        baseline=None if baseline is None else _with_recipe(config, variant, baseline, {}, flags, normalize),
    )


def _with_recipe(
    config: RunConfig,
    variant: str,
    model: str,
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    normalize: Mapping[str, bool],
) -> RunConfig:
    known = model_options(model)
    recipe = recipe_for(model, config.source.name, variant)
    defaults = {key: value for key, value in recipe.options.items() if key in known}
    return replace(
        config,
        model=model,
        options=complete_options(model, {**defaults, **options}, f"options of {model}"),
        settings=build(TrainSettings, {**asdict(recipe.settings), **settings}, "settings"),
        row_normalize=normalize.get("row_normalize", recipe.row_normalize),
    )


def _assigned(model: str, assignments: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort ``key=value`` texts into options of the model and settings of the training."""
    of_model, of_training = model_options(model), constructor_options(TrainSettings)
    options: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise Node2SeqError(f"--set {text}", "there is no = in it", "Write --set option=value")
        target, known = (options, of_model) if key in of_model else (settings, of_training)
        if key not in known:
            raise Node2SeqError(
                f"--set {key}",
                f"neither the model {model} nor the training has such an option",
                suggestion(key, [*of_model, *of_training]),
            )
        target[key] = parse(value, known[key].annotation, f"--set {key}")
    return options, settings


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)

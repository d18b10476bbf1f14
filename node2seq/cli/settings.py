"""Recipe < config file < command line → one checked :class:`~node2seq.runs.RunConfig`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.recipes import recipe_for
from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.pretrained import complete_options
from node2seq.runs.recipe_file import DEFAULT_MODEL, RecipeFile
from node2seq.train.recipe import model_options, parse_setting


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


def make_config(given: Given, file: RecipeFile) -> RunConfig:
    """Put recipe, file and flags together: flags override the file, which overrides the recipe."""
    source = file.source if given.source == Source() else given.source
    check_source(source)
    seed = _first(given.seed, file.seed, 0)
    if seed < 0:
        raise Node2SeqError(f"seed={seed}", "a seed cannot be negative", "Give 0 or more")
    model = _first(given.model, file.model, DEFAULT_MODEL)
    variant = _first(given.variant, file.variant, "paper")
    if variant == "directed":
        source = replace(source, reading={**source.reading, "directed": True})
    config = RunConfig(
        source=source,
        split_rule=_first(given.split_rule, file.split_rule, None),
        seed=seed,
        device=_first(given.device, file.device, "auto"),
    )
    flags = {"epochs": given.epochs, "class_weights": given.class_weights}
    flags = {key: value for key, value in flags.items() if value is not None}
    assigned = dict(parse_setting(model, text, "--set") for text in given.assignments)
    own = _with_recipe(config, variant, model, file.values | assigned | flags)
    baseline = _first(given.baseline, file.baseline, None)
    if baseline is None:
        return own
    normalize = {} if file.row_normalize is None else {"row_normalize": file.row_normalize}
    return replace(own, baseline=_with_recipe(config, variant, baseline, normalize | flags))


def _with_recipe(config: RunConfig, variant: str, model: str, values: dict[str, Any]) -> RunConfig:
    known = model_options(model)
    recipe = recipe_for(model, config.source.name, variant)
    # The recipe for any model may name an option that this one does not have.
    options = {key: value for key, value in recipe.options.items() if key in known}
    recipe = replace(recipe, options=options).updated(**values)
    return replace(
        config,
        model=model,
        options=complete_options(model, recipe.options, f"options of {model}"),
        settings=recipe.settings,
        row_normalize=recipe.row_normalize,
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)

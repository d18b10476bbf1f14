"""Recipe < config file < command line → one checked :class:`~node2seq.runs.RunConfig`.

Functions import what needs torch themselves: :func:`check_flags` answers without waiting for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node2seq.cli.flags import (
    BenchFlags,
    DataConvertFlags,
    DataExportFlags,
    DataFetchFlags,
    ExplainFlags,
    FileFlags,
    PredictFlags,
    ProtocolFlags,
    ReproduceFlags,
    TrainFlags,
    TuneFlags,
)
from node2seq.cli.names import DRAWS, METRICS, MODELS, SAMPLERS, STAGES, TABLES
from node2seq.data.datasets import RULES, check_name
from node2seq.environment import LazyModule, is_launched
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice, check_rules, number_or_word, parse, suggestion
from node2seq.runs.check import check_is_run
from node2seq.storage import check_new_file, check_tables

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from node2seq import recipes
    from node2seq.data import reading, tabular
    from node2seq.data.reading import Source
    from node2seq.recipes import choose
    from node2seq.recipes.choose import GraphSizes
    from node2seq.runs import recipe_file
    from node2seq.runs.folder import RunConfig
    from node2seq.runs.recipe_file import RecipeFile
    from node2seq.train import settings
    from node2seq.train.settings import BatchSettings
else:
    choose = LazyModule("node2seq.recipes.choose")
    reading = LazyModule("node2seq.data.reading")
    recipe_file = LazyModule("node2seq.runs.recipe_file")
    recipes = LazyModule("node2seq.recipes")
    settings = LazyModule("node2seq.train.settings")
    tabular = LazyModule("node2seq.data.tabular")

# The number of processes that may sample batches on any machine; more are allowed if there are more cores.
_MOST_WORKERS = 16
_READING = (
    "source",
    "target",
    "id",
    "split",
    "features",
    "categorical",
    "ignore",
    "delimiter",
    "edge_weight",
    "task",
    "label_separator",
    "order_by",
    "split_by",
)


def check_flags(flags: Any) -> None:
    """Refuse what can be refused without torch, whose import takes seconds; the verb itself sees the rest."""
    _check_names(flags)
    _check_outputs(flags)
    for flag, text in _assignments(flags):
        name, equals, _ = (part.strip() for part in text.partition("="))
        cure = f"Write {flag} setting=value"
        check_rules(
            (bool(equals), f"{flag} {text}", "there is no = in it", cure),
            (bool(name), f"{flag} {text}", "no setting is named before the =", cure),
        )
    if isinstance(flags, TrainFlags | TuneFlags):
        _check_training(flags)
    if (run := getattr(flags, "run", None)) is not None:
        check_is_run(run)
    # Of several processes the first alone speaks, and what a run or a file says is not known here.
    if isinstance(flags, PredictFlags):
        _check_files(flags.edges, flags.nodes)
    elif not (getattr(flags, "resume", False) or is_launched(os.environ)):
        _check_graph(flags)


def _check_training(flags: TrainFlags | TuneFlags) -> None:
    """Refuse settings of the training that no model has; what a model can be told is known to torch alone."""
    file = flags.config if isinstance(flags, TrainFlags) else flags.start
    if file is not None:
        recipe_file.read_settings(file)
    given: list[tuple[str, Any]] = []
    if isinstance(flags, TrainFlags):
        _check_workers(flags.workers)
        given.append(("epochs", settings.TrainSettings.epochs if flags.epochs is None else flags.epochs))
    for flag, text in _assignments(flags):
        if text.partition("=")[0].strip() in settings.TRAINING_TYPES:
            name, values = settings.parse_setting("", text, flag)
            given += [(name, value) for value in (values if isinstance(values, list) else [values])]
    for name, value in given:
        settings.TrainSettings(**{name: value})


def _check_workers(workers: int | None) -> None:
    """Refuse more processes than a machine can have a use for."""
    most = max(_MOST_WORKERS, 4 * (os.cpu_count() or 1))
    if workers is not None and workers > most:
        raise Node2SeqError(
            f"--workers {workers}",
            f"each is a process of its own, and this machine has {os.cpu_count()} cores",
            f"Give at most {most}",
        )


def _check_names(flags: Any) -> None:
    """Refuse names that there are not."""
    for name in ("model", "baseline"):
        model = getattr(flags, name, None)
        if model is not None and model not in MODELS:
            raise Node2SeqError(f"model {model!r}", "there is no such model", suggestion(model, MODELS))
    choices = {"metric": METRICS, "draw": DRAWS, "sampler": SAMPLERS, "rule": RULES}
    if isinstance(flags, ProtocolFlags):
        choices["stage"] = STAGES
    for name, known in choices.items():
        if getattr(flags, name, None) is not None:
            check_choice(name, getattr(flags, name), known)
    for table in flags.tables if isinstance(flags, ReproduceFlags) else ():
        check_choice("table", table, TABLES)
    if isinstance(flags, TuneFlags):
        search_size(flags)
    names = flags.names if isinstance(flags, DataFetchFlags) else ()
    for name in (flags.name,) if isinstance(flags, DataExportFlags) else names:
        check_name(name)


def _check_outputs(flags: Any) -> None:
    """Refuse files that could not be written in the end."""
    if isinstance(flags, PredictFlags):
        tables = [table for table in (flags.out, flags.embeddings) if table is not None]
        check_tables(tables, force=flags.force)
    elif isinstance(flags, DataExportFlags):
        check_tables([flags.edges, flags.nodes], force=flags.force)
    elif isinstance(flags, ExplainFlags | BenchFlags):
        file = flags.html if isinstance(flags, ExplainFlags) else flags.json_file
        if file is not None:
            check_new_file(file, force=flags.force)


def _assignments(flags: Any) -> Iterator[tuple[str, str]]:
    """What is given as setting=value, and the flag."""
    for field, flag in (("assignments", "--set"), ("fix", "--fix")):
        for text in getattr(flags, field, ()):
            yield flag, text


def _check_files(*paths: Path | None) -> None:
    """Refuse files that are not there, or are none."""
    for path in paths:
        if path is not None:
            tabular.table_format(path)


def _check_graph(flags: Any) -> None:
    """Refuse a graph that is not there, and files without the columns that are named."""
    if isinstance(flags, DataConvertFlags) and (flags.edges.is_dir() or flags.nodes.is_dir()):
        return  # files in folders are opened one by one
    if not isinstance(flags, FileFlags) or getattr(flags, "config", None) is not None:
        return
    source = checked(source_of(flags), labelled=isinstance(flags, TrainFlags | TuneFlags))
    if source.name is not None:
        check_name(source.name)
    elif source.store is not None:
        if not Path(source.store).is_dir():
            raise Node2SeqError(source.store, "there is no such store", "Check the path")
    else:
        _check_files(*source.files)
        reading.check_columns(source)


def search_size(flags: TuneFlags) -> dict[str, Any]:
    """What the flags say of the size of a search; refuses seeds that it may not see, and too few trials."""
    from node2seq.search.settings import SearchSettings, parse_seeds

    given: dict[str, Any] = {"seed": flags.seed}
    for name in ("seeds", "final_seeds"):
        if (text := getattr(flags, name)) is not None:
            given[name] = parse_seeds(text)
    if flags.finalists is not None:
        given["finalists"] = flags.finalists
    SearchSettings.in_proportion(flags.trials, **given)
    return given


def source_of(flags: FileFlags) -> Source:
    """The graph that the flags name, with the paths as they were given; it may name none or two."""
    how: dict[str, Any] = {}
    for name in _READING:
        if (given := getattr(flags, name, None)) not in (None, ()):
            how[name] = list(given) if isinstance(given, tuple) else given
    if flags.fill is not None:
        how["fill"] = number_or_word(flags.fill)
    for name in ("directed", "no_future_edges"):
        if getattr(flags, name, False):
            how[name] = True
    if (carried := getattr(flags, "edge_features", None)) is not None:
        how["edge_features"] = [name.strip() for name in carried.split(",")]
    return reading.Source(
        name=getattr(flags, "name", None),
        root=_text(getattr(flags, "data_root", None)),
        edges=_text(flags.edges),
        nodes=_text(flags.nodes),
        label=flags.label,
        reading=how,
        store=_text(getattr(flags, "store", None)),
    )


def with_absolute_paths(source: Source) -> Source:
    """The source with paths that still mean the same files when a run is resumed from elsewhere."""
    paths = {name: getattr(source, name) for name in ("root", "edges", "nodes", "store")}
    given = {name: str(Path(path).absolute()) for name, path in paths.items() if path is not None}
    return replace(source, **given)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def checked(source: Source, *, labelled: bool = False) -> Source:
    """Refuse a source that names no graph, or two, or files without the column that training needs.

    Args:
        source: The graph.
        labelled: Whether it is to be trained on.
    """
    name, store, file = source.name, source.store, next(iter(source.files), None)
    label = ["label"] if source.label else []
    # The first word on how to read files, which a store and a data set have no use for.
    of_store, of_name = (
        next(iter([*sorted(source.reading.keys() - meant), *label]), None) for meant in (set(), {"directed"})
    )
    check_rules(
        (
            any(graph is not None for graph in (name, store, file)),
            "the graph",
            "it is missing",
            "Name a data set (`node2seq data list` shows them) or give --edges, --nodes and --label",
        ),
        (
            store is None or (name is None and file is None),
            f"{name or file} and the store {store}",
            "these are two graphs",
            "Give one of them",
        ),
        (
            store is None or of_store is None,
            f"{of_store} with the store {store}",
            "it says how to read files, but `node2seq data convert` has already read those of a store",
            "Leave it out, or convert the files again",
        ),
        (
            name is None or file is None,
            f"the data set {name} and {file}",
            "these are two graphs",
            "Give a name or files, not both",
        ),
        (
            name is None or of_name is None,
            f"{of_name} with the data set {name}",
            "it applies to your own files only",
            "Leave it out",
        ),
        (
            not labelled or file is None or source.label is not None,
            "--label",
            "training needs the column to predict",
            "Name it: --nodes FILE --label COLUMN",
        ),
    )
    return source


def read_file(given: TrainFlags) -> RecipeFile:
    """Read the settings file that the flags name, if they name one."""
    from node2seq.runs.recipe_file import RecipeFile, read_recipe_file

    if given.config is None:
        return RecipeFile()

    def default(source: Source) -> str:
        return recipes.default_model(_override(source, source_of(given)).name)

    return read_recipe_file(given.config, given.model, default)


def graph_of(given: TrainFlags, file: RecipeFile) -> Source:
    """The graph that flags and file name, and how to read it."""
    source = checked(_override(file.source, with_absolute_paths(source_of(given))), labelled=True)
    if source.store is not None and given.raw:
        raise Node2SeqError(
            "--raw with a store", "its features are scaled already", "Give it to `data convert`"
        )
    if _first(given.variant, file.variant) == "directed":
        source = replace(source, reading={**source.reading, "directed": True})
    return standardized(source, given.raw)


def standardized(source: Source, raw: bool) -> Source:
    """The source with numbers standardised, if it is files and nothing says otherwise."""
    if not source.files:
        return source
    scaling = {"standardize": False} if raw else {"standardize": True, **source.reading}
    return replace(source, reading={**source.reading, **scaling})


def make_config(given: TrainFlags, file: RecipeFile, data: Data | None = None) -> RunConfig:
    """Put recipe, file and flags together: flags override the file, which overrides the recipe.

    Args:
        given: The flags.
        file: What the settings file says.
        data: The graph, if it was read: the defaults for the user's own graph depend on its sizes and labels.
    """
    from node2seq.runs.folder import RunConfig

    source = graph_of(given, file)
    on_disk = source.store is not None
    seed = _first(given.seed, file.seed, 0)
    if seed < 0:
        raise Node2SeqError(f"seed={seed}", "a seed cannot be negative", "Give 0 or more")
    variant = _first(given.variant, file.variant, "paper")
    usual_model = recipes.default_model(source.name) if variant == "paper" else "node2seq"
    model = _first(given.model, file.model, usual_model)
    model, _ = settings.current(recipes.network_for(model, variant), file.options)
    common = {
        "source": source,
        "split_rule": file.split_rule,
        "seed": seed,
        "device": _first(given.device, file.device, "auto"),
    }
    flags: dict[str, Any] = {} if given.epochs is None else {"epochs": given.epochs}
    flags |= {"class_weights": True} if given.class_weights else {}
    flags |= {} if given.metric is None else {"metric": given.metric}
    assigned = dict(settings.parse_setting(model, text, "--set") for text in given.assignments)
    normalize = {} if file.row_normalize is None else {"row_normalize": file.row_normalize}
    weights = given.class_weights or bool(file.settings.get("class_weights"))
    usual = choose.settings_for(data, class_weights=weights)
    ordered = choose.options_for_order(model, source.carried)
    values = usual | ordered | file.options | file.settings | normalize | assigned | flags
    is_full = not on_disk and _first(given.batch_size, file.batches.batch_size) is None
    epochs = values.get("epochs") if is_full else None
    sizes = replace(choose.sizes_of(data, file.split_rule, seed), epochs=epochs)
    own = _recipe(variant, model, source.name, sizes, values)
    # What is compared is chosen by the same metric.
    shared = usual | normalize | {"metric": own["settings"].metric} | flags
    batches = _batches(given, file, own, on_disk)
    baseline, compared = None, _first(given.baseline, file.baseline)
    if compared:
        shared = choose.options_for_order(compared, source.carried) | shared
        second = _recipe(variant, compared, source.name, sizes, shared)
        baseline = RunConfig(**common, **second, batches=_baseline_batches(batches, file, second))
    return RunConfig(**common, **own, baseline=baseline, batches=batches)


def _batches(
    given: TrainFlags, file: RecipeFile, run: Mapping[str, Any], on_disk: bool
) -> BatchSettings | None:
    """The mini-batches that flags or file or a graph on disk ask for."""
    from node2seq.data.sampler import check_fanout
    from node2seq.train.batches import DEFAULT_BATCH_SIZE
    from node2seq.train.minibatch import fanout_for_store

    usual_size = DEFAULT_BATCH_SIZE if on_disk else None
    batch_size = _first(given.batch_size, file.batches.batch_size, usual_size)
    for name in ("fanout", "workers"):
        value = _first(getattr(given, name), getattr(file.batches, name))
        if batch_size is None and value is not None:
            raise Node2SeqError(
                f"--{name} {value}",
                "it is for mini-batches, and this is training on the full batch",
                "Give --batch-size too, or leave it out",
            )
    if batch_size is None:
        return None
    hops = _hops(run)
    asked = None if given.fanout is None else parse(given.fanout, tuple[int, ...], "--fanout")
    fanout = _first(asked, file.batches.fanout, fanout_for_store(hops) if on_disk and hops else None)
    if fanout is not None:
        fanout = (fanout,) * max(hops, 1) if isinstance(fanout, int) else check_fanout(fanout)
    # A rate from the command line is meant for these batches, one of a recipe or a search for the full batch.
    names = (text.partition("=")[0].strip() for text in given.assignments)
    scale_lr = _first(False if "lr" in names else None, file.batches.scale_lr, True)
    workers = _first(given.workers, file.batches.workers, 0)
    _check_workers(workers)
    return settings.BatchSettings(batch_size, fanout, workers, scale_lr)


def _baseline_batches(
    own: BatchSettings | None, file: RecipeFile, run: Mapping[str, Any]
) -> BatchSettings | None:
    """The same mini-batches for a baseline; none for one without neighbours.

    One that reads more or fewer hops takes the same fanout as far as it goes, then its last number.
    """
    if own is None or not (hops := _hops(run)):
        return None
    fanout = own.fanout and (*own.fanout, *own.fanout[-1:] * hops)[:hops]
    return replace(own, fanout=fanout, scale_lr=_first(file.batches.scale_lr, True))


def _hops(run: Mapping[str, Any]) -> int:
    """How many hops the network of a run reads."""
    from node2seq.train.batches import hops_of_options

    return hops_of_options(*settings.complete(run["model"], run["options"], f"options of {run['model']}"))


def _override(file: Source, flags: Source) -> Source:
    """The graph that the flags name; if they name none, that of the file, read as the flags say."""
    if flags.name is not None or flags.files or flags.store is not None:
        return flags
    given = {name: value for name, value in vars(flags).items() if value is not None}
    return replace(file, **{**given, "reading": {**file.reading, **flags.reading}})


def _recipe(
    variant: str, model: str, name: str | None, sizes: GraphSizes, values: dict[str, Any]
) -> dict[str, Any]:
    """What a run takes from the recipe of its model, with other values for some settings."""
    known = settings.option_types(model)
    recipe = recipes.recipe_for(model, name, variant, sizes)
    # The recipe for any model may name an option that this one does not have.
    options = {key: value for key, value in recipe.options.items() if key in known}
    recipe = replace(recipe, options=options).updated(**values)
    return {
        "model": model,
        "options": recipe.options,
        "settings": recipe.settings,
        "row_normalize": recipe.row_normalize,
    }


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)

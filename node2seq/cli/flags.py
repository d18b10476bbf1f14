"""The flags of each command, defined once: the fields of a dataclass.

:mod:`node2seq.cli.commands` makes typer's commands of them; :func:`node2seq.cli.definitions.read` reads them
where typer is not installed. Imports no torch, so that ``--help`` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node2seq.cli.definitions import flag

_OWN = "Your own graph"
_NEW = "A new graph"
_BATCHES = "Mini-batches"
_BY_NAME = "detected by its name"
_AS_TRAINED = "as in training"
_MODELS = "residual-node2seq for your own graph, node2seq for a data set"


def _device(default: str | None = "auto") -> Any:
    return flag(default, "auto, cpu, cuda, cuda:1 …", shown=True if default else "auto")


def _json() -> Any:
    return flag(False, "Print one JSON object and nothing else.", "--json")


def _force() -> Any:
    return flag(False, "Replace files that exist.")


def _metric() -> Any:
    return flag(
        None,
        "Metric that selects the epoch. Classification: accuracy, balanced-accuracy, macro-f1, roc-auc or "
        "average-precision; regression: r2, mae or rmse; several labels: micro-f1, macro-f1 or accuracy.",
        shown="r2 for regression, micro-f1 for several labels, roc-auc for two unequal classes of your own "
        "graph, otherwise accuracy",
    )


def _raw() -> Any:
    return flag(False, "Do not standardise numeric features.", panel=_OWN)


def _data_root() -> Any:
    return flag(None, "Folder with data sets in PyTorch Geometric's layout.", shown="$NODE2SEQ_DATA")


def _run_folder() -> Any:
    return flag(..., "Run folder.", shown=False, positional=True)


@dataclass(frozen=True, kw_only=True)
class FileFlags:
    """Files of edges and nodes, and how to read them."""

    edges: Path | None = flag(None, "File of edges.", shown=False, panel=_OWN)
    nodes: Path | None = flag(None, "File of nodes.", shown=False, panel=_OWN)
    label: str | None = flag(
        None,
        "Column of --nodes to predict. For several labels per node: columns of zeros and ones, separated by "
        "commas.",
        shown=False,
        panel=_OWN,
    )
    task: str | None = flag(
        None,
        "classification, regression (numbers) or multi-label (several labels per node).",
        shown="regression for a --label of many different numbers",
        panel=_OWN,
    )
    source: str | None = flag(None, "Column of --edges: source node.", shown=_BY_NAME, panel=_OWN)
    target: str | None = flag(None, "Column of --edges: target node.", shown=_BY_NAME, panel=_OWN)
    id: str | None = flag(None, "Column of --nodes: the node's id.", shown=_BY_NAME, panel=_OWN)
    split: str | None = flag(
        None,
        "Column of --nodes: train, val, test or empty.",
        shown="60/20/20 of each class",
        panel=_OWN,
    )
    directed: bool = flag(False, "Keep the direction of the edges.", panel=_OWN)
    fill: str | None = flag(
        None,
        "Value for missing numbers: mean, or a number.",
        shown="missing values are errors",
        panel=_OWN,
    )
    features: tuple[str, ...] = flag(
        (), "Column of --nodes to learn from; may be repeated.", "--feature", shown="all", panel=_OWN
    )
    categorical: tuple[str, ...] = flag(
        (), "Feature column that holds categories although it looks like numbers.", shown="none", panel=_OWN
    )
    ignore: tuple[str, ...] = flag((), "Column of --nodes to leave out.", shown="none", panel=_OWN)
    delimiter: str | None = flag(None, "Separator of a CSV file.", shown="detected", panel=_OWN)


@dataclass(frozen=True, kw_only=True)
class GraphFlags(FileFlags):
    """Which graph: the name of a data set, or files and how to read them."""

    name: str | None = flag(None, "Data set (see `node2seq data list`).", shown=False, positional=True)
    label_separator: str | None = flag(
        None, "Separator of several labels in a cell of --label, such as ';'.", shown="none", panel=_OWN
    )
    edge_weight: str | None = flag(
        None, "Column of --edges: the weight of each edge.", shown="none", panel=_OWN
    )
    edge_features: str | None = flag(
        None,
        "Columns of --edges with numbers that describe each edge, separated by commas.",
        shown="none",
        panel=_OWN,
    )
    order_by: str | None = flag(
        None,
        "Column of --edges: a date, timestamp or number. Neighbours are sorted by it, largest first.",
        shown="by attention",
        panel=_OWN,
    )
    split_by: str | None = flag(
        None,
        "Column of --nodes: a date, timestamp or number. The first 60 % train, the last 20 % test.",
        shown="none",
        panel=_OWN,
    )
    no_future_edges: bool = flag(
        False, "Drop edges that are newer (--order-by) than their target node (--split-by).", panel=_OWN
    )
    data_root: Path | None = _data_root()


@dataclass(frozen=True, kw_only=True)
class TrainFlags(GraphFlags):
    """Train a model on a data set or on your own graph; everything is saved in a run folder."""

    name: str | None = flag(
        None,
        "Data set (see `node2seq data list`); with --resume also a run folder.",
        shown=False,
        positional=True,
    )
    store: Path | None = flag(
        None, "Store on disk, made by `node2seq data convert`.", shown="none", panel=_OWN
    )
    model: str | None = flag(None, "Which model.", shown=_MODELS)
    metric: str | None = _metric()
    raw: bool = _raw()
    variant: str | None = flag(
        None,
        "Which recipe: paper; plus, with options beyond the paper; or directed.",
        shown="paper",
    )
    baseline: str | None = flag(
        None, "A second model to train on the same split for comparison.", shown="none"
    )
    assignments: tuple[str, ...] = flag(
        (),
        "An option of the model or of its training, such as kernel_size=5 or lr=0.02; may be repeated. "
        "`node2seq info --model NAME` lists them.",
        "--set",
        metavar="OPTION=VALUE",
        shown="the recipe's",
    )
    config: Path | None = flag(
        None,
        "TOML file with any of these settings. Flags override the file, which overrides the recipe.",
        shown="none",
    )
    epochs: int | None = flag(None, "Maximum number of epochs.", shown="the recipe's")
    class_weights: bool = flag(False, "Give every class the same weight in the loss.")
    batch_size: int | None = flag(
        None,
        "Train on mini-batches of this many nodes.",
        shown="the full batch, if it fits into memory",
        panel=_BATCHES,
    )
    fanout: str | None = flag(
        None,
        "Neighbours to sample per node, for each hop that the model reads, such as 10,10; -1 takes all.",
        shown="all for graphs of up to 1,048,576 edges, else 10 per hop",
        panel=_BATCHES,
    )
    workers: int | None = flag(
        None, "Processes that sample batches; results do not depend on it.", shown="0", panel=_BATCHES
    )
    draw: str = flag(
        "whole",
        "With torchrun: whole, every process samples the whole batch, and the results are those of one "
        "process; own, each process samples for its own nodes, which is faster with many processes.",
        panel=_BATCHES,
    )
    timeout_seconds: float = flag(
        600.0,
        "With torchrun: how long a process waits for the others.",
        least=1.0,
        panel=_BATCHES,
    )
    seed: int | None = flag(None, "Seed of the split and the initial weights.", shown="0")
    runs: int = flag(1, "Number of runs with successive seeds; mean ± sd at the end.", least=1)
    device: str | None = _device(None)
    out: Path | None = flag(None, "Run folder.", shown="runs/DATA-MODEL-sSEED")
    resume: bool = flag(
        False, "Resume an interrupted run: the one named, or the newest. Its settings stay the same."
    )
    checkpoint_seconds: float = flag(15.0, "Seconds between checkpoints.", least=0.0, most=30.0)
    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class TuneFlags(GraphFlags):
    """Search for good settings by a metric on validation nodes, and write a recipe for `train --config`.

    Interrupt it at any time; run the same command to resume.
    """

    model: str | None = flag(None, "Which model.", shown=_MODELS)
    metric: str | None = _metric()
    raw: bool = _raw()
    space: str = flag("paper", "paper: what the paper leaves open; plus: also options beyond the paper.")
    fix: tuple[str, ...] = flag(
        (),
        "Fix an option instead of searching for it; may be repeated. OPTION=[A, B] restricts it to these.",
        metavar="OPTION=VALUE",
        shown="none",
    )
    start: Path | None = flag(None, "TOML file with settings to start from.", shown="the recipe's")
    rule: str | None = flag(
        None,
        "Split rule, see `node2seq data list`; redrawn makes several splits of a fixed one.",
        shown="the data set's",
    )
    sampler: str = flag(
        "bayes", "bayes: optuna's sampler, with pruning; halving: successive halving, without optuna."
    )
    trials: int = flag(64, "Number of settings to try.")
    seeds: str | None = flag(
        None, "Seeds of the splits on which settings are compared.", shown="2 to 5 splits, by --trials"
    )
    final_seeds: str | None = flag(
        None, "Seeds of further splits for the best settings.", shown="twice as many splits"
    )
    finalists: int | None = flag(
        None,
        "Number of trials to train on the further splits, besides the default.",
        shown="an eighth of --trials, 1 to 8",
    )
    seed: int = flag(0, "Seed of the search itself.")
    device: str = _device()
    budget_seconds: float | None = flag(
        None, "Stop after this much time; run the same command to resume.", least=0, shown="none"
    )
    out: Path | None = flag(None, "Folder of the search.", shown="runs/tune-DATA-MODEL-SPACE")
    storage: str | None = flag(
        None,
        "Database that processes on several machines share, such as postgresql://user@host/name.",
        shown="a journal in the folder",
    )
    table: Path | None = flag(
        None, "Table of searches to add the trials to, such as results/trials.jsonl.", shown="none"
    )
    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags:
    """Evaluate a trained model: accuracy, macro-F1, ROC-AUC, and each class; R² and errors in regression."""

    run: Path = _run_folder()
    device: str = _device()
    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class ExplainFlags:
    """Explain a node's prediction: its sorted neighbours, what each adds, and the prediction without it."""

    run: Path = _run_folder()
    node: str = flag(..., "The node, by its id in your file of nodes, or its number.", metavar="ID")
    without: tuple[str, ...] = flag(
        (), "Switch off a neighbour first; may be repeated.", metavar="ID", shown="none"
    )
    both_directions: bool = flag(
        False, "Switch a neighbour off by the edges in both directions, not by the one into the node alone."
    )
    html: Path | None = flag(
        None, "Write the page of this node (see `node2seq explore`).", metavar="FILE", shown="none"
    )
    force: bool = _force()
    most: int = flag(30, "Neighbours to show per layer: those with the largest contributions.", least=1)
    device: str = _device()
    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class ExploreFlags:
    """Serve a page on localhost: search a run's nodes, explain them and switch off neighbours."""

    run: Path = _run_folder()
    port: int = flag(8450, "Port on 127.0.0.1; 0 takes a free one.", least=0, most=65535)
    both_directions: bool = flag(
        False, "Switch a neighbour off by the edges in both directions, not by the one into the node alone."
    )
    device: str = _device()


@dataclass(frozen=True, kw_only=True)
class PredictFlags:
    """Predict all nodes of the graph that a run was trained on, or of a new graph."""

    run: Path = _run_folder()
    out: Path = flag(
        ...,
        "Table to write, .csv, .tsv or .parquet: id, label, a probability per class or label, unlabelled.",
        shown=False,
    )
    edges: Path | None = flag(None, "Edges of a new graph.", shown="the graph of the run")
    nodes: Path | None = flag(
        None,
        "Nodes of a new graph. For a run on a store, without --edges: file of the ids to predict.",
        shown="the graph of the run",
    )
    sample: int | None = flag(None, "Predict this many random nodes of a store.", shown="all nodes", least=1)
    source: str | None = flag(None, "Column of --edges: source node.", shown=_AS_TRAINED, panel=_NEW)
    target: str | None = flag(None, "Column of --edges: target node.", shown=_AS_TRAINED, panel=_NEW)
    id: str | None = flag(None, "Column of --nodes: the node's id.", shown=_AS_TRAINED, panel=_NEW)
    fill: str | None = flag(
        None, "Value for missing numbers: mean, or a number.", shown=_AS_TRAINED, panel=_NEW
    )
    delimiter: str | None = flag(None, "Separator of a CSV file.", shown="detected", panel=_NEW)
    embeddings: Path | None = flag(
        None, "Also write the nodes' embeddings, .csv, .tsv or .parquet.", shown="none"
    )
    force: bool = _force()
    device: str = _device()
    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class InfoFlags:
    """Show versions and devices, the options of a model, or a summary of a run."""

    run: Path | None = flag(None, "Run folder.", shown="this installation", positional=True)
    model: str | None = flag(None, "Show the options of this model and of training.", shown="none")
    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """Time the layer with each backend that runs here, beside PyG's GATConv: a minute at most."""

    device: str = _device()
    json_file: Path | None = flag(
        None, "Write the figures, one JSON line per case.", "--json", metavar="FILE", shown="no file"
    )
    force: bool = _force()


@dataclass(frozen=True, kw_only=True)
class ReproduceFlags:
    """Reproduce the tables of the paper, and ours.

    Interrupt it at any time; run the same command to resume.
    """

    tables: tuple[str, ...] = flag(
        (),
        "1 to 6; ours are order, readout, hops, plus-2, plus-3, ablation-2, ablation-3, directed.",
        shown="the paper's",
        metavar="[TABLE]...",
        positional=True,
    )
    columns: tuple[str, ...] = flag((), "Only this column; may be repeated.", shown="all")
    models: tuple[str, ...] = flag((), "Only this model; may be repeated.", shown="all")
    runs: int = flag(20, "Seeds 0 to RUNS − 1 of each cell.", least=1)
    jobs: int = flag(1, "Processes at once.", least=1)
    device: str = _device()
    budget_seconds: float | None = flag(
        None, "Stop after this much time; run the same command to resume.", least=0, shown="none"
    )
    check: int | None = flag(
        None, "Instead, train N random rows again and compare.", metavar="N", least=1, shown=False
    )
    check_seed: int | None = flag(None, "Which rows to check.", shown="another draw each time")
    list_only: bool = flag(False, "Instead, list the cells and how many runs they have.", "--list")
    retire: bool = flag(False, "First move rows of past recipes to retired.jsonl.")
    render_only: bool = flag(False, "Instead, only render the existing rows.", "--render")
    epochs: int | None = flag(
        None, "Maximum number of epochs, for a trial with its own --results.", shown=False
    )
    results: Path = flag(Path("results"), "Folder of the rows.")
    docs: Path | None = flag(None, "Folder to render to, after training too.", shown="docs, with --render")
    formats: tuple[str, ...] = flag(
        (), "What to render: md, html or tex; may be repeated.", "--format", shown="md"
    )
    data_root: Path | None = _data_root()
    commit: str | None = flag(None, "Commit to record in the rows if there is no checkout.", shown=False)


@dataclass(frozen=True, kw_only=True)
class ProtocolFlags:
    """Compare all models at equal budgets, as declared in results/protocol/declaration.json.

    Interrupt it at any time; run the same command to resume. It stops once, after the search: commit the
    chosen recipes before their test rows are made.
    """

    stage: str = flag("all", "all, plan, pack, search, choose, measure, ablate or render.", positional=True)
    jobs: int = flag(1, "Processes at once.", least=1)
    device: str = _device()
    budget_seconds: float | None = flag(
        None, "Stop after this much time; run the same command to resume.", least=0, shown="none"
    )
    folder: Path = flag(Path("results/protocol"), "Folder of its rows.")
    graphs: Path | None = flag(
        None, "File of graphs, written by `pack` for another machine.", shown="the data sets"
    )
    results: Path = flag(Path("results"), "Folder of the rows of `reproduce`, shown for comparison.")
    docs: Path = flag(Path("docs"), "Folder to render to.")
    data_root: Path | None = _data_root()
    commit: str | None = flag(None, "Commit to record in the rows if there is no checkout.", shown=False)


@dataclass(frozen=True, kw_only=True)
class DataListFlags:
    """Show the known data sets, their sizes and their known defects."""

    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class DataFetchFlags:
    """Fetch data sets, so that later runs need no network; downloads are kept in the user's cache."""

    names: tuple[str, ...] = flag(..., "Data sets, see `node2seq data list`.", shown=False, positional=True)
    data_root: Path | None = _data_root()
    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class DataExportFlags:
    """Write a data set as a file of edges and a file of nodes, in its own order."""

    name: str = flag(..., "Data set, see `node2seq data list`.", shown=False, positional=True)
    edges: Path = flag(..., "File to write the edges into: .csv, .tsv or .parquet.", shown=False)
    nodes: Path = flag(..., "File to write the nodes into.", shown=False)
    seed: int | None = flag(None, "Also write the split of this seed.", shown="no split")
    force: bool = _force()
    data_root: Path | None = _data_root()


@dataclass(frozen=True, kw_only=True)
class DataCheckFlags(GraphFlags):
    """Read a graph as training would, and describe it."""

    name: str | None = flag(None, "A data set instead of files.", shown="your files", positional=True)
    as_json: bool = _json()


@dataclass(frozen=True, kw_only=True)
class DataConvertFlags(FileFlags):
    """Convert files larger than memory into a store on disk, which `node2seq train --store` trains on.

    Interrupt it at any time; run the same command to resume.
    """

    edges: Path = flag(..., "File of edges, CSV, TSV or Parquet, or a folder of such files.", shown=False)
    nodes: Path = flag(..., "File of nodes, or a folder of such files.", shown=False)
    out: Path = flag(..., "Folder of the store.", shown=False)
    label: str | None = flag(None, "Column of --nodes to predict.", shown="none", panel=_OWN)
    task: str | None = flag(
        None,
        "classification or regression (numbers).",
        shown="regression for a --label of many different numbers",
        panel=_OWN,
    )
    features: tuple[str, ...] = flag(
        (),
        "Column of --nodes to learn from, or a column of lists of numbers; may be repeated.",
        "--feature",
        shown="all",
        panel=_OWN,
    )
    raw: bool = _raw()
    dtype: str | None = flag(
        None, "Type of the stored features: float16 or float32.", shown="float16 if the files have it"
    )
    memory: str = flag("4GB", "Memory limit.")
    as_json: bool = _json()

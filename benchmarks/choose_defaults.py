"""Choose the defaults for any graph on validation nodes, and measure them with one graph left out.

    python benchmarks/choose_defaults.py pack graphs.npz      # the nine sets and the drawn families
    python benchmarks/choose_defaults.py sweep graphs.npz     # each candidate on each graph
    python benchmarks/choose_defaults.py finals graphs.npz    # the finalists on more splits
    python benchmarks/choose_defaults.py labels graphs.npz    # from how few labels on neighbours help more
    python benchmarks/choose_defaults.py short graphs.npz     # what few epochs need
    python benchmarks/choose_defaults.py choose --page docs/any-graph.md      # the tables; trains nothing
    python benchmarks/choose_defaults.py measure graphs.npz   # test figures, each graph left out once

`sweep` appends a row for each run to rows of its own and never measures a test node. What is chosen for
each kind of graph is the candidate that is least behind the best, on validation nodes. Graphs that were
added later are swept with the leading candidates alone, and `finals` adds splits for a few. `labels` trains
the choices for two kinds on the same graphs with more and more labels, `short` the choice for each kind and
faster ways to train the same network for a few epochs, on validation nodes too. `measure` trains each of
the nine sets with the candidate that the other graphs choose (Cornell and Texas leave together, because
they share their features), on splits of its own, with each layer inside the same blocks, and the recipe of a
plain GCN for any graph beside them. Runs that have a row are not trained again. Needs torch,
torch_geometric and numpy.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from families import FAMILIES, draw_graph
from script import Rows, bare, pack_graphs, study_parser, table, train_missing, unpacked
from torch_geometric.data import Data

from node2seq.data import Split, make_split
from node2seq.errors import Node2SeqError
from node2seq.experiments.graphs import UNIQUE, read_graph_of, standardized
from node2seq.experiments.paper import grouped
from node2seq.experiments.samples import standard_error
from node2seq.recipes import recipe_for
from node2seq.recipes.choose import LINEAR_HOPS, Kind, kind_of, sizes_of_split
from node2seq.train.many import Training
from node2seq.train.settings import Recipe, TrainSettings
from node2seq.train.task import Classification

# The nine sets, and the names under which they are loaded.
SETS = {"cora": "cora-r", "citeseer": "citeseer-r", "photo": "amazon-r"}
SETS |= {name: name for name in ("chameleon", "squirrel", "actor", "cornell", "texas", "wisconsin")}
# Graphs that were added when the rule had begun to look at zeros and at few labels.
_FEW_LATER = tuple(f"{name}-few" for name in ("topics", "noisy", "hubs", "heterophilous", "grid"))
_SMALL = tuple(f"{name}-small" for name in ("unscaled", "heterophilous", "unequal", "many-classes"))
# Other wide graphs than the sets, added with candidates whose layer leaves out the node itself.
_WIDE_LATER = ("posts", "replies", "articles", "chameleon-unique", "squirrel-unique")
LATER = ("text", "topics", *_FEW_LATER, *_SMALL, *_WIDE_LATER)
# The homophilous sets with few labels, for a kind of graph of their own.
FEW_SETS = ("cora-few", "citeseer-few", "photo-few")
SMALL_NODES = 500  # of the families whose name ends in "-small"
# All that the candidates are tried on.
GRAPHS = (*dict.fromkeys((*SETS, *FAMILIES, "words-few", *LATER, *FEW_SETS)),)
# How many candidates are tried on later graphs: those that are least behind on the others.
LEADING = 6
LAYERS = ("node2seq", "gcn", "gat", "sage", "pna")
# Sets that leave together: they share features and labels, or are the same nodes with and without copies.
TWINS = {"cornell": ("cornell", "texas"), "texas": ("cornell", "texas")}
# Half of their nodes have a copy among the training nodes, which graphs of one's own do not: they have no say
# in the choice, only their versions without copies have.
HOLD_COPIES = ("chameleon", "squirrel")
TWINS |= {name: (name, name + UNIQUE) for name in HOLD_COPIES}
# Seeds of the sweep are not those of any measured run.
SWEEP_SEEDS = (100, 101, 102)
# Those of finalists. Where a graph has rows of more of these, only candidates with all of them are compared.
FINAL_SEEDS = tuple(range(100, 112))
# The splits on which each kind of graph is measured: new ones whenever something else is chosen for it.
MEASURE_SEEDS: dict[Kind, tuple[int, ...]] = {
    "narrow": tuple(range(300, 340)),
    "wide": tuple(range(340, 380)),
    "homophilous": tuple(range(300, 340)),
    "few-labels": tuple(range(340, 360)),
}
# The stage of the rows that choose. An earlier sweep judged each run at the epoch that the same nodes had
# chosen, which favours restless trainings; its rows are kept as "sweep". A later one tried statistics of the
# neighbours beside the layer and was not finished; its rows are kept as "sweep with statistics".
SWEEP = "cross-fitted sweep"
# The stage that compares two choices with more and more labels.
LABELS = "more labels"
CROSS_FITTED = (SWEEP, LABELS)
SMOOTHED_OR_NOT: tuple[Kind, ...] = ("narrow", "homophilous", "few-labels")
# The linear part came later, and is the same for all graphs: it had no part in the choice between candidates.
LINEAR = {"linear_hops": LINEAR_HOPS}
# The stage that trains for few epochs, and how few. Graphs whose epochs take long are left out.
SHORT, SHORT_EPOCHS = "few epochs", (10, 30, 60)
TAKE_LONG = ("photo", "squirrel", "chameleon", "actor")
# Columns of the tables of test figures.
TITLES = (
    *(f"`residual-{layer}`" for layer in LAYERS),
    *("`gcn`", "above itself without the linear part", "above `gcn`", "above the best other layer"),
    "time × `residual-gcn`",
)
# Tables are put behind this heading of a page.
HEADING = "## What came out"
FEW_LABELS = 10  # of each class, in the families whose name ends in "-few"
# Homophilous families, and the labels of each class with which the choices of two kinds are compared.
BOUNDARY = {"graphs": ("hubs", "noisy", "topics", "many-classes"), "labels": (10, 20, 50, 100)}

_SHAPES: dict[str, dict[str, Any]] = {
    "max-deep": {"hidden_channels": 64, "num_layers": 4},
    "max-broad": {"hidden_channels": 128, "num_layers": 2},
    "ranks": {"hidden_channels": 64, "num_layers": 2, "readout": "ranks"},
    "ranks-deep": {"hidden_channels": 64, "num_layers": 4, "readout": "ranks"},
    "ranks-broad": {"hidden_channels": 128, "num_layers": 2, "readout": "ranks"},
    "mean-depthwise": {"hidden_channels": 64, "num_layers": 2, "readout": "mean", "taps": "depthwise"},
}
_TRAINING: dict[str, dict[str, float]] = {
    "light": {"dropout": 0.2, "input_dropout": 0.0, "lr": 0.003, "weight_decay": 0.0},
    "fast": {"dropout": 0.2, "input_dropout": 0.2, "lr": 0.01, "weight_decay": 0.0},
    "medium": {"dropout": 0.5, "input_dropout": 0.0, "lr": 0.003, "weight_decay": 1e-4},
    "strong": {"dropout": 0.5, "input_dropout": 0.5, "lr": 0.003, "weight_decay": 5e-4},
    "strong-fast": {"dropout": 0.5, "input_dropout": 0.5, "lr": 0.01, "weight_decay": 5e-4},
    "strongest": {"dropout": 0.7, "input_dropout": 0.6, "lr": 0.005, "weight_decay": 1e-3},
}
# For few epochs: added to the choice for a kind of graph. Averaged weights lag behind.
_FASTER: dict[str, dict[str, float]] = {
    "as it is": {},
    "dropout 0.2, lr 0.005": {"dropout": 0.2, "input_dropout": 0.2, "lr": 0.005, "averaging": 0.0},
    "dropout 0.2, lr 0.01": {"dropout": 0.2, "input_dropout": 0.2, "lr": 0.01, "averaging": 0.0},
}
# Added later: the first of these with a layer that starts nearly silent.
_FASTER["dropout 0.2, lr 0.005, conv_scale 0.1"] = {**_FASTER["dropout 0.2, lr 0.005"], "conv_scale": 0.1}
_FASTER["dropout 0.2, lr 0.005, linear part"] = {**_FASTER["dropout 0.2, lr 0.005"], **LINEAR}
# Shapes whose layer reads the neighbours alone: the node's own features stand beside it anyway.
_OTHERS: dict[str, dict[str, Any]] = {
    f"{name}-others": {**_SHAPES[name], "self_loops": False}
    for name in ("max-deep", "max-broad", "ranks-deep", "ranks-broad")
}
_OTHER_TRAINING: dict[str, dict[str, float]] = {
    "heavy": {"dropout": 0.5, "input_dropout": 0.8, "lr": 0.01, "weight_decay": 5e-3},
    "half": {"dropout": 0.2, "input_dropout": 0.5, "lr": 0.003, "weight_decay": 5e-4},
    "gentle": {"dropout": 0.2, "input_dropout": 0.2, "lr": 0.003, "weight_decay": 5e-4},
    "between": {"dropout": 0.35, "input_dropout": 0.5, "lr": 0.003, "weight_decay": 5e-4},
}
_AVERAGED: dict[str, dict[str, float]] = {"": {}, "/averaged": {"averaging": 0.97}}
_SMOOTHED: dict[str, dict[str, float]] = {
    f"/averaged/smoothed-{teleport:g}": {"averaging": 0.97, "smoothing": 10, "teleport": teleport}
    for teleport in (0.1, 0.3)
}
_WIDE = ("strong", "strong-fast", "strongest")
# For few labels, tried when a plain GCN had been ahead on citation graphs with twenty of each class.
_OF_FEW_LABELS = {
    f"{name}{ending}": {**_SHAPES[name], **depth}
    for name in ("mean-depthwise", "ranks")
    for ending, depth in {"": {}, "-single": {"num_layers": 1}}.items()
}
# Half of the channels are the largest of the neighbours, tried when means and maxima had been ahead.
_POOLED: dict[str, dict[str, Any]] = {
    name: {
        "hidden_channels": 128,
        "num_layers": 2,
        "self_loops": False,
        "neighbour_max": True,
        **layer,
    }
    for name, layer in {
        "ranks-and-max": {"readout": "ranks"},
        "mean-and-max": {"readout": "mean", "kernel_size": 1},
    }.items()
}
# One tap that is the mean of the neighbours, tried when few labels had been too few for more.
_MEAN: dict[str, dict[str, Any]] = {
    "mean-single": {"hidden_channels": 64, "num_layers": 1, "readout": "mean", "kernel_size": 1}
}
_VIEWS: dict[str, dict[str, float]] = {
    name: {**_SMOOTHED["/averaged/smoothed-0.1"], **views}
    for name, views in {"/one-view": {}, "/views": {"views": 2, "consistency": 1.0}}.items()
}


def _candidates(
    trainings: Sequence[str],
    additions: Mapping[str, Any],
    shapes: Mapping[str, dict[str, Any]] = _SHAPES,
) -> dict[str, dict[str, Any]]:
    known = _TRAINING | _OTHER_TRAINING
    return {
        f"{shape}/{training}{name}": {**shapes[shape], **known[training], **values}
        for shape, training, (name, values) in itertools.product(shapes, trainings, additions.items())
    }


# Tried when real graphs had shown that the blocks miss what the degrees of neighbours say.
_SUMMED = {
    f"{shape}/medium/summed": {**values, **_TRAINING["medium"], "normalized_sum": True}
    for shape, values in (_SHAPES | _OTHERS).items()
    if shape.startswith("ranks-deep")
}
# Tried when ranks with less dropout had been far ahead of the default on Squirrel in another comparison.
_LATER_WIDE = {
    **_candidates(("strong", "half", "gentle"), _AVERAGED, _OTHERS),
    **_candidates(
        ("half", "gentle"), _AVERAGED, {name: _SHAPES[name] for name in ("max-broad", "ranks-broad")}
    ),
}
# Tried last.
_WITH_MAX = _candidates(("strong", "between", "half"), {"": {}}, _POOLED)

#: For each kind of graph what is tried. Smoothed outputs are wrong where edges join different classes.
CANDIDATES: dict[Kind, dict[str, dict[str, Any]]] = {
    "narrow": {**_candidates(("light", "fast", "medium"), _AVERAGED), **_SUMMED},
    "wide": {
        **_candidates(_WIDE, _AVERAGED),
        **_LATER_WIDE,
        **_WITH_MAX,
    },
    "homophilous": _candidates(_WIDE, {**_AVERAGED, **_SMOOTHED}),
    "few-labels": {
        **_candidates(("strong", "strong-fast", "strongest", "heavy"), _VIEWS, _OF_FEW_LABELS),
        **_candidates(("strong", "strong-fast", "heavy"), {"/views": _VIEWS["/views"]}, _MEAN),
    },
}
#: What is tried on more splits: of wide graphs the leading candidates, and those that came last.
FINALISTS: dict[Kind, tuple[str, ...]] = {
    "wide": (
        *("max-broad/strong", "max-broad/half", "ranks-deep-others/half"),
        *_WITH_MAX,
    ),
    "few-labels": (
        *("ranks-single/strong-fast/views", "mean-depthwise-single/strong-fast/views"),
        *("mean-depthwise/strong-fast/views", "mean-single/strong-fast/views", "mean-single/strong/views"),
    ),
}


#: What a row is known by beside graph and seed, the model, and how it is trained.
Todo = tuple[dict[str, Any], str, Recipe]


def recipe_of(values: Mapping[str, Any], metric: str, model: str = "residual-node2seq") -> Recipe:
    """A candidate as a recipe; other layers take what all blocks have in common."""
    own = ("readout", "taps", "self_loops", "conv_scale", "kernel_size", "neighbour_max")
    is_ours = model == "residual-node2seq"
    given = {name: value for name, value in values.items() if is_ours or name not in own}
    return Recipe({}, TrainSettings(epochs=300, patience=60)).updated(**given, metric=metric)


def graphs() -> Iterator[tuple[str, Data]]:
    """All graphs by name, standardised."""
    for name in GRAPHS:
        yield name, bare(standardized(read_graph(name)))


def read_graph(name: str) -> Data:
    """A set, a set without its duplicates, or a drawn graph."""
    name = name.removesuffix("-few") if name in FEW_SETS else name
    is_read = name in SETS or name.endswith(UNIQUE)
    return read_graph_of(SETS.get(name, name)) if is_read else _drawn(name)


def _drawn(name: str) -> Data:
    """A drawn graph by its name: a family, perhaps small or with few labels."""
    nodes = {"nodes": SMALL_NODES} if name.endswith("-small") else {}
    return draw_graph(name.removesuffix("-few").removesuffix("-small"), seed=len(name), **nodes)


def split_of(name: str, data: Data, seed: int, labels: int | None = None) -> Split:
    """A stratified split; with so many labels of each class, the same nodes for validation and test."""
    assert isinstance(data.y, torch.Tensor)
    split = make_split(data.y, "60/20/20", seed)
    labels = FEW_LABELS if labels is None and name.endswith("-few") else labels
    if labels is None:
        return split
    y = data.y.cpu()
    by_class = [split.train[y[split.train] == c][:labels] for c in y.unique().tolist()]
    return replace(split, train=torch.cat(by_class).sort().values)


def train(
    rows: Rows,
    stage: str,
    name: str,
    data: Data,
    todo: Sequence[Todo],
    seeds: Sequence[int],
) -> None:
    """Train what has no row yet, all runs of a graph in one call; only one stage measures test nodes."""
    wanted = [
        (
            {"stage": stage, "graph": name, **label, "model": model, "seed": seed},
            {"split": "60/20/20", "metric": recipe.settings.metric},
            Training(
                model,
                recipe,
                split_of(name, data, seed, label.get("labels")),
                seed,
                cross_fit=stage in CROSS_FITTED,
            ),
        )
        for label, model, recipe in todo
        for seed in seeds
    ]
    train_missing(name, rows, data.to(str(rows.device)), wanted, measured=stage == "measure")


def metric_of(data: Data) -> str:
    """The metric that fits a graph."""
    assert isinstance(data.y, torch.Tensor)
    return Classification().fitting_metric(data.y[data.y >= 0])


def kind(name: str, data: Data) -> Kind:
    """The kind of a graph by the labels of a split that no measured run uses."""
    return kind_of(sizes_of_split(data, split_of(name, data, SWEEP_SEEDS[0])))


def sweep(rows: Rows, name: str, own: Kind, metric: str) -> list[Todo]:
    """Every candidate; of graphs that were added later, the leading ones."""
    only_leading = name in LATER and own != "few-labels"
    tried = list(shortfalls(rows, own, LATER))[:LEADING] if only_leading else CANDIDATES[own]
    return _as_todo(tried, own, metric)


def finals(_rows: Rows, _name: str, own: Kind, metric: str) -> list[Todo]:
    """The finalists of a kind of graph."""
    return _as_todo(FINALISTS.get(own, ()), own, metric)


def _as_todo(names: Iterable[str], own: Kind, metric: str) -> list[Todo]:
    """Candidates for a kind of graph by their names."""
    return [
        ({"candidate": each, "kind": own}, "residual-node2seq", recipe_of(CANDIDATES[own][each], metric))
        for each in names
    ]


def more_labels(rows: Rows, _name: str, _own: Kind, metric: str) -> list[Todo]:
    """The choices for three kinds of graphs, and a plain GCN, with more and more labels."""
    choices = {chosen(rows, own): CANDIDATES[own] for own in SMOOTHED_OR_NOT}
    networks = [
        ({"candidate": each}, "residual-node2seq", recipe_of(own[each], metric))
        for each, own in choices.items()
    ]
    return [
        ({**label, "labels": labels}, model, recipe)
        for labels in BOUNDARY["labels"]
        for label, model, recipe in [*networks, plain_gcn(metric)]
    ]


def faster(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A candidate with one of the ways to train for few epochs; what is not dropped stays so."""
    found = {**values, **_FASTER[name]}
    return found | {"input_dropout": min(found["input_dropout"], values["input_dropout"])}


def _later(values: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a short training from one with an earlier choice for the same kind of graph."""
    return {
        name: values[name] for name in ("normalized_sum", "neighbour_max", "kernel_size") if name in values
    }


def few_epochs(rows: Rows, _name: str, own: Kind, metric: str) -> list[Todo]:
    """The choice for the kind of a graph, also faster, and a plain GCN for few epochs."""
    values = CANDIDATES[own][chosen(rows, own)]
    networks = [
        ({"candidate": way, **_later(values)}, "residual-node2seq", recipe_of(faster(values, way), metric))
        for way in _FASTER
    ]
    return [
        ({**label, "kind": own, "epochs": epochs}, model, recipe.updated(epochs=epochs))
        for epochs in SHORT_EPOCHS
        for label, model, recipe in [*networks, plain_gcn(metric)]
    ]


def _kind_of_row(row: Mapping[str, Any]) -> Kind:
    """The kind of a graph by a row of the sweep, as the rule names it today."""
    return "homophilous" if row["kind"] == "wide, homophilous" else row["kind"]


def _decides(row: Mapping[str, Any], kind: Kind, without: Sequence[str]) -> bool:
    """Whether a row has a say in the choice for a kind of graph."""
    # Swept as a narrow graph before the rule looked at labels.
    was_another = row["graph"] == "hubs-few" and row.get("kind") == "narrow"
    has_say = row["graph"] not in (*without, *HOLD_COPIES) and not was_another
    return row["stage"] == SWEEP and has_say and _kind_of_row(row) == kind


def shortfalls(rows: Rows, kind: Kind, without: Sequence[str] = ()) -> dict[str, float]:
    """How far each candidate is behind the best of a graph, mean over graphs of a kind, best first.

    The unit is a graph's standard error of a share of its validation nodes, and at least a quarter of a
    point: few nodes must not decide by what is chance.

    Args:
        rows: Those of the sweep.
        kind: Of which graphs.
        without: Graphs that have no say.
    """
    decisive = [row for row in rows.known if _decides(row, kind, without)]
    by_graph = grouped(decisive, lambda row: row["graph"])
    found = [(grouped(own, lambda row: row["candidate"]), own[-1]) for own in by_graph.values()]
    # Later graphs have rows of the leading candidates alone, and some splits those of finalists.
    most = [max(map(len, by_name.values())) for by_name, _ in found]
    everywhere = [
        name
        for name in CANDIDATES[kind]
        if all(len(by_name.get(name, ())) == each for (by_name, _), each in zip(found, most, strict=True))
    ]
    behind = dict.fromkeys(everywhere, 0.0)
    for (by_name, last), splits in zip(found, most, strict=True):
        means = {name: _mean(by_name[name], "cross_fitted") for name in everywhere}
        best = max(means.values())
        nodes = last.get("validation_nodes", 1)
        unit = max((best * (1 - best) / (nodes * splits)) ** 0.5, 0.0025)
        for name, mean in means.items():
            behind[name] += (best - mean) / unit / len(found)
    return dict(sorted(behind.items(), key=lambda pair: pair[1]))


def _mean(rows: Sequence[Mapping[str, Any]], figure: str) -> float:
    """Of a figure over rows; a run that failed has none, and counts as 0."""
    return float(np.mean([row.get(figure, 0.0) for row in rows]))


def chosen(rows: Rows, kind: Kind, without: Sequence[str] = ()) -> str:
    """The candidate that is least behind on the graphs of a kind."""
    return next(iter(shortfalls(rows, kind, without)))


def chosen_for(rows: Rows, name: str, kind: Kind) -> str:
    """What the other graphs of its kind choose for a set."""
    return chosen(rows, kind, TWINS.get(name, (name,)))


def measure(rows: Rows, name: str, own: Kind, metric: str) -> list[Todo]:
    """What the other graphs choose with every layer inside and the linear part that all graphs get, and a
    plain GCN beside them.
    """
    if not any(_decides(row, own, TWINS.get(name, (name,))) for row in rows.known):
        raise Node2SeqError(f"{rows.path}", f"no row says what is best on {own} graphs", "Run `sweep` first")
    candidate = chosen_for(rows, name, own)
    models = [f"residual-{layer}" for layer in LAYERS]
    values = CANDIDATES[own][candidate] | LINEAR
    todo = [({"candidate": candidate, **LINEAR}, model, recipe_of(values, metric, model)) for model in models]
    return [*todo, plain_gcn(metric)]


def plain_gcn(metric: str) -> Todo:
    """The recipe of a plain GCN for any graph."""
    return {"candidate": "default"}, "gcn", recipe_for("gcn").updated(metric=metric)


def run(stage: str, path: Path, rows: Rows, wanted: Sequence[str] | None, share: tuple[int, int]) -> None:
    """Train what a stage needs on each graph, or the share of it that one of several processes has."""
    label, todo_of, names = {
        "sweep": (SWEEP, sweep, None),
        "finals": (SWEEP, finals, [name for name in GRAPHS if name not in HOLD_COPIES]),
        "labels": (LABELS, more_labels, BOUNDARY["graphs"]),
        "short": (SHORT, few_epochs, [n for n in GRAPHS if n not in (*TAKE_LONG, *_FEW_LATER, *_SMALL)]),
        "measure": ("measure", measure, [*SETS, *FEW_SETS]),
    }[stage]
    for name, data in unpacked(path, wanted or names):
        todo = todo_of(rows, name, kind(name, data), metric_of(data))[share[0] :: share[1]]
        splits = {"measure": MEASURE_SEEDS[kind(name, data)], "finals": FINAL_SEEDS}
        seeds = splits.get(stage, SWEEP_SEEDS)
        train(rows, label, name, data, todo, seeds)


def _swept_kind(rows: Rows, name: str) -> Kind | None:
    """The kind of a graph by its rows of the sweep."""
    swept = (row for row in rows.known if row["stage"] == SWEEP and row["graph"] == name)
    return next(map(_kind_of_row, swept), None)


def measured(rows: Rows, name: str) -> list[dict[str, Any]]:
    """The test rows of a set with what the other graphs choose by now; earlier choices have rows too."""
    own = _swept_kind(rows, name)
    if own is None:
        return []
    candidates = (chosen_for(rows, name, own), "default")
    return [
        row
        for row in rows.known
        if (row["stage"], row["graph"]) == ("measure", name)
        and row["candidate"] in candidates
        and row["seed"] in MEASURE_SEEDS[own]
        and row.get("linear_hops") == (None if row["model"] == "gcn" else LINEAR_HOPS)
    ]


class Figures:
    """The test figures of a set, of every model in the order of the splits.

    Args:
        name: The set.
        rows: Its rows, by seed.
        splits: How many each model has when all have been measured.
    """

    def __init__(self, name: str, rows: list[dict[str, Any]], splits: int) -> None:
        models = (*(f"residual-{layer}" for layer in LAYERS), "gcn")
        self.name, self.splits = name, splits
        self.by_model = {m: np.array([row["test"] for row in rows if row["model"] == m]) for m in models}
        self.seconds = {m: sum(row["seconds"] for row in rows if row["model"] == m) for m in models}
        self.ours = self.by_model[models[0]]
        # Fewer validation nodes than a linear part is fitted for leave the network alone.
        self.alone = np.array(
            [row.get("test_alone", row["test"]) for row in rows if row["model"] == models[0]]
        )

    @classmethod
    def of(cls, rows: Rows, name: str) -> Figures:
        """Those of a set by all rows."""
        own = _swept_kind(rows, name)
        splits = len(MEASURE_SEEDS["narrow" if own is None else own])
        return cls(name, sorted(measured(rows, name), key=lambda row: row["seed"]), splits)

    def is_complete(self) -> bool:
        """Whether every model has its runs."""
        return all(values.size == self.splits for values in self.by_model.values())

    def gap(self, model: str | None) -> tuple[float, float]:
        """The mean of the paired differences to a model, and its standard error, in points; None stands for
        the network without its linear part.
        """
        gap = 100 * (self.ours - (self.alone if model is None else self.by_model[model]))
        return float(gap.mean()), standard_error(gap)

    def best_other(self) -> str:
        """The best of the same blocks with another layer, by test figures."""
        return max((f"residual-{layer}" for layer in LAYERS[1:]), key=lambda m: self.by_model[m].mean())

    def cells(self) -> list[str]:
        """The cells of :data:`TITLES`."""
        cells = [f"{100 * v.mean():.1f} ± {100 * v.std(ddof=1):.1f}" for v in self.by_model.values()]
        for model in (None, "gcn", self.best_other()):
            cells.append("{:+.1f} ± {:.1f}".format(*self.gap(model)))
        return [*cells, f"{self.seconds['residual-node2seq'] / self.seconds['residual-gcn']:.2f}"]


def summary(found: Sequence[Figures], ours: str = "With one graph left out, the default") -> list[str]:
    """What the figures say of ``ours``, in sentences."""
    above = [figures.name for figures in found if figures.gap("gcn")[0] > figures.gap("gcn")[1]]
    below = [figures.name for figures in found if figures.gap("gcn")[0] < -figures.gap("gcn")[1]]
    level = [figures.name for figures in found if sum(figures.gap(figures.best_other())) >= 0]
    text = (
        f"{ours} is above a plain GCN by more than a standard error on "
        f"{len(above)} of {len(found)} sets, and below it on {len(below)} ({', '.join(below) or 'none'}). It "
        "is within one standard error of the best of the same blocks with another layer, or above it, on "
        f"{len(level)} ({', '.join(level) or 'none'}); that best one is picked by test figures."
    )
    return [*textwrap.wrap(text, 120), ""]


def page(rows: Rows) -> str:
    """What the rows say, as Markdown."""
    found, few = (
        [figures for figures in map(partial(Figures.of, rows), names) if figures.is_complete()]
        for names in (SETS, FEW_SETS)
    )
    splits, few_splits = (len(MEASURE_SEEDS[kind]) for kind in ("wide", "few-labels"))
    best = {kind: list(shortfalls(rows, kind).items())[:3] for kind in CANDIDATES}
    titles = ("graph", "chosen without it", *TITLES)

    def candidate_of(figures: Figures) -> str:
        own = _swept_kind(rows, figures.name)
        return "" if own is None else chosen_for(rows, figures.name, own)

    lines = [
        *summary(found),
        "Candidates by how far they are behind the best of a graph, in standard errors:",
        "",
        *table(
            ("graphs", "first", "second", "third"),
            ([own, *(f"{name} ({gap:.2f})" for name, gap in three)] for own, three in best.items()),
        ),
        "",
        f"Test figures in %, mean ± sd over {splits} splits, each with what the others choose.",
        "Differences are of pairs on the same split, ± their standard error. All networks but `gcn` have a",
        "linear part.",
        "",
        *table(titles, ([f.name, candidate_of(f), *f.cells()] for f in found)),
        "",
        f"The same with {FEW_LABELS} labels of each class, over {few_splits} splits:",
        "",
        *table(titles, ([f.name, candidate_of(f), *f.cells()] for f in few)),
    ]
    return "\n".join([*lines, "", *label_lines(rows), "", *short_lines(rows)]) + "\n"


def label_lines(rows: Rows) -> list[str]:
    """What more and more labels change, as Markdown."""
    own = [row for row in rows.known if row["stage"] == LABELS]
    by_run = {
        case: grouped(some, lambda row: row["candidate"])
        for case, some in grouped(own, lambda row: (row["graph"], row["labels"])).items()
    }
    tried = [*(chosen(rows, own) for own in SMOOTHED_OR_NOT), "default"]
    shown = ("as a narrow graph", "as a homophilous one", "as one with few labels", "`gcn`")
    titles = ("graph", "labels of each class", *shown)
    cells = (
        [graph, str(labels), *(f"{100 * _mean(by_name[name], 'cross_fitted'):.1f}" for name in tried)]
        for (graph, labels), by_name in sorted(by_run.items(), key=lambda pair: pair[0])
        if set(tried) <= set(by_name)
    )
    return [
        "Validation figures in % of homophilous graphs with more and more labels, "
        f"mean over {len(SWEEP_SEEDS)} splits:",
        "",
        *table(titles, cells),
    ]


def short_lines(rows: Rows) -> list[str]:
    """What few epochs reach, as Markdown."""
    own = [row for row in rows.known if row["stage"] == SHORT]
    # A graph may have rows of a kind that the rule gave it earlier.
    kinds = {row["graph"]: row.get("kind") for row in own}
    own = [row for row in own if row.get("kind") == kinds[row["graph"]]]
    summed = {row["graph"] for row in own if row.get("normalized_sum")}
    # An earlier choice counts only for graphs that have no other.
    later = {row["graph"] for row in own if _later(row)}
    own = [row for row in own if row["model"] == "gcn" or (row["graph"] in later) == bool(_later(row))]
    by_graph = grouped(
        own, lambda row: row["graph"] if row["graph"] not in summed else f"{row['graph']}, summed"
    )
    by_graph |= {"mean": own} if own else {}
    found = {
        graph: grouped(some, lambda row: (row["candidate"], row["epochs"]))
        for graph, some in by_graph.items()
    }
    cells = (
        [graph]
        + [
            " · ".join(f"{100 * _mean(runs[way, epochs], 'validation'):.1f}" for epochs in SHORT_EPOCHS)
            for way in (*_FASTER, "default")
        ]
        for graph, runs in found.items()
    )
    return [
        f"Validation figures in % after {', '.join(map(str, SHORT_EPOCHS))} epochs, mean over "
        f"{len(SWEEP_SEEDS)} splits: the choice for each kind",
        "of graph, as it is and trained faster. Blocks read normalised sums where a graph is called summed.",
        "",
        *table(("graph", *_FASTER, "`gcn`"), cells),
    ]


def show(rows: Rows, into: Path | None) -> None:
    """Print what the rows say, or put it behind the last heading of a page."""
    text = page(rows)
    if into is None:
        print(text)
        return
    before, _, _ = into.read_text(encoding="utf-8").partition(HEADING)
    into.write_text(before.rstrip() + "\n\n" + HEADING + "\n\n" + text, encoding="utf-8")


def main() -> None:
    """Read the command line and do what it says."""
    parser = study_parser(
        __doc__,
        __file__,
        rows="results/defaults.jsonl",
        stages=("pack", "sweep", "finals", "labels", "short", "choose", "measure"),
        page=None,
        graphs="graphs.npz",
    )
    parser.add_argument("--only", help="names of graphs, separated by commas")
    parser.add_argument("--share", default="0/1", help="of the runs on each graph: 2/3 is the last third")
    options = parser.parse_args()
    if options.stage == "pack":
        pack_graphs(options.graphs, graphs())
        return
    rows, only = Rows.of(options), options.only and options.only.split(",")
    if options.stage == "choose":
        show(rows, options.page)
    else:
        number, of = map(int, options.share.split("/"))
        run(options.stage, options.graphs, rows, only, (number, of))


if __name__ == "__main__":
    main()

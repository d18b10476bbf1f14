"""Which recipe a graph gets: that of its name, or for residual networks one by rule from its sizes.

The values of the rule were chosen on validation nodes; docs/any-graph.md says how.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data.graph import adjusted_homophily, labelled_ends
from node2seq.data.splits import Split, labelled, make_split
from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS, Network
from node2seq.nn.models.residual import ResidualNetwork
from node2seq.options import check_choice
from node2seq.recipes import directed, paper, plus
from node2seq.train.settings import Recipe, option_types, recipe
from node2seq.train.task import task_for

#: By variant, then by model, then by data set; "" stands for every other graph.
RECIPES: dict[str, dict[str, dict[str, Recipe]]] = {
    "paper": paper.RECIPES,
    "plus": plus.RECIPES,
    "directed": directed.RECIPES,
}

_SOURCE = "the rule for any graph, chosen on validation nodes"

# From this number of columns on, features that are mostly zeros are treated as bags of words.
_WIDE = 256
# Labels are few if they are fewer than the first number, and a smaller share of all nodes than the second.
_FEW, _SMALL_SHARE = 500, 0.2
# Of edges between training and validation nodes, in each direction: so few say nothing about the others, ten
# nearly always tell neighbours of other classes from those of one; from such a homophily on, neighbours are
# taken to be of one class.
_FEWEST_PAIRS, _HOMOPHILOUS = 10, 0.3
# Smoothed outputs err by the edges between classes, others by what few labels leave to chance. So of wide
# graphs, those are smoothed for which (1 - homophily) times the root of the labels is smaller than this.
_SMOOTHABLE = 20.0
# Epochs without a better metric on validation nodes after which training ends.
_PATIENCE = 60
# So few epochs are a short training: with the dropout of a long one it ends before the network has learned
# much, and averaged weights are mostly those of its first steps. Ranks start small there: the node's own
# features and the sum of its neighbours are learned from at once.
_SHORT = 30
_SHORT_OPTIONS, _SHORT_SETTINGS = {"dropout": 0.2, "input_dropout": 0.2}, {"lr": 0.005, "averaging": 0.0}
_SHORT_RANKS = {"conv_scale": 0.1}
# From this number of classes on, networks drop less, unless labels are few: there is more to tell apart.
_MANY_CLASSES, _MANY_CLASSES_OPTIONS = 10, {"dropout": 0.2}
# From how far the linear model reads that is added to a trained network where this helps on validation nodes.
LINEAR_HOPS = 4


@dataclass(frozen=True)
class GraphSizes:
    """What the rule looks at.

    Args:
        features: Columns of the features.
        classes: Classes; 1 where a number is predicted.
        labels: Training nodes.
        nodes: All nodes.
        homophily: That of the edges between training and validation nodes, adjusted for chance. None: there
            are too few to tell, or the rule does not ask. 0: targets are no classes.
        dense: Whether at least half of the cells of the features are not zero, as in embeddings; False where
            the rule does not ask.
        plain_edges: Whether edges carry neither weights, which may be negative, nor an order, which may be of
            time: only then are neighbours added up as in a GCN.
        has_classes: Whether each node is of one class: only then can a linear model be fitted to classes.
        epochs: For how many epochs of the full batch to train; None: as many as it takes.
    """

    features: int
    classes: int
    labels: int
    nodes: int
    homophily: float | None = None
    dense: bool = False
    plain_edges: bool = True
    has_classes: bool = True
    epochs: int | None = None

    @property
    def is_wide(self) -> bool:
        """Whether the features are like bags of words: many columns, mostly zeros."""
        return self.features >= _WIDE and not self.dense

    @property
    def has_few_labels(self) -> bool:
        """Whether labels can be learned by heart, and most nodes have none."""
        return self.labels < min(_FEW, _SMALL_SHARE * self.nodes)

    @property
    def is_smoothable(self) -> bool:
        """Whether neighbours are alike, and make up for what can be learned by heart."""
        if not self.plain_edges or not (self.is_wide or self.has_few_labels):
            return False
        if self.homophily is None:  # unknown: edges between bags of words are treated as citations
            return self.is_wide
        bias = (1 - self.homophily) * self.labels**0.5 if self.is_wide else 0.0
        return self.homophily >= _HOMOPHILOUS and bias < _SMOOTHABLE

    @property
    def is_short(self) -> bool:
        """Whether training ends before a network that drops half of its features has learned much."""
        return self.epochs is not None and self.epochs <= _SHORT


Kind = Literal["narrow", "wide", "homophilous", "few-labels"]

#: What a benchmark set is like, for a graph that was not read yet.
TYPICAL = GraphSizes(features=1000, classes=5, labels=1000, nodes=2000, homophily=0.0)

# What the sweep chose for each kind; "layer": for Node2SeqConv alone.
_RULE: dict[Kind, dict[str, dict[str, Any]]] = {
    "narrow": {
        "options": {
            "hidden_channels": 64,
            "num_layers": 4,
            "dropout": 0.5,
            "input_dropout": 0.0,
            "normalized_sum": True,
        },
        "layer": {"readout": "ranks"},
        "settings": {"lr": 0.003, "weight_decay": 1e-4},
    },
    "wide": {
        "options": {"hidden_channels": 128, "num_layers": 2, "dropout": 0.5, "input_dropout": 0.5},
        "layer": {"readout": "ranks", "neighbour_max": True, "self_loops": False},
        "settings": {"lr": 0.003, "weight_decay": 5e-4},
    },
    "homophilous": {
        "options": {
            "hidden_channels": 64,
            "num_layers": 2,
            "dropout": 0.5,
            "input_dropout": 0.5,
            "smoothing": 10,
            "teleport": 0.1,
        },
        "layer": {"readout": "mean", "taps": "depthwise"},
        "settings": {"lr": 0.003, "weight_decay": 5e-4, "averaging": 0.97},
    },
    "few-labels": {
        "options": {
            "hidden_channels": 64,
            "num_layers": 1,
            "dropout": 0.5,
            "input_dropout": 0.5,
            "smoothing": 10,
            "teleport": 0.1,
        },
        "layer": {"readout": "mean", "kernel_size": 1},
        "settings": {
            "lr": 0.01,
            "weight_decay": 5e-4,
            "averaging": 0.97,
            "views": 2,
            "consistency": 1.0,
        },
    },
}


def sizes_of(data: Data | None, rule: str | None = None, seed: int = 0) -> GraphSizes:
    """What the rule looks at; of a graph that was not read, the sizes of a benchmark set.

    Args:
        data: The graph.
        rule: How its nodes are split, as :func:`node2seq.data.make_split` takes it.
        seed: Which split of that rule: labels of test nodes are not looked at.
    """
    if data is None or not isinstance(data.y, Tensor) or not bool(labelled(data.y).any()):
        return TYPICAL
    return sizes_of_split(data, make_split(data, rule, seed))


def sizes_of_split(data: Data, split: Split) -> GraphSizes:
    """What the rule looks at where the split is known: labels of test nodes have no part in it."""
    assert isinstance(data.y, Tensor)
    features, task = data.num_node_features, task_for(data.y)
    # All features and all edges are looked at, so only where the rule asks for it.
    dense = features >= _WIDE and data.x is not None and 2 * int(data.x.count_nonzero()) >= data.x.numel()
    is_plain = all(data.get(name) is None for name in ("edge_weight", "edge_order"))
    labels, nodes = split.train.numel(), data.y.size(0)
    sizes = GraphSizes(
        features,
        task.outputs(data.y),
        labels,
        nodes,
        dense=dense,
        plain_edges=is_plain,
        has_classes=task.has_classes,
    )
    if is_plain and (sizes.is_wide or sizes.has_few_labels):
        sizes = replace(sizes, homophily=_homophily(data, torch.cat([split.train, split.val])))
    return sizes


def _homophily(data: Data, known: Tensor) -> float | None:
    """The adjusted homophily among known nodes; None where edges are too few to tell, and 0 where targets
    are no classes."""
    labels = data.y
    if not isinstance(labels, Tensor) or labels.dim() != 1 or labels.is_floating_point():
        return 0.0
    if data.edge_index is None:
        return 0.0
    y, known = torch.full_like(labels, -1), known.to(labels.device)
    y[known] = labels[known]
    source, target = data.edge_index
    ends = labelled_ends(data.edge_index[:, source != target], y)
    return None if ends[0].numel() < _FEWEST_PAIRS else adjusted_homophily(*ends)


def settings_for(data: Data | None, *, class_weights: bool = False) -> dict[str, Any]:
    """The default training of any model on the user's own graph: metric and early stopping.

    Args:
        data: The graph; None: a data set that has recipes of its own.
        class_weights: Whether each class is to count the same.
    """
    if data is None or not isinstance(data.y, Tensor):
        return {"metric": "balanced-accuracy"} if class_weights else {}
    metric = task_for(data.y).fitting_metric(data.y[labelled(data.y)], class_weights=class_weights)
    return {"metric": metric, "patience": _PATIENCE}


def options_for_order(model: str, carried: Collection[str]) -> dict[str, Any]:
    """The options of a model that reads the order that the edges of the user's graph carry.

    Args:
        model: A key of ``node2seq.nn.models.MODELS``.
        carried: What the edges carry, as networks name it.
    """
    if "edge_order" not in carried or "order" not in option_types(model):
        return {}
    # Windows that slide over the order forget where a neighbour stood; ranks do not.
    readout = {"readout": "ranks", "taps": "full"} if model == "residual-node2seq" else {}
    return {"order": "edge", **readout}


def kind_of(graph: GraphSizes) -> Kind:
    """What the rule tells graphs apart by."""
    if graph.is_smoothable:
        return "few-labels" if graph.has_few_labels else "homophilous"
    return "wide" if graph.is_wide else "narrow"


def recipe_by_rule(model: str, graph: GraphSizes = TYPICAL) -> Recipe:
    """How a network of residual blocks is trained on a graph of such sizes."""
    kind, has_layer = kind_of(graph), model == "residual-node2seq"
    chosen = _RULE[kind]
    options = chosen["options"] | (chosen["layer"] if has_layer else {})
    if kind != "few-labels" and graph.has_classes and graph.classes >= _MANY_CLASSES:
        options |= _MANY_CLASSES_OPTIONS
    if not graph.plain_edges:
        options.pop("normalized_sum", None)
    elif graph.has_classes:
        options["linear_hops"] = LINEAR_HOPS
    training = {"epochs": 300, "patience": _PATIENCE, **chosen["settings"]}
    if graph.is_short:
        options |= {name: min(options[name], most) for name, most in _SHORT_OPTIONS.items()}
        options |= _SHORT_RANKS if options.get("readout") == "ranks" else {}
        training |= _SHORT_SETTINGS
    return recipe(options, training, source=_SOURCE)


def family_of(model: str) -> str:
    """The name that recipes, spaces and tables have for a model: Node2SeqPlus is a variant of Node2Seq."""
    return "node2seq" if model == "node2seq-plus" else model


def default_model(name: str | None) -> str:
    """The model for the data set ``name``, which has a recipe of the paper's, or for the user's own graph."""
    return "residual-node2seq" if name is None else "node2seq"


def network_for(model: str, variant: str) -> str:
    """The network that a variant of a model trains: of Node2Seq, only the paper's has no more options."""
    return "node2seq-plus" if model == "node2seq" and variant != "paper" else model


def recipe_for(
    model: str, name: str | None = None, variant: str = "paper", sizes: GraphSizes = TYPICAL
) -> Recipe:
    """The settings of a model for the data set ``name``, or those for any graph.

    A model that the paper variant has no entry for takes the default; the other variants were searched for
    set by set, so there is no default to take. Networks of residual blocks are trained by rule.

    Args:
        model: A key of ``node2seq.nn.models.MODELS``.
        name: The data set; None: the user's own graph.
        variant: A key of :data:`RECIPES`.
        sizes: What the rule for residual blocks looks at.
    """
    check_choice("variant", variant, RECIPES)
    model = family_of(model)
    if issubclass(MODELS.get(model, Network), ResidualNetwork):
        return recipe_by_rule(model, sizes)
    by_data = RECIPES[variant].get(model, {"": paper.DEFAULT} if variant == "paper" else {})
    found = by_data.get(name or "", by_data.get(""))
    if found is None:
        known = [f"{name} ({model})" for model, names in RECIPES[variant].items() for name in names]
        raise Node2SeqError(
            f"the variant {variant!r} of {model} on {name or 'a graph of your own'}",
            "there is no recipe for it",
            f"Choose from {', '.join(known)}" if known else "Leave the variant out, and set options by hand",
        )
    return found

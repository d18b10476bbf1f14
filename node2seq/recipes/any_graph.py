"""The recipe of the residual networks for any graph, by rule from the sizes of the graph.

The values were chosen on validation nodes; docs/any-graph.md says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from node2seq.train.metrics import fitting_metric
from node2seq.train.settings import Recipe, recipe

_SOURCE = "the rule for any graph, chosen on validation nodes"

# From so many columns on, features are treated as bags of words are.
_WIDE = 256
# Epochs without a better metric on validation nodes after which training ends.
_PATIENCE = 60


@dataclass(frozen=True)
class GraphSizes:
    """What the rule looks at.

    Args:
        features: Columns of the features.
        classes: Classes.
        labels: Training nodes.
    """

    features: int
    classes: int
    labels: int


#: What a benchmark set is like, for a graph that nobody has looked at yet.
TYPICAL = GraphSizes(features=1000, classes=5, labels=1000)

# The candidates "max-deep/fast" and "max-broad/strong" of the sweep.
_NARROW: dict[str, dict[str, Any]] = {
    "options": {"hidden_channels": 64, "num_layers": 4, "dropout": 0.2, "input_dropout": 0.2},
    "settings": {"lr": 0.01, "weight_decay": 0.0},
}
_BROAD: dict[str, dict[str, Any]] = {
    "options": {"hidden_channels": 128, "num_layers": 2, "dropout": 0.5, "input_dropout": 0.5},
    "settings": {"lr": 0.003, "weight_decay": 5e-4},
}


def sizes_of(data: Data | None) -> GraphSizes:
    """What the rule looks at; of a graph that was not read, the sizes of a benchmark set."""
    if data is None or not isinstance(data.y, Tensor) or not bool((data.y >= 0).any()):
        return TYPICAL
    mask = data.get("train_mask")
    labels = int((data.y >= 0).sum()) * 3 // 5 if mask is None else int(mask.sum())
    return GraphSizes(data.num_node_features, int(data.y.max()) + 1, labels)


def settings_for(data: Data | None, *, class_weights: bool = False) -> dict[str, Any]:
    """How any model is trained on one's own graph unless told otherwise: metric and early stopping.

    Args:
        data: The graph; None: a data set that has recipes of its own.
        class_weights: Whether each class is to count the same.
    """
    if data is None or not isinstance(data.y, Tensor):
        return {"metric": "balanced-accuracy"} if class_weights else {}
    metric = fitting_metric(data.y[data.y >= 0], class_weights=class_weights)
    return {"metric": metric, "patience": _PATIENCE}


def is_wide(features: int) -> bool:
    """Whether there are so many features that a network can learn them by heart."""
    return features >= _WIDE


def recipe_by_rule(graph: GraphSizes = TYPICAL) -> Recipe:
    """How a network of residual blocks is trained on a graph of such sizes."""
    chosen = _BROAD if is_wide(graph.features) else _NARROW
    training = {"epochs": 300, "patience": _PATIENCE, **chosen["settings"]}
    return recipe(chosen["options"], training, source=_SOURCE)

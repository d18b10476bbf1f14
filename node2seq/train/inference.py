"""What a trained model gives on a graph: metrics, class probabilities, embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
from node2seq.train.inputs import check_features, check_split, edge_values, features_for, graph_tensors
from node2seq.train.metrics import Metrics, measure_parts
from node2seq.train.trainer import infer


def evaluate(model: nn.Module, data: Data, index: Tensor) -> Metrics:
    """Measure ``model`` on the labelled nodes ``index`` of ``data``."""
    return evaluate_parts(model, data, {"given": index})["given"]


def evaluate_parts(model: nn.Module, data: Data, parts: Mapping[str, Tensor]) -> dict[str, Metrics]:
    """Measure ``model`` on several sets of labelled nodes in one pass; they may overlap."""
    x, edge_index, y = graph_tensors(model, data)
    parts = {name: index.to(x.device) for name, index in parts.items()}
    for name, index in parts.items():
        check_split({name: index}, y)
    call = partial(model, **edge_values(model, data))
    return measure_parts(infer(model, call, features_for(model, x), edge_index), y, parts)


def predict(model: nn.Module, data: Data) -> Tensor:
    """Return class probabilities ``[nodes, classes]`` for every node, labelled or not."""
    return _infer_unlabelled(model, model, data).softmax(dim=1)


def embed(model: nn.Module, data: Data) -> Tensor:
    """Return what ``model.embed`` gives for every node: its embedding before the last layer."""
    call = getattr(model, "embed", None)
    if call is None:
        raise Node2SeqError(
            f"the model {type(model).__name__}", "it has no embed method", "Use a model of this package"
        )
    return _infer_unlabelled(model, call, data)


def _infer_unlabelled(model: nn.Module, call: Callable[..., Tensor], data: Data) -> Tensor:
    x, edge_index, _ = graph_tensors(model, data, needs_labels=False)
    check_features(x)
    return infer(model, partial(call, **edge_values(model, data)), features_for(model, x), edge_index)

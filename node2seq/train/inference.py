"""What a trained model gives on a graph: metrics, predictions, embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
from node2seq.nn.models.network import Network
from node2seq.train.batches import BatchGraph, check_parts
from node2seq.train.inputs import check_features, check_split, edge_values, features_for, graph_tensors
from node2seq.train.layerwise import infer_by_layers
from node2seq.train.measured import Measured
from node2seq.train.task import Classification, Task, task_for
from node2seq.train.trainer import infer


def evaluate(
    model: nn.Module, data: Data, index: Tensor, task: Task | None = None, *, by_layers: bool = False
) -> Measured:
    """Measure ``model`` on the labelled nodes ``index`` of ``data``.

    Args:
        model: What :func:`~node2seq.train.fit` trained, or any other.
        data: The graph.
        index: The nodes.
        task: ``FitResult.task``; where numbers are predicted, it has the scale of the model's outputs.
        by_layers: Whether to run one layer after the other, each for a few nodes at a time: the same in less
            memory.
    """
    return evaluate_parts(model, data, {"given": index}, task, by_layers=by_layers)["given"]


def evaluate_parts(
    model: nn.Module,
    data: Data,
    parts: Mapping[str, Tensor],
    task: Task | None = None,
    *,
    by_layers: bool = False,
) -> dict[str, Measured]:
    """Measure ``model`` on several sets of labelled nodes in one pass; they may overlap."""
    _, _, y = graph_tensors(model, data, device=_place(by_layers))
    parts = {name: index.to(y.device) for name, index in parts.items()}
    for name, index in parts.items():
        check_split({name: index}, y)
    outputs = _outputs(model, model, data, by_layers)
    task = task or task_for(y)
    return {name: task.measure(outputs[index], y[index]) for name, index in parts.items()}


def predict(model: nn.Module, data: Data, task: Task | None = None, *, by_layers: bool = False) -> Tensor:
    """Return class probabilities ``[nodes, classes]`` for every node, labelled or not.

    Where numbers are predicted, ``task`` is ``FitResult.task``, and a number for each node comes back.
    ``by_layers`` is explained at :func:`evaluate`.
    """
    return (task or Classification()).predict(_outputs(model, model, data, by_layers))


def embed(model: nn.Module, data: Data, *, by_layers: bool = False) -> Tensor:
    """Return what ``model.embed`` gives for every node: its embedding before the last layer.

    ``by_layers`` is explained at :func:`evaluate`.
    """
    return _outputs(model, embedding_of(model), data, by_layers)


def embedding_of(model: nn.Module) -> Callable[..., Tensor]:
    """What gives the embeddings of a model; one that has none is an error."""
    call = getattr(model, "embed", None)
    if call is None:
        raise Node2SeqError(
            f"the model {type(model).__name__}", "it has no embed method", "Use a model of this package"
        )
    return call


def _outputs(model: nn.Module, call: Callable[..., Tensor], data: Data, by_layers: bool) -> Tensor:
    """What a model, or its ``embed``, gives for every node."""
    x, edge_index, _ = graph_tensors(model, data, needs_labels=False, device=_place(by_layers))
    check_features(x)
    values = edge_values(model, data)
    if not by_layers:
        return infer(model, partial(call, **values), features_for(model, x), edge_index)
    check_parts(model, values)
    assert isinstance(model, Network)
    return infer(model, infer_by_layers, call, BatchGraph.of(model, data), next(model.parameters()).device)


def _place(by_layers: bool) -> torch.device | None:
    """Where the graph lies; None: where the model is."""
    return torch.device("cpu") if by_layers else None

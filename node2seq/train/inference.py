"""What a trained model gives on a graph: metrics, predictions, embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
from node2seq.train.inputs import check_features, check_split, edge_values, features_for, graph_tensors
from node2seq.train.measured import Measured
from node2seq.train.task import Classification, Task, task_for
from node2seq.train.trainer import infer


def evaluate(model: nn.Module, data: Data, index: Tensor, task: Task | None = None) -> Measured:
    """Measure ``model`` on the labelled nodes ``index`` of ``data``.

    Args:
        model: What :func:`~node2seq.train.fit` trained, or any other.
        data: The graph.
        index: The nodes.
        task: ``FitResult.task``; where numbers are predicted, it has the scale of the model's outputs.
    """
    return evaluate_parts(model, data, {"given": index}, task)["given"]


def evaluate_parts(
    model: nn.Module, data: Data, parts: Mapping[str, Tensor], task: Task | None = None
) -> dict[str, Measured]:
    """Measure ``model`` on several sets of labelled nodes in one pass; they may overlap."""
    x, edge_index, y = graph_tensors(model, data)
    parts = {name: index.to(x.device) for name, index in parts.items()}
    for name, index in parts.items():
        check_split({name: index}, y)
    call = partial(model, **edge_values(model, data))
    outputs = infer(model, call, features_for(model, x), edge_index)
    task = task or task_for(y)
    return {name: task.measure(outputs[index], y[index]) for name, index in parts.items()}


def predict(model: nn.Module, data: Data, task: Task | None = None) -> Tensor:
    """Return class probabilities ``[nodes, classes]`` for every node, labelled or not.

    Where numbers are predicted, ``task`` is ``FitResult.task``, and a number for each node comes back.
    """
    return (task or Classification()).predict(_infer_unlabelled(model, model, data))


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

"""What a trained model gives on a graph: metrics, predictions, embeddings; exactly and in bounded memory.

:func:`infer_by_layers` runs layer after layer, each for a few nodes at a time. A network is run on the
features of a few nodes until it comes to a layer that reads neighbours. What such layers gave before is
looked up; the input of the first new one is kept. When that input is known for all nodes, the layer itself
is run, for a few nodes with all their neighbours at a time. Only tables of one row for each node are kept:
what each layer gave, and one input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.environment import Processes
from node2seq.errors import Node2SeqError
from node2seq.nn.models.network import Edges, Network, convolve, hops_of
from node2seq.train.batches import BatchGraph, check_parts
from node2seq.train.inputs import check_features, check_split, edge_values, features_for, graph_tensors
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


class _Reached(Exception):  # noqa: N818 - nothing went wrong
    """The network came to a layer that was not run yet."""

    def __init__(self, layer: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.layer, self.x = layer, x


@torch.no_grad()
def infer_by_layers(
    call: Callable[[Any, Edges], Tensor],
    graph: BatchGraph,
    device: torch.device,
    processes: Processes | None = None,
) -> Tensor:
    """What a network gives for every node, [N, outputs].

    Args:
        call: The network, or its ``embed``, in evaluation mode.
        graph: The graph.
        device: Where to compute.
        processes: Those that the nodes are divided among; each ends with the rows of all nodes.
    """
    done: list[Tensor] = []
    table_of = partial(_table, graph, processes or Processes())
    while True:
        layer, table = _run_to_next_layer(call, graph, device, done, table_of)
        if layer is None:
            assert table is not None
            return table
        done.append(_run_layer(layer, table, graph, device, table_of))


def _table(graph: BatchGraph, processes: Processes, rows_of: Callable[[Tensor], Tensor]) -> Tensor:
    """A row for each node, where the graph lies; each process works out the rows of its own chunks of nodes.

    Args:
        graph: The graph.
        processes: Those that the chunks are divided among.
        rows_of: Gives the rows of some nodes.
    """
    rank, size, table = processes.rank, processes.size, None
    for number, nodes in enumerate(graph.chunks(size)):
        # A process without a chunk takes the first, to know the shape of the table.
        if number % size == rank or (number == 0 and rank >= graph.num_nodes):
            rows = rows_of(nodes)
            if table is None:
                shape = graph.num_nodes, rows.size(-1)
                table = torch.empty(shape, dtype=rows.dtype, device=graph.device)
            table[nodes] = rows.to(table.device)
    assert table is not None
    if size > 1:
        owned = ((number % size, nodes) for number, nodes in enumerate(graph.chunks(size)))
        processes.exchange_rows_(table, owned)
    return table


def _run_to_next_layer(
    call: Callable[[Any, Edges], Tensor],
    graph: BatchGraph,
    device: torch.device,
    done: Sequence[Tensor],
    table_of: Callable[[Callable[[Tensor], Tensor]], Tensor],
) -> tuple[nn.Module | None, Tensor | None]:
    """The next layer and its input for all nodes, None if these are the features; or what comes out."""
    next_layer: nn.Module | None = None

    def rows_of(nodes: Tensor) -> Tensor:
        nonlocal next_layer
        x = graph.features(nodes).to(device)
        known = iter([table[nodes].to(device) for table in done])

        def look_up(layer: nn.Module, x: Tensor) -> Tensor:
            """Stands in for the layers that read neighbours, as far as they were run."""
            out = next(known, None)
            if out is None:
                raise _Reached(layer, x)
            return out

        try:
            return call(x, Edges(None, run=look_up))
        except _Reached as reached:
            if reached.x is x:
                raise
            next_layer = reached.layer
            return reached.x

    try:
        table = table_of(rows_of)
    except _Reached as reached:
        return reached.layer, None
    return next_layer, table


def _run_layer(
    layer: nn.Module,
    table: Tensor | None,
    graph: BatchGraph,
    device: torch.device,
    table_of: Callable[[Callable[[Tensor], Tensor]], Tensor],
) -> Tensor:
    """What a layer gives for all nodes."""

    def rows_of(nodes: Tensor) -> Tensor:
        part = graph.around(nodes, hops_of(layer)).to(device)
        n_id = part.n_id.to(graph.device)
        x: Any = graph.features(n_id) if table is None else table[n_id]
        return convolve(layer, x.to(device), part.edges, part.n_id)[part.seeds]

    return table_of(rows_of)

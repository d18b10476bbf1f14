"""Exact inference over a whole graph in bounded memory: layer after layer, each for a few nodes at a time.

A network is run on the features of a few nodes until it comes to a layer that reads neighbours. What such
layers gave before is looked up; the input of the first new one is kept. When that input is known for all
nodes, the layer itself is run, for a few nodes with all their neighbours at a time. Only tables of one row
for each node are kept: what each layer gave, and one input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from node2seq.environment import Processes
from node2seq.nn.models.network import Edges, convolve, hops_of
from node2seq.train.batches import BatchGraph


class _Reached(Exception):  # noqa: N818 - nothing went wrong
    """The network came to a layer that was not run yet."""

    def __init__(self, layer: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.layer, self.x = layer, x


class _Replay:
    """Stands in for the layers that read neighbours.

    Args:
        known: What the first of them gave for the nodes at hand.
    """

    def __init__(self, known: Sequence[Tensor]) -> None:
        self._known = iter(known)

    def __call__(self, layer: nn.Module, x: Tensor) -> Tensor:
        out = next(self._known, None)
        if out is None:
            raise _Reached(layer, x)
        return out


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
    own = _Own(graph, processes or Processes())
    while True:
        layer, table = _run_to_next_layer(call, own, device, done)
        if layer is None:
            assert table is not None
            return table
        done.append(_run_layer(layer, table, own, device))


class _Own:
    """The chunks of a graph that this process works on: all of them, if it is alone."""

    def __init__(self, graph: BatchGraph, processes: Processes) -> None:
        self.graph, self._processes = graph, processes

    def _chunks(self) -> Iterator[Tensor]:
        """Those of this process; one without a chunk takes the first, to know the shape of a table."""
        rank, size = self._processes.rank, self._processes.size
        for number, nodes in enumerate(self.graph.chunks(size)):
            if number % size == rank or (number == 0 and rank >= self.graph.num_nodes):
                yield nodes

    def table(self, rows_of: Callable[[Tensor], Tensor]) -> Tensor:
        """A row for each node, in main memory; other processes work out the rows of their own chunks.

        Args:
            rows_of: Gives the rows of some nodes.
        """
        table: Tensor | None = None
        for nodes in self._chunks():
            rows = rows_of(nodes)
            if table is None:
                table = torch.empty(self.graph.num_nodes, rows.size(-1), dtype=rows.dtype)
            table[nodes] = rows.to(table.device)
        assert table is not None
        size = self._processes.size
        if size > 1:
            owned = ((number % size, nodes) for number, nodes in enumerate(self.graph.chunks(size)))
            self._processes.exchange_rows_(table, owned)
        return table


def _run_to_next_layer(
    call: Callable[[Any, Edges], Tensor],
    own: _Own,
    device: torch.device,
    done: Sequence[Tensor],
) -> tuple[nn.Module | None, Tensor | None]:
    """The next layer and its input for all nodes, None if these are the features; or what comes out."""
    layer: nn.Module | None = None

    def rows_of(nodes: Tensor) -> Tensor:
        nonlocal layer
        x = own.graph.features(nodes).to(device)
        replay = _Replay([known[nodes].to(device) for known in done])
        try:
            return call(x, Edges(None, run=replay))
        except _Reached as reached:
            if reached.x is x:
                raise
            layer = reached.layer
            return reached.x

    try:
        table = own.table(rows_of)
    except _Reached as reached:
        return reached.layer, None
    return layer, table


def _run_layer(layer: nn.Module, table: Tensor | None, own: _Own, device: torch.device) -> Tensor:
    """What a layer gives for all nodes."""

    def rows_of(nodes: Tensor) -> Tensor:
        part = own.graph.around(nodes, hops_of(layer)).to(device)
        n_id = part.n_id.cpu()
        x: Any = own.graph.features(n_id) if table is None else table[n_id]
        return convolve(layer, x.to(device), part.edges, part.n_id)[part.seeds]

    return own.table(rows_of)

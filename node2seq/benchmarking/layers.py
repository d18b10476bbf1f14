"""A layer's forward and backward pass as a step to measure, and the least that it has to gather."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from node2seq import ops
from node2seq.benchmarking.graphs import Size
from node2seq.benchmarking.rows import Row
from node2seq.benchmarking.timing import measure
from node2seq.nn.conv.node2seq import Node2SeqConv

CHANNELS = 64
OUT_OF_MEMORY = "out of memory"
PLAN_ANEW = "plan anew"


class Stage:
    """A graph with features and a direction to differentiate in, on one device.

    Args:
        bench: Which benchmark its rows belong to.
        size: The graph's name and size.
        edge_index: Its edges.
        bandwidth: Bytes per second of the memory, for the gather bound; None: do without.
    """

    def __init__(self, bench: str, size: Size, edge_index: Tensor, bandwidth: float | None = None) -> None:
        self.bench, self.size, self.edge_index, self.bandwidth = bench, size, edge_index, bandwidth
        self.device = edge_index.device
        generator = torch.Generator(self.device).manual_seed(0)
        shape = (size.nodes, CHANNELS)
        self.x = torch.randn(shape, device=self.device, generator=generator).requires_grad_()
        self.direction = torch.randn(shape, device=self.device, generator=generator)

    def gat(self, *, seconds: float, least: int = 3) -> Row:
        """PyG's GATConv with one head: what all others are compared with.

        Args:
            seconds: See :func:`node2seq.benchmarking.timing.measure`.
            least: See there.
        """
        return self._row(GATConv(CHANNELS, CHANNELS), Row(self.bench, *self.size, "GATConv"), seconds, least)

    def case(self, readout: str, kernel_size: int, backend: str) -> Row:
        """The row of our layer before anything is measured."""
        about = {"kernel_size": kernel_size, "readout": readout, "backend": backend}
        return Row(self.bench, *self.size, "Node2SeqConv", **about)

    def node2seq(
        self,
        readout: str,
        kernel_size: int,
        *,
        backend: str,
        seconds: float,
        least: int = 3,
        plan_anew: bool = False,
    ) -> Row:
        """Our layer with a backend; ``plan_anew``: as if each step had a graph of its own."""
        layer = Node2SeqConv(CHANNELS, CHANNELS, kernel_size, readout=readout, backend=backend)
        row = self.case(readout, kernel_size, backend)
        if plan_anew:
            row = replace(row, variant=PLAN_ANEW)
        bound = None
        if self.bandwidth is not None:
            entries = self.size.edges + self.size.nodes
            bound = 1e3 * gather_bytes(readout, kernel_size, entries) / self.bandwidth
        return self._row(layer, row, seconds, least, bound)

    def _row(
        self, layer: nn.Module, row: Row, seconds: float, least: int, bound_ms: float | None = None
    ) -> Row:
        anew = row.variant == PLAN_ANEW
        step = layer_step(layer.to(self.device), self.x, self.edge_index, self.direction, plan_anew=anew)
        found = measure(step, self.device, seconds=seconds, least=least)
        figures = {"result": OUT_OF_MEMORY} if found is None else vars(found)
        if found is not None and bound_ms is not None:
            figures = {**figures, "bound_share": bound_ms / found.p50_ms}
        return replace(row, **figures)


def layer_step(
    layer: nn.Module, x: Tensor, edge_index: Tensor, direction: Tensor, *, plan_anew: bool = False
) -> Callable[[], None]:
    """A forward and backward pass; ``plan_anew``: without what is known of the graph."""

    def step() -> None:
        layer(x, edge_index).backward(direction)
        # Freed here and not at the next start: gradients, and a plan anew, are part of what a step adds.
        layer.zero_grad()
        x.grad = None
        if plan_anew:
            ops.PLANS.clear()

    return step


def gather_bytes(readout: str, kernel_size: int, entries: int, channels: int = CHANNELS) -> int:
    """The least that the layer reads when each gathered float32 row comes from memory once.

    Sum and mean gather a row once forward, for the score and the sums together, and once backward. The
    maximum gathers a row for the score, each tap's projection for the windows, and backward the gradients and
    the winners of each target.
    """
    rows = 3 + kernel_size if readout == "max" else 2
    return rows * entries * channels * 4

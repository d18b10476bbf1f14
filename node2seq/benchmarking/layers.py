"""Forward + backward of our layer and of PyG's on one graph, and the least that ours has to gather."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops, remove_self_loops

from node2seq import ops
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.benchmarking.timing import measure
from node2seq.nn.conv.node2seq import Node2SeqConv


class Size(NamedTuple):
    """A graph's name and size."""

    name: str
    nodes: int
    edges: int


def power_law(nodes: int, edges: int, device: torch.device, seed: int = 0, exponent: float = 0.6) -> Tensor:
    """Distinct directed edges, in no order, whose ends are drawn with probability ∝ rank^−exponent.

    The same seed gives the same graph on one kind of device.
    """
    generator = torch.Generator(device).manual_seed(seed)
    number = torch.randperm(nodes, device=device, generator=generator)

    def ends() -> Tensor:
        drawn = torch.rand(edges, device=device, dtype=torch.float64, generator=generator)
        rank = (drawn.pow_(1 / (1 - exponent)) * nodes).long().clamp_(max=nodes - 1)
        return number[rank]

    found = torch.zeros(0, dtype=torch.int64, device=device)
    while found.numel() < edges:
        found = torch.cat([found, ends() * nodes + ends()]).unique()
    found = found[torch.randperm(found.numel(), device=device, generator=generator)[:edges]]
    return torch.stack([found % nodes, found // nodes])


CHANNELS = 64
OUT_OF_MEMORY = "out of memory"
PLAN_ANEW = "plan anew"
COMPILED, NOT_COMPILED = "compiled", "not compiled"
BFLOAT16 = "bfloat16"


def measured(row: BenchmarkRow, step: Callable[[], Any], device: torch.device, **bounds: Any) -> BenchmarkRow:
    """A row with what :func:`~node2seq.benchmarking.timing.measure` finds of a step within its bounds."""
    found = measure(step, device, **bounds)
    return replace(row, **({"result": OUT_OF_MEMORY} if found is None else vars(found)))


class LayerBenchmark:
    """Times layers on one graph with random features, forward + backward.

    Args:
        bench: Which benchmark its rows belong to.
        size: The graph's name and size.
        edge_index: Its edges.
        bandwidth: Bytes per second of the memory, for the gather bound; None: without it.
        seconds: How long to repeat a step; see :func:`node2seq.benchmarking.timing.measure`.
        least: How often at least.
    """

    def __init__(
        self,
        bench: str,
        size: Size,
        edge_index: Tensor,
        bandwidth: float | None = None,
        *,
        seconds: float = 1.0,
        least: int = 3,
    ) -> None:
        self.bench, self.size, self.edge_index, self.bandwidth = bench, size, edge_index, bandwidth
        self.seconds, self.least = seconds, least
        self.device = edge_index.device
        generator = torch.Generator(self.device).manual_seed(0)
        shape = (size.nodes, CHANNELS)
        self.x = torch.randn(shape, device=self.device, generator=generator).requires_grad_()
        self.direction = torch.randn(shape, device=self.device, generator=generator)

    @property
    def auto_backend(self) -> str:
        """The name of the backend that ``auto`` chooses on this graph."""
        module = ops.choose_backend("auto", self.x)
        return module.__name__.removeprefix(f"{ops.__name__}.").split(".")[0]

    def pyg(self, layer: nn.Module, name: str = "GATConv") -> BenchmarkRow:
        """A layer of PyG."""
        return self._measure(layer, BenchmarkRow(self.bench, *self.size, name))

    def gat(self) -> BenchmarkRow:
        """PyG's GATConv with one head: what all others are compared with."""
        return self.pyg(GATConv(CHANNELS, CHANNELS))

    def compiled_gat(self) -> BenchmarkRow:
        """GATConv under ``torch.compile`` for this graph's shape; a result without a time says why not.

        It is given edges with self loops: to add them in every step would break the compiled graph up.
        """
        row = BenchmarkRow(self.bench, *self.size, "GATConv", COMPILED)
        layer = GATConv(CHANNELS, CHANNELS, add_self_loops=False)
        layer.compile(dynamic=False)
        edges, _ = add_self_loops(remove_self_loops(self.edge_index)[0], num_nodes=self.size.nodes)
        try:
            return self._measure(layer, row, edges)
        except RuntimeError as error:  # what torch.compile raises, also where there is no C compiler
            reason = str(error).strip().splitlines()[0]
            return replace(row, result=f"{NOT_COMPILED}: {reason}")

    def case(self, readout: str, kernel_size: int, backend: str) -> BenchmarkRow:
        """The row of our layer before anything is measured."""
        about = {"kernel_size": kernel_size, "readout": readout, "backend": backend}
        return BenchmarkRow(self.bench, *self.size, "Node2SeqConv", **about)

    def node2seq(self, readout: str, kernel_size: int, backend: str, variant: str = "") -> BenchmarkRow:
        """Our layer with a backend.

        Args:
            readout: Its readout.
            kernel_size: Its taps.
            backend: Its backend.
            variant: ``"plan anew"`` as if each step had a graph of its own, ``"bfloat16"`` under autocast,
                ``"compiled"`` under ``torch.compile``.
        """
        layer = Node2SeqConv(CHANNELS, CHANNELS, kernel_size, readout=readout, backend=backend)
        if variant == COMPILED:
            layer.compile(dynamic=False)
        row = self._measure(layer, replace(self.case(readout, kernel_size, backend), variant=variant))
        if self.bandwidth is None or row.p50_ms is None or variant == BFLOAT16:
            return row
        entries = self.size.edges + self.size.nodes  # with self loops
        bound_ms = 1e3 * gather_bytes(readout, kernel_size, entries) / self.bandwidth
        return replace(row, bound_share=bound_ms / row.p50_ms)

    def _measure(self, layer: nn.Module, row: BenchmarkRow, edge_index: Tensor | None = None) -> BenchmarkRow:
        edges = self.edge_index if edge_index is None else edge_index
        step = layer_step(layer.to(self.device), self.x, edges, self.direction, row.variant)
        return measured(row, step, self.device, seconds=self.seconds, least=self.least)


def layer_step(
    layer: nn.Module, x: Tensor, edge_index: Tensor, direction: Tensor, variant: str = ""
) -> Callable[[], None]:
    """A forward and backward pass; ``"plan anew"`` drops what is cached, ``"bfloat16"`` is autocast."""

    def step() -> None:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=variant == BFLOAT16):
            out = layer(x, edge_index)
        out.backward(direction)
        # Freed here and not at the next start: gradients and a new plan are part of what a step adds.
        layer.zero_grad()
        x.grad = None
        if variant == PLAN_ANEW:
            ops.PLANS.clear()

    return step


def gather_bytes(readout: str, kernel_size: int, entries: int, channels: int = CHANNELS) -> int:
    """The fewest bytes that the layer reads: each gathered float32 row comes from memory once.

    Sum and mean gather a row once forward, for the score and the sums together, and once backward. The
    maximum gathers a row for the score, each tap's projection for the windows, and backward the gradients and
    the winners of each target. Ranks gather a row forward, and backward the same row for the gradient of the
    ranks, and the gradients of each target; what they are scored by has few channels and is left out.
    """
    rows = {"max": 3 + kernel_size, "ranks": 3}.get(readout, 2)
    return rows * entries * channels * 4

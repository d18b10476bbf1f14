"""How long a step takes and how much memory it adds: forward + backward of our layer and of PyG's on one
graph, and the least that ours has to gather.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops, remove_self_loops

from node2seq import ops
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.environment import release_freed_memory
from node2seq.nn.conv.node2seq import Node2SeqConv

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Measured:
    """Milliseconds at the 20th, 50th and 80th percentile, and the bytes that a step adds at its peak."""

    p20_ms: float
    p50_ms: float
    p80_ms: float
    peak_bytes: int | None


def measure(
    step: Callable[[], Any], device: torch.device, *, seconds: float, least: int = 3, most: int = 30
) -> Measured | None:
    """Time and memory of a step, or None if it runs out of memory.

    Args:
        step: What to measure; it runs twice before it is timed, which fills caches.
        device: Where it runs.
        seconds: About how long to repeat it,
        least: at least this often,
        most: at most this often, unless ``least`` is more.
    """
    try:
        step()
        peak = peak_bytes(step, device)
        times = sorted(_repeat(step, device, seconds, least, most))
        return Measured(*(float(q) for q in np.percentile(times, (20, 50, 80))), peak_bytes=peak)
    except (torch.OutOfMemoryError, MemoryError):
        return None
    except RuntimeError as error:  # what torch raises where a CPU runs out
        if "DefaultCPUAllocator" not in str(error):
            raise
        return None


def _repeat(
    step: Callable[[], Any], device: torch.device, seconds: float, least: int, most: int
) -> list[float]:
    end, times = time.perf_counter() + seconds, []
    while len(times) < least or (len(times) < most and time.perf_counter() < end):
        times.append(_once_on_gpu(step) if device.type == "cuda" else _once(step))
    return times


def _once(step: Callable[[], Any]) -> float:
    start = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - start)


def _once_on_gpu(step: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int | None:
    """The bytes that a step adds at its peak; None where the system does not report them."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not _CLEAR.exists():
        step()
        return None
    release_freed_memory()  # a step that reused it would seem to need none
    _CLEAR.write_text("5")  # resets the high-water mark
    before = _resident("VmRSS:")
    step()
    return max(_resident("VmHWM:") - before, 0)


def _resident(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


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
    """A row with what :func:`measure` finds of a step within its bounds."""
    found = measure(step, device, **bounds)
    return replace(row, **({"result": OUT_OF_MEMORY} if found is None else vars(found)))


def measured_in_turns(
    steps: Mapping[BenchmarkRow, Callable[[], Any]],
    device: torch.device,
    rounds: int,
    *,
    least: int,
    parts: int = 1,
) -> list[BenchmarkRow]:
    """The rows with the time of their steps, which take turns: a busy moment of the machine hits all alike.

    Args:
        steps: What to measure, by its row.
        device: Where it runs.
        rounds: How often each has its turn; figures are over these.
        least: How often it runs in its turn, of which the median counts, after two runs that do not.
        parts: How many steps it consists of.
    """
    times: dict[BenchmarkRow, list[float]] = {row: [] for row in steps}
    lost: dict[BenchmarkRow, str] = {}
    peaks: dict[BenchmarkRow, int | None] = {}
    for _ in range(rounds):
        for row, step in steps.items():
            if row in lost:
                continue
            try:
                found = measure(step, device, seconds=0, least=least)
            except RuntimeError as error:  # what torch.compile raises, also where there is no C compiler
                lost[row] = f"{NOT_COMPILED}: {str(error).strip().splitlines()[0]}"
                continue
            if found is None:
                lost[row] = OUT_OF_MEMORY
            else:
                times[row].append(found.p50_ms / parts)
                peaks[row] = found.peak_bytes
    quantiles = ("p20_ms", "p50_ms", "p80_ms")
    return [
        replace(row, result=lost[row])
        if row in lost
        else replace(
            row,
            peak_bytes=peaks[row],
            **dict(zip(quantiles, map(float, np.percentile(own, (20, 50, 80))), strict=True)),
        )
        for row, own in times.items()
    ]


class LayerBenchmark:
    """Times layers on one graph with random features, forward + backward.

    Args:
        bench: Which benchmark its rows belong to.
        size: The graph's name and size.
        edge_index: Its edges.
        bandwidth: Bytes per second of the memory, for the gather bound; None: without it.
        seconds: How long to repeat a step; see :func:`measure`.
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
        return self.time(row, step)

    def time(self, row: BenchmarkRow, step: Callable[[], None]) -> BenchmarkRow:
        """The row with what is measured of a step."""
        return measured(row, step, self.device, seconds=self.seconds, least=self.least)


class BenchmarkInTurns(LayerBenchmark):
    """The same for graphs whose steps take a millisecond: its rows are measured at the end, in turns."""

    def __init__(self, bench: str, size: Size, edge_index: Tensor) -> None:
        super().__init__(bench, size, edge_index)
        self._steps: dict[BenchmarkRow, Callable[[], None]] = {}

    def time(self, row: BenchmarkRow, step: Callable[[], None]) -> BenchmarkRow:
        """Notes the step; the row has no time yet."""
        self._steps[row] = step
        return row

    def rows(self, rounds: int, least: int) -> list[BenchmarkRow]:
        """All that was noted, measured now; see :func:`measured_in_turns`."""
        return measured_in_turns(self._steps, self.device, rounds, least=least)


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

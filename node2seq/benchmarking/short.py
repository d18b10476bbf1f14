"""The short benchmark: our layer beside PyG's on three sizes of graph, with every backend that runs here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from node2seq import ops
from node2seq.benchmarking.layers import LayerBenchmark, Size, power_law
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.node2seq import Node2SeqConv

NODES, EDGES, CHANNELS = 600, 9_000, 16
KERNEL_SIZES = (1, 3, 10)


def runnable_backends(device: torch.device) -> list[str]:
    """The backends that can process float32 features on a device."""
    x = torch.zeros(1, 1, device=device)
    found = []
    for name in ops.BACKEND_NAMES:
        try:
            ops.choose_backend(name, x)
        except Node2SeqError:
            continue
        found.append(name)
    return [name for name in found if name != "auto"]


def disagreements(backend: str, device: torch.device) -> list[str]:
    """Where the layer differs from the reference: forward, order or gradients; nothing if it is right.

    Features and weights are small whole numbers, so that every sum is exact in any order and results have to
    be equal, ties included; but for soft ranks, which have to be close. One node is the neighbour of all, and
    has all as neighbours.
    """
    generator = torch.Generator().manual_seed(0)

    def whole(*shape: int, limit: int) -> Tensor:
        return torch.randint(-limit, limit + 1, shape, generator=generator).float().to(device)

    others = torch.arange(1, NODES)
    hub = torch.stack([torch.cat([others, 0 * others]), torch.cat([0 * others, others])])
    edge_index = torch.cat([power_law(NODES, EDGES, torch.device("cpu")), hub], dim=1).to(device)
    x, direction = whole(NODES, CHANNELS, limit=2), whole(NODES, CHANNELS, limit=2)
    wrong = []
    for readout in ("max", "sum", "ranks"):
        for kernel_size in KERNEL_SIZES:
            layer = Node2SeqConv(CHANNELS, CHANNELS, kernel_size, readout=readout).to(device)
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.copy_(whole(*parameter.shape, limit=1))
            found = _results(layer, backend, x, edge_index, direction)
            expected = _results(layer, "reference", x, edge_index, direction)
            wrong += [
                f"{backend}, {readout} k={kernel_size}: {name}"
                for name, value in expected.items()
                if _differs(found[name], value, 1e-4 if readout == "ranks" and name != "order" else 0.0)
            ]
    return wrong


def _differs(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Whether a result is another one; the shares of soft ranks are no whole numbers, and are rounded."""
    if not tolerance:
        return not torch.equal(found, expected)
    return not (found - expected).norm() <= tolerance * expected.norm()


def verify_backends(device: torch.device) -> list[str]:
    """Compare every backend that runs on a device with the reference, and return their names.

    Raises:
        Node2SeqError: Names what differs from the reference.
    """
    backends = runnable_backends(device)
    wrong = [line for backend in backends for line in disagreements(backend, device)]
    if wrong:
        raise Node2SeqError(
            "; ".join(wrong),
            "these results differ from those of the reference, so nothing is timed",
            "Report it, with what `node2seq info` prints",
        )
    return backends


def _results(
    layer: Node2SeqConv, backend: str, x: Tensor, edge_index: Tensor, direction: Tensor
) -> dict[str, Tensor]:
    layer.backend = backend
    layer.zero_grad()
    x = x.clone().requires_grad_()
    # Without a trace, for which a backend may take another path.
    out = layer(x, edge_index)
    out.backward(direction)
    with torch.no_grad():
        trace = layer(x, edge_index, return_trace=True)[1]
    assert x.grad is not None
    grads = {
        f"gradient of {name}": parameter.grad.clone()
        for name, parameter in layer.named_parameters()
        if parameter.grad is not None
    }
    return {"output": out.detach(), "order": trace.index, "gradient of x": x.grad, **grads}


SIZES = (
    Size("as large as Cora", 2_708, 10_556),
    Size("5k nodes, 0.4M edges", 5_000, 400_000),
    Size("100k nodes, 1.1M edges", 100_000, 1_100_000),
)
READOUTS = ("max", "mean")
KERNEL_SIZE = 3
# Few repeats, so that a slow machine gets through all cases.
SECONDS_A_CASE, LEAST = 0.8, 2
NO_TIME_LEFT = "no time left"


@dataclass(frozen=True)
class ShortBenchmark:
    """The rows in the order of measuring, and the backend that ``auto`` chooses for each graph."""

    rows: tuple[BenchmarkRow, ...]
    picks: dict[str, str]


def short_benchmark(
    device: torch.device,
    say: Callable[[str], None] = lambda _: None,
    *,
    seconds: float = 40.0,
) -> ShortBenchmark:
    """Check every backend against the reference, then measure forward + backward of the layer.

    Args:
        device: Where.
        say: Called with a line about what is being done.
        seconds: No further case is started that would end after this time, by what is known of it.

    Raises:
        Node2SeqError: A backend's results are wrong; nothing is measured then.
    """
    end = time.monotonic() + seconds
    say("comparing every backend with the reference")
    backends = verify_backends(device)
    benchmarks = [
        LayerBenchmark(
            "short",
            size,
            power_law(size.nodes, size.edges, device),
            seconds=SECONDS_A_CASE,
            least=LEAST,
        )
        for size in SIZES
    ]
    picks = {benchmark.size.name: benchmark.auto_backend for benchmark in benchmarks}
    # Every backend on the smallest graph, what users get first and the reference last; then what users get on
    # the other graphs, then what is left.
    smallest, *others = benchmarks
    backends = sorted(backends, key=lambda name: name == "reference")
    wanted = [(smallest, name) for name in sorted(backends, key=lambda name: name != smallest.auto_backend)]
    wanted += [(benchmark, benchmark.auto_backend) for benchmark in others]
    wanted += [(each, name) for name in backends for each in others if name != each.auto_backend]
    rows: dict[str, list[BenchmarkRow]] = {size.name: [] for size in SIZES}
    for benchmark, name in wanted:
        found = rows[benchmark.size.name]
        if not found:
            say(f"measuring {benchmark.size.name}")
            found.append(benchmark.gat())
        say(f"measuring {name} on {benchmark.size.name}")
        found += _rows(benchmark, name, found[0], end, [r for known in rows.values() for r in known])
    return ShortBenchmark(tuple(row for found in rows.values() for row in found), picks)


def _rows(
    benchmark: LayerBenchmark, backend: str, base: BenchmarkRow, end: float, known: Sequence[BenchmarkRow]
) -> list[BenchmarkRow]:
    """The rows of a backend on a graph; of a case that would not end in time, a row that says so."""
    found = []
    for readout in READOUTS:
        case = benchmark.case(readout, KERNEL_SIZE, backend)
        if time.monotonic() + _expected_seconds(case, known) < end:
            row = benchmark.node2seq(readout, KERNEL_SIZE, backend)
        else:
            row = replace(case, result=NO_TIME_LEFT)
        found.append(row.beside(base))
    return found


def _expected_seconds(case: BenchmarkRow, known: Sequence[BenchmarkRow]) -> float:
    """How long the least repeats of a case take, if time grows as edges do; 0 if nothing is known of it."""
    alike = [row for row in known if (row.backend, row.readout) == (case.backend, case.readout)]
    alike = [row for row in alike if row.p50_ms]
    if not alike:
        return 0.0
    largest = max(alike, key=lambda row: row.edges)
    assert largest.p50_ms is not None
    # Once more to warm up.
    return (LEAST + 1) * largest.p50_ms / 1000 * case.edges / largest.edges

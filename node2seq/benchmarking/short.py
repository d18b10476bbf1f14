"""The short benchmark: our layer beside PyG's on three sizes of graph, with every backend that runs here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from node2seq.benchmarking.agreement import verify_backends
from node2seq.benchmarking.graphs import Size, power_law
from node2seq.benchmarking.layers import LayerBenchmark
from node2seq.benchmarking.rows import BenchmarkRow

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
    seconds: float = 45.0,
) -> ShortBenchmark:
    """Check every backend against the reference, then measure forward + backward of the layer.

    Args:
        device: Where.
        say: Called with a line about what is being done.
        seconds: No further case is started after this time.

    Raises:
        Node2SeqError: A backend's results are wrong; nothing is measured then.
    """
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
    end = time.monotonic() + seconds
    rows: list[list[BenchmarkRow]] = []
    for benchmark in benchmarks:
        say(f"measuring {benchmark.size.name}")
        base = benchmark.gat()
        rows.append([base, *_rows(benchmark, picks[benchmark.size.name], base, end)])
    # The backends that users get come first. The others share the time that is left, the reference last.
    others = [name for name in backends if set(picks.values()) != {name}]
    for backend in sorted(others, key=lambda name: name == "reference"):
        say(f"measuring {backend}")
        for benchmark, own in zip(benchmarks, rows, strict=True):
            if backend != picks[benchmark.size.name]:
                own += _rows(benchmark, backend, own[0], end)
    return ShortBenchmark(tuple(row for own in rows for row in own), picks)


def _rows(benchmark: LayerBenchmark, backend: str, base: BenchmarkRow, end: float) -> list[BenchmarkRow]:
    found = []
    for readout in READOUTS:
        if time.monotonic() < end:
            row = benchmark.node2seq(readout, KERNEL_SIZE, backend)
        else:
            row = replace(benchmark.case(readout, KERNEL_SIZE, backend), result=NO_TIME_LEFT)
        found.append(row.beside(base))
    return found

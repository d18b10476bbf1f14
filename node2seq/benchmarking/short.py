"""The short benchmark: the layer beside PyG's on three sizes of graph, with every backend that runs here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from node2seq import ops
from node2seq.benchmarking.agreement import refuse_if_wrong, runnable_backends
from node2seq.benchmarking.graphs import Size, power_law
from node2seq.benchmarking.layers import Stage
from node2seq.benchmarking.rows import Row

SIZES = (
    Size("as large as Cora", 2_708, 10_556),
    Size("5k nodes, 0.4M edges", 5_000, 400_000),
    Size("100k nodes, 1.1M edges", 100_000, 1_100_000),
)
READOUTS = ("max", "mean")
KERNEL_SIZE = 3
# A case is repeated for so long and at least so often: a slow machine is to get through all of them.
SECONDS_A_CASE, LEAST = 0.8, 2
NO_TIME_LEFT = "no time left"


@dataclass(frozen=True)
class Short:
    """What was found: rows in the order of measuring, and the backend that ``auto`` takes for each graph."""

    rows: tuple[Row, ...]
    picks: dict[str, str]


def short_benchmark(
    device: torch.device,
    say: Callable[[str], None] = lambda _: None,
    *,
    seconds: float = 45.0,
) -> Short:
    """Check every backend against the reference, then measure forward + backward of the layer.

    Args:
        device: Where.
        say: Told what is being done.
        seconds: Start no further case after so much measuring.

    Raises:
        Node2SeqError: A backend's results are wrong; nothing is measured then.
    """
    backends = runnable_backends(device)
    say(f"comparing {', '.join(name for name in backends if name != 'reference')} with the reference")
    refuse_if_wrong(backends, device)
    stages = [Stage("short", size, power_law(size.nodes, size.edges, device)) for size in SIZES]
    picks = {stage.size.name: picked_backend(stage) for stage in stages}
    end = time.monotonic() + seconds
    rows: list[list[Row]] = []
    for stage in stages:
        say(f"measuring {stage.size.name}")
        base = stage.gat(seconds=SECONDS_A_CASE, least=LEAST)
        rows.append([base, *_rows(stage, picks[stage.size.name], base, end)])
    # What users get is known by now. The others get the time that is left, the slow reference last.
    others = [name for name in backends if set(picks.values()) != {name}]
    for backend in sorted(others, key=lambda name: name == "reference"):
        say(f"measuring {backend}")
        for stage, own in zip(stages, rows, strict=True):
            if backend != picks[stage.size.name]:
                own += _rows(stage, backend, own[0], end)
    return Short(tuple(row for own in rows for row in own), picks)


def _rows(stage: Stage, backend: str, base: Row, end: float) -> list[Row]:
    found = []
    for readout in READOUTS:
        if time.monotonic() < end:
            row = stage.node2seq(readout, KERNEL_SIZE, seconds=SECONDS_A_CASE, backend=backend, least=LEAST)
        else:
            row = replace(stage.case(readout, KERNEL_SIZE, backend), result=NO_TIME_LEFT)
        found.append(row.beside(base))
    return found


def picked_backend(stage: Stage) -> str:
    """The name of the backend that ``auto`` takes on that graph."""
    entries = stage.size.edges + stage.size.nodes
    module = ops.choose_backend("auto", stage.x, entries)
    return module.__name__.removeprefix(f"{ops.__name__}.").split(".")[0]

"""Time an old and a new checkout of the package alternately: forward + backward of Node2SeqConv.

    python benchmarks/bench_versions.py ../old                    # against the checkout of this script
    python benchmarks/bench_versions.py ../old ../new --device cpu --rounds 5 --json versions.json

Three processes stay alive for the whole run: the old checkout, the new one, and the old one again, whose
ratio to the first shows how much the same code varies. They take turns, so that a change of the machine's
speed affects all of them. Ratios are medians over the rounds; below 1 the new checkout is faster. Needs
torch, PyTorch Geometric and numpy, and Triton on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

CHANNELS = 64
CASES = (("max", 3), ("max", 10), ("mean", 3), ("mean", 10))
# Nodes and edges, self loops not counted. The larger graph is for GPUs.
GRAPHS = {"squirrel": (5_000, 400_000), "large": (1_000_000, 20_000_000)}


@dataclass(frozen=True)
class Comparison:
    """One case: milliseconds of each checkout, and ratios of the same round.

    Args:
        graph: The graph's name.
        case: Readout and kernel size.
        old_ms: Median of the old checkout.
        new_ms: Median of the new checkout.
        ratio: Median of new to old.
        old_to_old: Median of old to old.
        low: A tenth of the ratios of old to old is below,
        high: and a tenth is above.
    """

    graph: str
    case: str
    old_ms: float
    new_ms: float
    ratio: float
    old_to_old: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """Whether the new checkout is at most 5 % slower, or no slower than old against old varies."""
        return self.ratio <= max(1.05, self.high)


class Worker:
    """A process that has imported one checkout and waits for commands.

    Args:
        checkout: The folder that holds the package.
        device: ``"cpu"`` or ``"cuda"``.
    """

    def __init__(self, checkout: Path, device: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", device]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(checkout)},
        )
        imported = Path(self.answer()["package"])
        if imported.parent != checkout:
            self.close()
            sys.exit(f"{checkout}: its worker imported {imported}")

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and return the answer."""
        self.tell(**command)
        return self.answer()

    def tell(self, **command: Any) -> None:
        """Send a command; :meth:`answer` waits for what comes back."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def answer(self) -> dict[str, Any]:
        """What comes back next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a worker ended with status {self._process.wait()}")
        return json.loads(line)


def compare(
    old: Path,
    new: Path,
    graphs: dict[str, tuple[int, int]],
    *,
    device: str,
    rounds: int,
    seconds: float = 0.3,
) -> list[Comparison]:
    """Time every case on every graph.

    Args:
        old: The folder of the old checkout.
        new: That of the new one.
        graphs: Nodes and edges by name.
        device: ``"cpu"`` or ``"cuda"``.
        rounds: How often each worker has its turn.
        seconds: About how long a turn takes; at least one step.
    """
    found = []
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        workers = [Worker(checkout.resolve(), device) for checkout in (old, new, old)]
        for worker in workers:
            stack.callback(worker.close)
        for name, (nodes, edges) in graphs.items():
            file = Path(folder, "graph.pt")
            _save_graph(file, nodes, edges, device)
            for worker in workers:
                worker.ask(graph=str(file))
            for readout, kernel_size in CASES:
                times = _rounds(workers, rounds, seconds, readout=readout, kernel_size=kernel_size)
                comparison = summary(name, f"{readout} k={kernel_size}", times)
                found.append(comparison)
                show(comparison)
    return found


def summary(graph: str, case: str, times: np.ndarray) -> Comparison:
    """Medians and ratios of the times [rounds, 3] of the old, the new and again the old checkout."""
    (old_ms, new_ms, _), to_old = np.median(times, axis=0), times / times[:, :1]
    _, ratio, old_to_old = np.median(to_old, axis=0)
    low, high = np.percentile(to_old[:, 2], (10, 90))
    figures = (old_ms, new_ms, ratio, old_to_old, low, high)
    return Comparison(graph, case, *(round(float(figure), 4) for figure in figures))


def _rounds(workers: Sequence[Worker], rounds: int, seconds: float, **case: Any) -> np.ndarray:
    """The median milliseconds of each round and worker."""
    for worker in workers:  # one step compiles and plans, in all of them at once
        worker.tell(steps=1, **case)
    for worker in workers:
        worker.answer()
    # The second shows how many fill a turn.
    steps = max(1, round(1e3 * seconds / max(worker.ask(steps=1, **case)["ms"][0] for worker in workers)))
    times = np.empty((rounds, len(workers)))
    for number in range(rounds):
        # Each starts a round as often as the others.
        for place in range(len(workers)):
            which = (number + place) % len(workers)
            times[number, which] = np.median(workers[which].ask(steps=steps, **case)["ms"])
    return times


def _save_graph(file: Path, nodes: int, edges: int, device: str) -> None:
    """Random distinct edges with hubs, as the other benchmarks have them; the same for every worker."""
    from node2seq.benchmarking.layers import power_law

    edge_index = power_law(nodes, edges, torch.device(device)).cpu()
    torch.save({"edge_index": edge_index, "nodes": nodes}, file)


def work(device: str) -> None:
    """A worker: a command a line on stdin, an answer a line on stdout."""
    import node2seq

    print(json.dumps({"package": str(Path(node2seq.__file__).parent)}), flush=True)
    x = edge_index = direction = torch.empty(0)
    for line in sys.stdin:
        command = json.loads(line)
        if "graph" in command:
            stored = torch.load(command["graph"], weights_only=True)
            torch.manual_seed(0)
            edge_index = stored["edge_index"].to(device)
            x = torch.randn(stored["nodes"], CHANNELS).to(device).requires_grad_()
            direction = torch.randn(stored["nodes"], CHANNELS).to(device)
            answer: dict[str, Any] = {}
        else:
            torch.manual_seed(0)
            layer = node2seq.Node2SeqConv(
                CHANNELS, CHANNELS, command["kernel_size"], readout=command["readout"]
            ).to(device)
            answer = {"ms": [_time_step(layer, x, edge_index, direction) for _ in range(command["steps"])]}
        print(json.dumps(answer), flush=True)


def _time_step(
    layer: torch.nn.Module, x: torch.Tensor, edge_index: torch.Tensor, direction: torch.Tensor
) -> float:
    if x.is_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    layer(x, edge_index).backward(direction)
    if x.is_cuda:
        torch.cuda.synchronize()
    milliseconds = 1e3 * (time.perf_counter() - start)
    layer.zero_grad()
    x.grad = None
    return milliseconds


def show(found: Comparison) -> None:
    """Print a line of the table."""
    print(
        f"{found.graph:12}{found.case:12}{found.old_ms:10.2f}{found.new_ms:10.2f}{found.ratio:10.3f}"
        f"{found.old_to_old:10.3f}{f'{found.low:.3f} to {found.high:.3f}':>18}"
        f"{'' if found.passed else '  slower'}",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, and write its rows as JSON if told."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of the old checkout")
    parser.add_argument("new", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), help="default: all; on a CPU squirrel")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    graphs = {name: GRAPHS[name] for name in options.graphs or (GRAPHS if device == "cuda" else ["squirrel"])}
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}, {CHANNELS} → {CHANNELS} channels, float32")
    print(f"{'':24}{'old ms':>10}{'new ms':>10}{'new/old':>10}{'old/old':>10}{'old/old varies':>18}")
    found = compare(
        options.old, options.new, graphs, device=device, rounds=options.rounds, seconds=options.seconds
    )
    if options.json:
        rows = [asdict(comparison) | {"passed": comparison.passed, "device": where} for comparison in found]
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
    else:
        main()

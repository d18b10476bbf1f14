"""Forward + backward of Node2SeqConv beside PyTorch Geometric's layers: time and peak memory, in one run.

    python benchmarks/bench_conv.py                     # Cora, Squirrel, a power-law graph; kernels 3 and 10
    python benchmarks/bench_conv.py --graphs powerlaw --repeats 9

Each layer runs in a process of its own under a memory limit, so that one that runs out does not take the
others with it: its failure is a result. Ratios are to GATConv on the same graph, lower is better. Memory is
what a forward + backward adds to the process at its peak.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch_geometric
import torch_geometric.nn
from torch import Tensor, nn

from node2seq import Node2SeqConv, ops
from node2seq.data import load

CHANNELS = 64
GRAPHS = {"cora": "Cora", "squirrel": "Squirrel", "powerlaw": "power law"}


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    layer: str
    kernel_size: int | None = None
    readout: str | None = None
    new_plan: bool = False

    def title(self) -> str:
        """The line's name."""
        if self.layer != "Node2SeqConv":
            return self.layer
        return f"Node2SeqConv {self.readout} k={self.kernel_size}" + (", plan anew" if self.new_plan else "")


BASELINES = [Case("GATConv"), Case("GATv2Conv"), Case("GCNConv"), Case("SAGEConv(lstm)")]


def cases(kernels: list[int]) -> list[Case]:
    """PyG's layers first: the ratios are to the first of them."""
    ours = [
        Case("Node2SeqConv", kernel_size, readout, new_plan)
        for readout in ("max", "mean")
        for kernel_size in kernels
        for new_plan in (False, True)
    ]
    return BASELINES + ours


def power_law(num_nodes: int, num_edges: int, seed: int = 0) -> Tensor:
    """Distinct directed edges whose ends are drawn with probability ∝ rank^−0.6 on both sides."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.arange(1, num_nodes + 1, dtype=torch.float64).pow(-0.6)
    edges = torch.zeros(0, dtype=torch.int64)
    while edges.numel() < num_edges:
        drawn = torch.multinomial(weight, 2 * num_edges, replacement=True, generator=generator).view(2, -1)
        edges = torch.cat([edges, drawn[1] * num_nodes + drawn[0]]).unique()
    edges = edges[torch.randperm(edges.numel(), generator=generator)[:num_edges]].sort().values
    return torch.stack([edges % num_nodes, edges // num_nodes])


def graph(name: str) -> tuple[Tensor, int]:
    """Edges sorted by target, as SAGEConv(lstm) asks for, and the number of nodes."""
    if name == "powerlaw":
        return power_law(100_000, 1_000_000), 100_000
    data = load("cora-r" if name == "cora" else name)
    edge_index, num_nodes = data.edge_index, data.num_nodes
    assert edge_index is not None
    assert num_nodes is not None
    order = (edge_index[1] * num_nodes + edge_index[0]).argsort()
    return edge_index[:, order], num_nodes


def build(case: Case) -> nn.Module:
    """The layer to measure."""
    if case.layer == "Node2SeqConv":
        assert case.kernel_size is not None
        assert case.readout is not None
        return Node2SeqConv(CHANNELS, CHANNELS, case.kernel_size, readout=case.readout)
    if case.layer == "SAGEConv(lstm)":
        return torch_geometric.nn.SAGEConv(CHANNELS, CHANNELS, aggr="lstm")
    return getattr(torch_geometric.nn, case.layer)(CHANNELS, CHANNELS)


def peak_memory(step: Callable[[], None], device: torch.device) -> int:
    """The bytes that a step adds at its peak."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    clear_refs = Path("/proc/self/clear_refs")
    if not clear_refs.exists():
        step()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    clear_refs.write_text("5")  # resets the high-water mark to what is resident now

    def resident(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

    before = resident("VmRSS:")
    step()
    return resident("VmHWM:") - before


def measure(case: Case, edges_file: str, repeats: int, device_name: str) -> dict[str, Any]:
    """Runs in a process of its own."""
    device = torch.device(device_name)
    torch.manual_seed(0)
    stored = torch.load(edges_file, weights_only=True)
    edge_index = stored["edge_index"].to(device)
    layer = build(case).to(device)
    x = torch.randn(stored["num_nodes"], CHANNELS, device=device, requires_grad=True)
    direction = torch.randn(stored["num_nodes"], CHANNELS, device=device)

    def step() -> None:
        if case.new_plan:
            ops.PLANS.clear()
        layer.zero_grad()
        x.grad = None
        layer(x, edge_index).backward(direction)
        if device.type == "cuda":
            torch.cuda.synchronize()

    memory = peak_memory(step, device)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times), "bytes": memory}


def run_alone(case: Case, edges_file: str, options: argparse.Namespace) -> dict[str, Any]:
    """One case in a process of its own; what goes wrong there is the result."""
    job = json.dumps({"case": asdict(case), "edges": edges_file, "repeats": options.repeats})
    command = [sys.executable, __file__, "--device", options.device, "--job", job]

    def limit() -> None:
        if options.device == "cpu":  # CUDA reserves far more addresses than it uses
            size = int(options.memory_limit * 2**30)
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.time_limit, preexec_fn=limit
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"not done after {options.time_limit:.0f} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    last = done.stderr.strip().splitlines()[-1:] or [f"ended with status {done.returncode}"]
    out_of_memory = "alloc" in last[0] or "memory" in last[0].lower()
    return {"failure": f"more than {options.memory_limit:g} GiB" if out_of_memory else last[0][:60]}


def main() -> None:
    """Prints one table per graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--kernels", nargs="+", type=int, default=[3, 10])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--memory-limit", type=float, default=15.0, metavar="GIB")
    parser.add_argument("--time-limit", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        print(json.dumps(measure(Case(**job["case"]), job["edges"], job["repeats"], options.device)))
        return

    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} CPU cores"
    versions = f"torch {torch.__version__}, PyG {torch_geometric.__version__}"
    print(f"{where}, {versions}, {CHANNELS} → {CHANNELS} channels, float32, median of {options.repeats}")
    for name in options.graphs:
        edge_index, num_nodes = graph(name)
        degree = torch.bincount(edge_index[1], minlength=num_nodes)
        size = f"{num_nodes:,} nodes, {edge_index.size(1):,} edges, largest degree {degree.max()}"
        print(f"\n{GRAPHS[name]}: {size}")
        print(f"{'':34}{'ms':>10}{'× GATConv':>12}{'MiB':>10}{'× GATConv':>12}")
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            torch.save({"edge_index": edge_index, "num_nodes": num_nodes}, file.name)
            base: dict[str, Any] | None = None
            for case in cases(options.kernels):
                result = run_alone(case, file.name, options)
                if "failure" in result:
                    print(f"{case.title():34}  {result['failure']}")
                    continue
                base = base or result
                seconds, size = result["seconds"], result["bytes"]
                print(
                    f"{case.title():34}{seconds * 1e3:10.1f}{seconds / base['seconds']:12.2f}"
                    f"{size / 2**20:10.0f}{size / max(base['bytes'], 1):12.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

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
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch_geometric
import torch_geometric.nn
from torch import Tensor, nn

from node2seq import Node2SeqConv, ops
from node2seq.benchmarking.agreement import refuse_if_wrong, runnable_backends
from node2seq.benchmarking.graphs import power_law
from node2seq.benchmarking.layers import CHANNELS, OUT_OF_MEMORY, PLAN_ANEW, gather_bytes, layer_step
from node2seq.benchmarking.rows import Row, add_arguments, keep
from node2seq.benchmarking.timing import copy_bandwidth, measure
from node2seq.data import load

GRAPHS = {"cora": "Cora", "squirrel": "Squirrel", "powerlaw": "100k nodes, 1.1M edges"}


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    layer: str
    kernel_size: int | None = None
    readout: str | None = None
    new_plan: bool = False


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


def graph(name: str) -> tuple[Tensor, int]:
    """Edges sorted by target, as SAGEConv(lstm) asks for, and the number of nodes."""
    if name == "powerlaw":
        num_nodes = 100_000
        edge_index = power_law(num_nodes, 1_100_000, torch.device("cpu"))
    else:
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


def measure_alone(case: Case, edges_file: str, repeats: int, device_name: str) -> dict[str, Any]:
    """Runs in a process of its own."""
    device = torch.device(device_name)
    torch.manual_seed(0)
    stored = torch.load(edges_file, weights_only=True)
    edge_index = stored["edge_index"].to(device)
    layer = build(case).to(device)
    x = torch.randn(stored["num_nodes"], CHANNELS, device=device, requires_grad=True)
    direction = torch.randn(stored["num_nodes"], CHANNELS, device=device)
    step = layer_step(layer, x, edge_index, direction, plan_anew=case.new_plan)
    found = measure(step, device, seconds=0, least=repeats)
    if found is None:
        return {"failure": OUT_OF_MEMORY}
    entries = edge_index.size(1) + stored["num_nodes"]
    backend = ops.choose_backend("auto", x, entries).__name__.split(".")[2]
    return {**vars(found), **({"backend": backend} if case.kernel_size else {})}


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
    return {"failure": OUT_OF_MEMORY if out_of_memory else last[0][:60]}


def row_of(case: Case, about: tuple[str, int, int], result: dict[str, Any], bandwidth: float) -> Row:
    """The row of a case on a graph of that name, nodes and edges."""
    variant = PLAN_ANEW if case.new_plan else ""
    row = Row("layer", *about, case.layer, variant, case.kernel_size, case.readout)
    if "failure" in result:
        return replace(row, result=result["failure"])
    if case.kernel_size is None or case.readout is None:
        return replace(row, **result)
    gathered = gather_bytes(case.readout, case.kernel_size, about[1] + about[2])
    return replace(row, **result, bound_share=1e3 * gathered / bandwidth / result["p50_ms"])


def main() -> None:
    """Prints one table per graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--kernels", nargs="+", type=int, default=[3, 10])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--memory-limit", type=float, default=15.0, metavar="GIB")
    parser.add_argument("--time-limit", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    add_arguments(parser, Path(__file__).with_name("rows.jsonl"))
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        print(json.dumps(measure_alone(Case(**job["case"]), job["edges"], job["repeats"], options.device)))
        return
    device = torch.device(options.device)
    refuse_if_wrong(runnable_backends(device), device)
    bandwidth = copy_bandwidth(device)

    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} CPU cores"
    versions = f"torch {torch.__version__}, PyG {torch_geometric.__version__}"
    print(f"{where}, {versions}, {CHANNELS} → {CHANNELS} channels, float32, median of {options.repeats}")
    for name in options.graphs:
        edge_index, num_nodes = graph(name)
        degree = torch.bincount(edge_index[1], minlength=num_nodes)
        size = f"{num_nodes:,} nodes, {edge_index.size(1):,} edges, largest degree {degree.max()}"
        print(f"\n{GRAPHS[name]}: {size}")
        print(f"{'':34}{'ms':>10}{'× GATConv':>12}{'MiB':>10}{'× GATConv':>12}")
        rows: list[Row] = []
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            torch.save({"edge_index": edge_index, "num_nodes": num_nodes}, file.name)
            for case in cases(options.kernels):
                result = run_alone(case, file.name, options)
                row = row_of(case, (GRAPHS[name], num_nodes, edge_index.size(1)), result, bandwidth)
                rows.append(row.beside(rows[0]) if rows else row)
                show(rows[-1])
        keep(rows, options, device)


def show(row: Row) -> None:
    """A line of the table."""
    if row.p50_ms is None:
        print(f"{row.title():34}  {row.result}", flush=True)
        return
    ratio, peak_ratio = ("" if value is None else f"{value:.2f}" for value in (row.ratio, row.peak_ratio))
    mib = "" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.0f}"
    print(f"{row.title():34}{row.p50_ms:10.1f}{ratio:>12}{mib:>10}{peak_ratio:>12}", flush=True)


if __name__ == "__main__":
    main()

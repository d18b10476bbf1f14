"""Forward + backward of Node2SeqConv beside PyTorch Geometric's layers: time and peak memory, in one run.

    python benchmarks/bench_conv.py                     # Cora, Squirrel, a power-law graph; kernels 3 and 10
    python benchmarks/bench_conv.py --graphs powerlaw --repeats 9
    python benchmarks/bench_conv.py --device cuda --graphs cora

Each layer runs in a process of its own under a memory limit, so that one that runs out does not take the
others with it: its failure is a result. Ratios are to GATConv on the same graph, eager and under
torch.compile; lower is better. Memory is what a forward + backward adds to the process at its peak.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
import torch_geometric.nn
from script import Report, argument_parser, copy_bandwidth
from torch import Tensor

from node2seq.benchmarking.layers import (
    CHANNELS,
    COMPILED,
    OUT_OF_MEMORY,
    PLAN_ANEW,
    LayerBenchmark,
    Size,
    power_law,
)
from node2seq.benchmarking.rows import BenchmarkRow, device_title
from node2seq.benchmarking.short import verify_backends
from node2seq.data import load

GRAPHS = {"cora": "Cora", "squirrel": "Squirrel", "powerlaw": "100k nodes, 1.1M edges"}


def cases(size: Size, kernels: Sequence[int]) -> list[BenchmarkRow]:
    """The lines of a table, not measured yet. PyG's layers first: the ratios are to the first of them."""
    row = BenchmarkRow("layer", *size, "GATConv")
    ours = replace(row, case="Node2SeqConv")
    return [
        row,
        replace(row, variant=COMPILED),
        *(replace(row, case=layer) for layer in ("GATv2Conv", "GCNConv", "SAGEConv(lstm)")),
        *(
            replace(ours, variant=variant, kernel_size=kernel_size, readout=readout)
            for readout in ("max", "mean")
            for kernel_size in kernels
            for variant in ("", PLAN_ANEW)
        ),
        replace(ours, kernel_size=kernels[0], readout="ranks"),
    ]


def graph(name: str) -> tuple[Size, Tensor]:
    """A graph with its edges sorted by target, as SAGEConv(lstm) needs them."""
    if name == "powerlaw":
        num_nodes = 100_000
        edge_index = power_law(num_nodes, 1_100_000, torch.device("cpu"))
    else:
        data = load("cora-r" if name == "cora" else name)
        edge_index, num_nodes = data.edge_index, data.num_nodes
        assert edge_index is not None
        assert num_nodes is not None
    order = (edge_index[1] * num_nodes + edge_index[0]).argsort()
    return Size(GRAPHS[name], num_nodes, edge_index.size(1)), edge_index[:, order]


def measure(case: BenchmarkRow, benchmark: LayerBenchmark) -> BenchmarkRow:
    """The row of a case."""
    if case.case == "GATConv" and case.variant == COMPILED:
        return benchmark.compiled_gat()
    if case.kernel_size is not None and case.readout is not None:
        return benchmark.node2seq(case.readout, case.kernel_size, benchmark.auto_backend, case.variant)
    name, _, aggregation = case.case.rstrip(")").partition("(")
    options = {"aggr": aggregation} if aggregation else {}
    return benchmark.pyg(getattr(torch_geometric.nn, name)(CHANNELS, CHANNELS, **options), case.case)


def measure_alone(case: BenchmarkRow, file: str, options: argparse.Namespace) -> BenchmarkRow:
    """The row of a case that runs in a process of its own; a failure there is its result."""
    command = [sys.executable, __file__, "--job", json.dumps([asdict(case), file])]
    command += ["--device", options.device, "--repeats", str(options.repeats)]
    command += ["--bandwidth", str(options.bandwidth)]

    def limit() -> None:
        if options.device == "cpu":  # CUDA reserves far more addresses than it uses
            limit_bytes = int(options.memory_limit * 2**30)
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.time_limit, preexec_fn=limit
        )
    except subprocess.TimeoutExpired:
        return replace(case, result=f"not done after {options.time_limit:.0f} s")
    if done.returncode == 0:
        return BenchmarkRow(**json.loads(done.stdout.splitlines()[-1]))
    last = done.stderr.strip().splitlines()[-1:] or [f"ended with status {done.returncode}"]
    out_of_memory = "alloc" in last[0] or "memory" in last[0].lower()
    return replace(case, result=OUT_OF_MEMORY if out_of_memory else last[0][:60])


def run_job(options: argparse.Namespace) -> None:
    """Runs in the process of a case: prints its row as JSON."""
    values, file = json.loads(options.job)
    case = BenchmarkRow(**values)
    torch.manual_seed(0)
    edge_index = torch.load(file, weights_only=True).to(options.device)
    bounds = {"bandwidth": options.bandwidth, "seconds": 0, "least": options.repeats}
    size = Size(case.graph, case.nodes, case.edges)
    row = measure(case, LayerBenchmark("layer", size, edge_index, **bounds))
    print(json.dumps(asdict(row)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one table per graph."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--kernels", nargs="+", type=int, default=[3, 10])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--memory-limit", type=float, default=15.0, metavar="GIB")
    parser.add_argument("--time-limit", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--bandwidth", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.job:
        run_job(options)
        return
    report = Report(options)
    options.device = str(report.device)
    verify_backends(report.device)
    options.bandwidth = copy_bandwidth(report.device)
    print(f"{device_title(report.machine)}, {CHANNELS} → {CHANNELS} channels, float32")
    for name in options.graphs:
        size, edge_index = graph(name)
        largest = int(torch.bincount(edge_index[1]).max())
        title = f"{size.name}: {size.nodes:,} nodes, {size.edges:,} edges, largest degree {largest}"
        report.header(title, "GATConv")
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            torch.save(edge_index, file.name)
            for case in cases(size, options.kernels):
                report.add(measure_alone(case, file.name, options))


if __name__ == "__main__":
    main()

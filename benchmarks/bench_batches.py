"""Batches of many small graphs beside GATConv, new in every step or always the same: training and inference.

    python benchmarks/bench_batches.py                    # on a CPU one thread, as a loader's workers have
    python benchmarks/bench_batches.py --graphs 64 --device cuda

A batch is a disjoint union of random graphs of 30 nodes and about 60 directed edges each. The layers take
turns, so that a busy moment of the machine hits them alike; figures are over all rounds. Ratios are to
GATConv with one head, eager and under torch.compile (which gets its self loops beforehand); lower is better.
Each backend is verified before it is timed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from script import Report, argument_parser
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops

from node2seq import Node2SeqConv, ops
from node2seq.benchmarking.layers import CHANNELS, COMPILED, measured_in_turns
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.benchmarking.short import verify_backends

NODES, EDGES, BATCHES = 30, 60, 10
Batch = tuple[Tensor, Tensor]


def make_batch(graphs: int, device: torch.device, generator: torch.Generator) -> Batch:
    """The features and the edges of a batch; as many in every batch, both ways."""
    half = torch.randint(NODES, (2, graphs, EDGES // 2), generator=generator)
    half = (half + NODES * torch.arange(graphs)[:, None]).flatten(1)
    x = torch.randn(NODES * graphs, CHANNELS, generator=generator)
    return x.to(device), torch.cat([half, half.flip(0)], dim=1).to(device)


def one_round(layer: nn.Module, batches: Sequence[Batch], is_training: bool, is_new: bool) -> None:
    """A step for each batch; ``is_new``: every one of them is met for the first time."""
    for x, edges in batches if is_new else [batches[0]] * len(batches):
        with torch.set_grad_enabled(is_training):
            out = layer(x, edges.clone() if is_new else edges)
        if is_training:
            layer.zero_grad()
            out.sum().backward()


def with_loops(batches: Sequence[Batch]) -> list[Batch]:
    """The same with self loops as edges."""
    return [(x, add_self_loops(edges, num_nodes=x.size(0))[0]) for x, edges in batches]


def layers(batches: Sequence[Batch], device: torch.device) -> dict[BenchmarkRow, Callable[..., None]]:
    """What runs a round of each layer, by its row; PyG's first."""
    x, edges = batches[0]
    row = BenchmarkRow("batches", f"{x.size(0) // NODES} graphs", x.size(0), edges.size(1), "GATConv")
    compiled = GATConv(CHANNELS, CHANNELS, add_self_loops=False).to(device)
    compiled.compile()
    found: dict[BenchmarkRow, Callable[..., None]] = {
        row: partial(one_round, GATConv(CHANNELS, CHANNELS).to(device), batches),
        replace(row, variant=COMPILED): partial(one_round, compiled, with_loops(batches)),
    }
    auto = ops.choose_backend("auto", x).__name__.rpartition(".")[-1]
    for readout in ("max", "mean"):
        for backend in dict.fromkeys([auto, "eager"]):
            about = {"case": "Node2SeqConv", "kernel_size": 3, "readout": readout, "backend": backend}
            about["variant"] = "" if backend == auto else "plain PyTorch"
            layer = Node2SeqConv(CHANNELS, CHANNELS, readout=readout, backend=backend).to(device)
            found[replace(row, **about)] = partial(one_round, layer, batches)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each way to use the layers."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--graphs", type=int, default=32, help="graphs in a batch")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="about how long to repeat a table's rounds"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    report = Report(options)
    verify_backends(report.device)
    generator = torch.Generator().manual_seed(0)
    batches = [make_batch(options.graphs, report.device, generator) for _ in range(BATCHES)]
    torch.manual_seed(0)
    found = layers(batches, report.device)
    for is_training in (True, False):
        for is_new in (True, False):
            how = f"{'training' if is_training else 'inference'}, {'new' if is_new else 'the same'} graphs"
            report.header(f"{options.graphs} graphs of {NODES} nodes: {how}", "GATConv")
            rounds = {
                replace(row, graph=f"{row.graph}, {how}"): partial(step, is_training, is_new)
                for row, step in found.items()
            }
            turns = max(round(options.seconds * 10), 3)
            for row in measured_in_turns(rounds, report.device, turns, least=1, parts=BATCHES):
                report.add(replace(row, peak_bytes=None))


if __name__ == "__main__":
    main()

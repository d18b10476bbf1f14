"""A training epoch of the whole network on large graphs: full batch, mini-batches, and non-local neighbours.

    python benchmarks/bench_large.py                         # up to 10M nodes, 500M edges; for a large GPU
    python benchmarks/bench_large.py --device cpu --shrink 1000

Random graphs with hubs, 64 features, eight classes, one node in a hundred for training; `Node2Seq` with 64
hidden channels and three layers. An epoch of the full batch is one step of forward, backward and Adam. One of
mini-batches is a step for each 1,024 training nodes with 10 neighbours of each, on the first graph; the
share of its time in which the device waits is told by the same steps on batches that lie ready. With two hops
the first epoch finds the candidates, and is printed apart. Running out of memory is a result.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from bench_epoch import HIDDEN, training_step
from script import Report, argument_parser, seconds_of
from torch import Tensor
from torch_geometric.data import Data

from node2seq.benchmarking.layers import CHANNELS, OUT_OF_MEMORY, Size, measured, power_law
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.benchmarking.short import verify_backends
from node2seq.environment import Processes
from node2seq.nn.models import Node2Seq
from node2seq.train.batches import BatchGraph, MiniBatches
from node2seq.train.settings import BatchSettings

FULL = (Size("2.4M nodes", 2_400_000, 124_000_000), Size("10M nodes", 10_000_000, 500_000_000))
NONLOCAL = (Size("170k nodes", 170_000, 1_200_000), Size("1M nodes", 1_000_000, 20_000_000))
READOUTS = ("max", "mean")
CLASSES, TRAIN_SHARE = 8, 100
BATCH_SIZE, FANOUT = 1_024, (10, 10, 10)
BOUNDS = {"seconds": 5.0, "least": 3, "most": 10}


def make_graph(size: Size, device: torch.device) -> tuple[Data, Tensor]:
    """A graph and its training nodes."""
    edge_index = power_law(size.nodes, size.edges, device)
    generator = torch.Generator(device).manual_seed(1)
    x = torch.randn(size.nodes, CHANNELS, device=device, generator=generator)
    y = torch.randint(CLASSES, (size.nodes,), device=device, generator=generator)
    train = torch.randperm(size.nodes, device=device, generator=generator)[: size.nodes // TRAIN_SHARE]
    return Data(x=x, edge_index=edge_index, y=y), train.sort().values


def make_network(device: torch.device, readout: str, hops: int = 1) -> Node2Seq:
    """The network, with the same weights each time."""
    torch.manual_seed(0)
    return Node2Seq(CHANNELS, HIDDEN, CLASSES, readout=readout, hops=hops).to(device).train()


def full_batch(report: Report, size: Size, data: Data, train: Tensor, hops: int) -> None:
    """An epoch of the full batch; with several hops also the first one."""
    case = "Node2Seq" if hops == 1 else f"Node2Seq, {hops} hops"
    for readout in READOUTS:
        row = BenchmarkRow("large", *size, case, "full batch", readout=readout)
        step = training_step(make_network(report.device, readout, hops), data, train, report.device, False)
        if hops > 1:
            first = _first_epoch(row, step, report.device)
            report.add(first)
            if first.result:
                continue
        report.add(measured(row, step, report.device, **BOUNDS))
        del step
        torch.cuda.empty_cache()


def _first_epoch(row: BenchmarkRow, step: Callable[[], None], device: torch.device) -> BenchmarkRow:
    try:
        took = 1e3 * seconds_of(step, device)[0]
    except torch.OutOfMemoryError:
        return replace(row, variant="first epoch", result=OUT_OF_MEMORY)
    return replace(row, variant="first epoch", p20_ms=took, p50_ms=took, p80_ms=took)


def mini_batches(report: Report, size: Size, data: Data, train: Tensor, workers: int) -> None:
    """An epoch of mini-batches, and of the same batches when they lie ready."""
    device = report.device
    assert isinstance(data.y, Tensor)
    network, y = make_network(device, "mean"), data.y
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
    graph = BatchGraph.of(network, data)
    batches = MiniBatches(graph, train.cpu(), BatchSettings(BATCH_SIZE, FANOUT, workers), 0, Processes())
    epoch = 0

    def steps(parts) -> None:
        for part, x in parts:
            part, x = part.to(device), x.to(device)
            optimizer.zero_grad(set_to_none=True)
            out = network(x, part.edges, n_id=part.n_id)[part.seeds]
            F.cross_entropy(out, y[part.n_id[part.seeds]]).backward()
            optimizer.step()

    def drawn() -> None:
        nonlocal epoch
        steps(batches.of_epoch(epoch))
        epoch += 1

    row = BenchmarkRow("large", *size, "Node2Seq", readout="mean")
    loaded = report.add(
        measured(replace(row, variant=f"mini-batches, {workers} workers"), drawn, device, **BOUNDS)
    )
    ready = [(part.to(device), x.to(device)) for part, x in batches.of_epoch(0)]
    alone = report.add(
        measured(replace(row, variant="the same batches, ready"), lambda: steps(ready), device, **BOUNDS)
    )
    if loaded.p50_ms and alone.p50_ms:
        print(f"the device waits for {max(0.0, 1 - alone.p50_ms / loaded.p50_ms):.0%} of the time")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each graph."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--shrink", type=int, default=1, help="divide nodes and edges, to try everything")
    parser.add_argument("--workers", type=int, default=8, help="processes that draw mini-batches")
    options = parser.parse_args(arguments)
    report = Report(options)
    verify_backends(report.device)
    for hops, sizes in ((1, FULL), (2, NONLOCAL)):
        for size in (Size(s.name, s.nodes // options.shrink, s.edges // options.shrink) for s in sizes):
            report.header(f"{size.name}, {size.edges:,} edges, {hops} hops: an epoch")
            data, train = make_graph(size, report.device)
            full_batch(report, size, data, train, hops)
            if size.name == FULL[0].name:
                mini_batches(report, size, data, train, options.workers)
            del data, train
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

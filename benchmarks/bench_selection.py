"""One forward of the non-local selection: score, select among all within two hops, rank.

    python benchmarks/bench_selection.py                     # 100k / 1.1M and Squirrel; see NODE2SEQ_DATA
    python benchmarks/bench_selection.py --device cpu --graphs squirrel

The first selection finds the candidates; its time is printed apart. On a GPU also for many runs at once, as
one disjoint union. Each backend is verified before it is timed.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from script import Report, argument_parser, seconds_of
from torch import Tensor

from node2seq import ops
from node2seq.benchmarking.layers import Size, measured, power_law
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.benchmarking.short import runnable_backends
from node2seq.data import load
from node2seq.errors import Node2SeqError

HOPS, CHANNELS, RUNS = 2, 64, 20
# Random graphs with hubs, and the exponent by which ends are drawn. The first has a few hundred candidates a
# node; the larger hubs of the second, which other benchmarks have too, bring several times as many. The last
# stands for the data set where that is not at hand.
GRAPHS = {
    "100k": (Size("100k", 100_000, 1_100_000), 0.5),
    "100k-hubs": (Size("100k, large hubs", 100_000, 1_100_000), 0.6),
    "squirrel": (Size("Squirrel-like", 5_201, 217_073), 0.6),
}


def make_graph(name: str, device: torch.device) -> tuple[Size, Tensor]:
    """A graph's size and edges."""
    if name == "squirrel":
        with suppress(Node2SeqError):
            data = load("squirrel")
            assert data.edge_index is not None
            return Size("Squirrel", int(data.num_nodes or 0), data.num_edges), data.edge_index.to(device)
    size, exponent = GRAPHS[name]
    return size, power_law(size.nodes, size.edges, device, exponent=exponent)


class Selection:
    """The selection on one graph.

    Args:
        edge_index: The graph's edges.
        nodes: The number of its nodes.
    """

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        self.nodes, self.device = nodes, edge_index.device
        graph = ops.GraphNumbers(1, nodes, nodes, add_self_loops=1, merge_duplicates=1)
        self.sequences = graph.find(edge_index)

    def first(self, key: Tensor, backend: str) -> float:
        """The seconds of the first selection on the graph, which finds the candidates."""
        return seconds_of(self.step(key, backend), self.device)[0]

    def step(self, key: Tensor, backend: str, runs: int = 1) -> Callable[[], Any]:
        """One selection; of so many runs at once."""
        key = key.view(runs, -1, key.size(-1)) if runs > 1 else key
        module = ops.choose_backend(backend, key)
        return lambda: ops.rank(key, key, self.sequences, hops=HOPS, backend=module)


def verify_selection(device: torch.device) -> None:
    """Raise an error unless every backend selects what the reference selects; whole numbers, many ties."""
    nodes = 600
    selection = Selection(power_law(nodes, 4_000, torch.device("cpu")).to(device), nodes)
    generator = torch.Generator().manual_seed(0)
    key = torch.randint(-2, 3, (nodes, 8), generator=generator).float().to(device)
    truth = selection.step(key, "reference")()
    for backend in runnable_backends(device):
        found = selection.step(key, backend)()
        if not all(torch.equal(a, b) for a, b in zip(found, truth, strict=True)):
            raise Node2SeqError(
                f"backend={backend!r}", "it selects other nodes than the reference", "Run the tests"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each case."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to repeat a step")
    options = parser.parse_args(arguments)
    report = Report(options)
    device = report.device
    verify_selection(device)
    for name in options.graphs:
        size, edge_index = make_graph(name, device)
        selection = Selection(edge_index, size.nodes)
        seconds = selection.first(torch.randn(size.nodes, CHANNELS, device=device), options.backend)
        report.header(f"{size.name}: the first selection, which finds the candidates, took {seconds:.2f} s")
        for runs in (1, RUNS) if device.type == "cuda" and name == "squirrel" else (1,):
            torch.manual_seed(0)
            key = torch.randn(runs * size.nodes, CHANNELS, device=device)
            variant = "" if runs == 1 else f"{runs} runs"
            row = BenchmarkRow("selection", *size, "selection", variant, backend=options.backend)
            step = selection.step(key, options.backend, runs)
            report.add(measured(row, step, device, seconds=options.seconds))


if __name__ == "__main__":
    main()

"""Forward + backward of the layer beside GATConv on larger and larger graphs: how does the cost grow?

    python benchmarks/bench_scaling.py                        # 1M to 126M edges on a GPU, to 25M on a CPU
    python benchmarks/bench_scaling.py --largest 5000000

Random graphs with hubs and about 50 edges per node. Prints time, peak memory and their exponents over the
edges by least squares of the logarithms. Running out of memory is a result. Each backend is verified before
it is timed.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from script import Report, argument_parser, copy_bandwidth, growth_exponent

from node2seq.benchmarking.layers import OUT_OF_MEMORY, LayerBenchmark, Size, power_law
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.benchmarking.short import verify_backends

SMALLEST, LARGEST, STEPS, EDGES_A_NODE = 1_000_000, 126_000_000, 6, 52.5
READOUTS = ("max", "mean")


def sizes(largest: int) -> list[Size]:
    """Seven sizes in equal ratios, up to ``largest`` edges."""
    factor = (LARGEST / SMALLEST) ** (1 / STEPS)
    edges = [round(SMALLEST * factor**i, -5) for i in range(STEPS + 1)]
    found = [Size(f"{n / 1e6:g}M edges", round(n / EDGES_A_NODE), int(n)) for n in edges]
    return [size for size in found if size.edges <= largest]


def fits(earlier: BenchmarkRow | None, size: Size, device: torch.device) -> bool:
    """Whether memory suffices, by what the next smaller graph took; a GPU can simply be tried."""
    if device.type == "cuda" or earlier is None:
        return True
    if earlier.peak_bytes is None:
        return earlier.result != OUT_OF_MEMORY
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return earlier.peak_bytes / earlier.edges * size.edges < 0.8 * available


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each size, and the exponents below them."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--largest", type=int, metavar="EDGES", help="edges of the largest graph")
    options = parser.parse_args(arguments)
    report = Report(options)
    device = report.device
    verify_backends(device)
    bandwidth = copy_bandwidth(device)
    rows: dict[str, list[BenchmarkRow]] = {}
    for size in sizes(options.largest or (LARGEST if device.type == "cuda" else LARGEST // 5)):
        report.header(f"{size.name}, {size.nodes:,} nodes", "GATConv")
        edge_index = power_law(size.nodes, size.edges, device)
        for row in measure(LayerBenchmark("scaling", size, edge_index, bandwidth), rows):
            rows.setdefault(row.title(), []).append(report.add(row))
        torch.cuda.empty_cache()
    print()
    for title, own in rows.items():
        known = [row for row in own if row.p50_ms is not None]
        edges = [row.edges for row in known]
        time_grows = growth_exponent(edges, [row.p50_ms or 0 for row in known])
        memory_grows = growth_exponent(edges, [row.peak_bytes or 0 for row in known])
        if time_grows is not None and memory_grows is not None:
            print(f"{title}: time grows with edges^{time_grows:.3f}, memory with edges^{memory_grows:.3f}")


def measure(
    benchmark: LayerBenchmark, earlier: Mapping[str, Sequence[BenchmarkRow]]
) -> Iterator[BenchmarkRow]:
    """GATConv, eager and compiled, and our layer with each readout."""
    last = next(reversed(earlier.get("GATConv", [])), None)
    base = BenchmarkRow("scaling", *benchmark.size, "GATConv", result=OUT_OF_MEMORY)
    if fits(last, benchmark.size, benchmark.device):
        base = benchmark.gat()
    yield base
    yield benchmark.compiled_gat()
    for readout in READOUTS:
        yield benchmark.node2seq(readout, 3, benchmark.auto_backend)


if __name__ == "__main__":
    main()

"""Forward + backward of the layer beside GATConv on ever larger graphs: does the cost grow with the edges?

    python benchmarks/bench_scaling.py                        # 1M to 126M edges on a GPU, to 25M on a CPU
    python benchmarks/bench_scaling.py --largest 5000000

Random graphs with hubs and some 50 edges a node. Prints time, peak memory and their exponents over the edges
by least squares of the logarithms. Running out of memory is a result. Nothing is reported of a backend that
differs from the reference.
"""

import argparse
from pathlib import Path

import torch

from node2seq.benchmarking.agreement import refuse_if_wrong, runnable_backends
from node2seq.benchmarking.graphs import Size, power_law
from node2seq.benchmarking.layers import OUT_OF_MEMORY, Stage
from node2seq.benchmarking.rows import Row, add_arguments, keep
from node2seq.benchmarking.short import picked_backend
from node2seq.benchmarking.timing import copy_bandwidth, growth_exponent
from node2seq.environment import pick_device

SMALLEST, LARGEST, STEPS, EDGES_A_NODE = 1_000_000, 126_000_000, 6, 52.5
READOUTS = ("max", "mean")
SECONDS = 1.0


def sizes(largest: int) -> list[Size]:
    """Seven sizes, each as many times larger than the one before, as far as ``largest``."""
    factor = (LARGEST / SMALLEST) ** (1 / STEPS)
    edges = [round(SMALLEST * factor**i, -5) for i in range(STEPS + 1)]
    found = [Size(f"{n / 1e6:g}M edges", round(n / EDGES_A_NODE), int(n)) for n in edges]
    return [size for size in found if size.edges <= largest]


def fits(earlier: Row | None, size: Size, device: torch.device) -> bool:
    """Whether memory suffices, as the next smaller graph tells; a GPU says so itself and harms nobody."""
    if device.type == "cuda" or earlier is None:
        return True
    if earlier.peak_bytes is None:
        return earlier.result != OUT_OF_MEMORY
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return earlier.peak_bytes / earlier.edges * size.edges < 0.8 * available


def measure_at(size: Size, earlier: dict[str, Row], device: torch.device, bandwidth: float) -> dict[str, Row]:
    """A row for GATConv and for each readout, by name."""
    stage = Stage("scaling", size, power_law(size.nodes, size.edges, device), bandwidth)
    backend = picked_backend(stage)
    none_fits = Row("scaling", *size, "GATConv", result=OUT_OF_MEMORY)
    base = stage.gat(seconds=SECONDS) if fits(earlier.get("GATConv"), size, device) else none_fits
    found = {"GATConv": base}
    for readout in READOUTS:
        row = stage.node2seq(readout, 3, seconds=SECONDS, backend=backend)
        found[readout] = row.beside(base)
    return found


def main() -> None:
    """Prints a table, and the exponents below it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--largest", type=int, help="edges at most")
    add_arguments(parser, Path(__file__).with_name("rows.jsonl"))
    options = parser.parse_args()
    device = pick_device(options.device)
    largest = options.largest or (LARGEST if device.type == "cuda" else LARGEST // 5)
    refuse_if_wrong(runnable_backends(device), device)
    bandwidth = copy_bandwidth(device)
    print(f"{'':10}{'':24}{'ms':>10}{'× GATConv':>12}{'GiB':>10}{'× GATConv':>12}{'of bound':>10}")
    series: list[dict[str, Row]] = []
    for size in sizes(largest):
        found = measure_at(size, series[-1] if series else {}, device, bandwidth)
        for row in found.values():
            show(row)
        series.append(found)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    for name in series[0]:
        rows = [found[name] for found in series if found[name].p50_ms is not None]
        time_grows = growth_exponent([r.edges for r in rows], [r.p50_ms or 0 for r in rows])
        memory_grows = growth_exponent([r.edges for r in rows], [r.peak_bytes or 0 for r in rows])
        if time_grows is not None and memory_grows is not None:
            print(f"{name}: time grows with edges^{time_grows:.3f}, memory with edges^{memory_grows:.3f}")
    keep([row for found in series for row in found.values()], options, device)


def show(row: Row) -> None:
    """A line of the table."""
    if row.p50_ms is None:
        print(f"{row.graph:12}{row.title():22}{row.result:>10}", flush=True)
        return
    ratio, peak_ratio, share = (
        "" if value is None else f"{value:.3f}" for value in (row.ratio, row.peak_ratio, row.bound_share)
    )
    gib = "" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.3f}"
    print(
        f"{row.graph:12}{row.title():22}{row.p50_ms:10.2f}{ratio:>12}{gib:>10}{peak_ratio:>12}{share:>10}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""Render the performance page and its charts from the rows alone: the same rows give the same bytes.

python benchmarks/render.py          # benchmarks/rows.jsonl → docs/performance.md, docs/cluster.md and charts
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from cost_model import full_batch, write_page
from script import growth_exponent

from node2seq.benchmarking.layers import CHANNELS
from node2seq.benchmarking.rows import StoredRow, device_title, number_text, read_rows, table_of
from node2seq.experiments.paper import grouped
from node2seq.reporting.charts import Curve, loglog_chart
from node2seq.reporting.document import Block, Bullets, Chart, Grid, Heading, Paragraph, to_markdown
from node2seq.storage import make_folder, write_bytes

ROOT = Path(__file__).parents[1]
Files = dict[str, str]

_INTRODUCTION = (
    f"All times are exact float32, with {CHANNELS} channels in and out unless a table says otherwise; lines "
    "named “bfloat16” run under autocast and are compared with float32. Times "
    "are medians, with the 20th and the 80th percentile in parentheses. Ratios are to the layer or network "
    "of PyTorch Geometric in the first line of the table, measured in the same run on the same graph; lower "
    "is better. Memory is what a step allocates at its peak, on top of what was allocated before. The gather "
    "bound is the time to copy as many bytes as the layer gathers, reading each row from memory once; small "
    "graphs fit into a cache and can exceed it. Every backend is verified against the reference before it is "
    "timed."
)
_SECTIONS = {
    "layer": (
        "The layer",
        "Forward + backward, compared with PyG's GATConv with one head. The plan of a graph is built once "
        "and cached, as during training; “plan anew” builds it in every step.",
    ),
    "batches": (
        "Batches of small graphs",
        "One step of the layer over a batch of random graphs of 30 nodes each, compared with PyG's GATConv "
        "with one head. Where every graph is new, its plan is built in every step. “Plain PyTorch” is what "
        "runs without numba and Triton.",
    ),
    "scaling": (
        "Scaling with the number of edges",
        "Random graphs with hubs and the same number of edges per node. The exponents of time and memory "
        "over the edges are fitted by least squares of the logarithms.",
    ),
    "epoch": (
        "A training step",
        "Forward, loss, backward and Adam, compared with PyG's two-layer GAT with 8 heads of 8 channels. "
        "“Captured” networks are replayed as a CUDA graph.",
    ),
    "large": (
        "An epoch on large graphs",
        "Random graphs with hubs, 64 features, one node in a hundred for training: forward, loss, backward "
        "and Adam of the whole network with three layers. Mini-batches have 1,024 training nodes and at most "
        "10 neighbours of each node in three hops. “Ready” are the same steps on batches that are there "
        "already; “plans anew” builds the plan of each batch, as training does. How much of the time the GPU "
        "works is what a profiler counts. With two hops the first epoch finds the candidates and compiles "
        "kernels, and its memory is that of the candidates too; “walks” are candidates that are drawn.",
    ),
    "together": (
        "Many runs as one program",
        "All trainings from the untrained models to their metrics. A few single runs are timed, and their "
        "time is scaled to the number of runs.",
    ),
    "selection": (
        "Non-local selection",
        "One forward pass of the exact adaptive selection within two hops, with known candidates.",
    ),
    "sampler": (
        "Drawing mini-batches",
        "Batches of 1,024 seed nodes of a random graph, with at most 10 neighbours of each node in two hops, "
        "on one thread. “With features” is an epoch by warm workers that also read 64 features of each node.",
    ),
    "store": (
        "A graph larger than memory",
        "A power-law graph with 64 float16 features as Parquet files, and a tenth of it as CSV files with "
        "string ids, by the commands `data convert`, `train --store` and `predict`, from start to end. One "
        "node in a hundred is trained on. Memory is anonymous resident memory; the last line is the disk "
        "that input, store and temporary files take at most.",
    ),
    "ops": ("Single operations", "The steps of the layer one by one."),
    "determinism": (
        "Determinism",
        "Two processes train from the same seed on one device at the same time. Their weights after the last "
        "epoch are compared bit for bit.",
    ),
}
_COMPILED = " “Compiled” is GATConv under `torch.compile`, with its self loops added beforehand."
_COMMANDS = (
    "`python benchmarks/bench_conv.py`: the layer on a CPU",
    "`python benchmarks/bench_ops.py`: the layer and its operations on a GPU",
    "`python benchmarks/bench_batches.py`: batches of small graphs",
    "`python benchmarks/bench_scaling.py`: scaling with the number of edges",
    "`python benchmarks/bench_epoch.py`: a training step",
    "`python benchmarks/bench_large.py`: an epoch on large graphs",
    "`python benchmarks/bench_together.py`: many runs as one program",
    "`python benchmarks/bench_selection.py`: non-local selection",
    "`python benchmarks/bench_sampler.py`: drawing mini-batches",
    "`python benchmarks/bench_store.py --folder FOLDER`: a graph larger than memory",
    "`python benchmarks/bench_determinism.py`: determinism",
    "`python benchmarks/bench_versions.py OLD`: another checkout against this one; it keeps no rows",
    "`node2seq bench`: a short version on your machine, which also shows the backend that is chosen there",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page and prints what it wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=Path, default=ROOT / "benchmarks" / "rows.jsonl")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args(arguments)
    make_folder(options.docs)
    cluster, rows = options.docs / "cluster.md", read_rows(options.rows)
    for name, text in render(rows).items():
        write_bytes(options.docs / name, text.encode())
        print(options.docs / name)
    if cluster.exists() and full_batch(rows):
        write_page(cluster, rows)


def render(rows: Sequence[StoredRow]) -> Files:
    """The page and its charts by file name."""
    charts: Files = {}
    blocks: list[Block] = [Heading("Performance", 1), Paragraph(_INTRODUCTION)]
    for bench, (title, text) in _SECTIONS.items():
        own = [row for row in rows if row.bench == bench]
        if not own:
            continue
        note = _COMPILED if any(row.compiled_ratio for row in own) else ""
        blocks += [Heading(title), Paragraph(text + note)]
        for device, measured in grouped(own, device_title).items():
            blocks.append(Heading(device, 3))
            blocks += _section(bench, device, measured, charts)
    blocks += _machines([row for row in rows if row.bench in _SECTIONS])
    blocks += [Heading("Reproduce it"), Bullets(_COMMANDS)]
    blocks.append(
        Paragraph(
            "The scripts append rows to `benchmarks/rows.jsonl`. The newest row of a case counts. "
            "`python benchmarks/render.py` writes this page from the rows."
        )
    )
    return {"performance.md": to_markdown(blocks), **charts}


def _section(bench: str, device: str, rows: Sequence[StoredRow], charts: Files) -> list[Block]:
    if bench == "determinism":
        return [_same_bits(rows)]
    if bench == "scaling":
        return _scaling(device, rows, charts)
    blocks: list[Block] = []
    for graph, measured in grouped(rows, lambda row: row.graph).items():
        first = measured[0]
        blocks.append(Paragraph(f"{graph}: {first.nodes:,} nodes, {first.edges:,} edges"))
        blocks.append(Grid(*table_of(measured)))
    return blocks


def _scaling(device: str, rows: Sequence[StoredRow], charts: Files) -> list[Block]:
    rows = sorted(rows, key=lambda row: row.edges)
    cases = grouped(rows, StoredRow.title).items()
    lines = []
    for title, own in cases:
        known = [row for row in own if row.p50_ms is not None and row.peak_bytes]
        edges = [row.edges for row in known]
        exponents = [
            growth_exponent(edges, [getattr(row, cost) for row in known]) for cost in ("p50_ms", "peak_bytes")
        ]
        if None not in exponents:
            largest = f"{max(edges):,}"
            lines.append([title, largest, *(number_text(exponent, ".3f") for exponent in exponents)])
    blocks: list[Block] = []
    if lines:
        blocks.append(Grid(["", "edges up to", "exponent of the time", "exponent of the memory"], lines))
    for name, cost, unit, scale in (("time", "p50_ms", "ms", 1), ("memory", "peak_bytes", "GiB", 2**30)):
        curves = []
        for title, own in cases:
            points = [(row.edges, getattr(row, cost) / scale) for row in own if getattr(row, cost)]
            if points:
                x, y = zip(*points, strict=True)
                curves.append(Curve(title.replace("Node2SeqConv", "Node2Seq"), y, x))
        if curves:
            heading = f"{name.capitalize()} of forward + backward: {device}"
            file = f"performance-{name}-{_slug(device)}.svg"
            charts[file] = loglog_chart(heading, curves, "edges", unit)
            blocks.append(Chart(charts[file], heading, file))
    sizes = {"edges": lambda row: f"{row.edges:,}", "nodes": lambda row: f"{row.nodes:,}"}
    return [*blocks, Grid(*table_of(rows, sizes))]


def _same_bits(rows: Sequence[StoredRow]) -> Grid:
    columns = grouped(rows, lambda row: ", ".join(filter(None, [row.graph, row.variant]))).items()
    found = {(title, row.case): row.result or "" for title, own in columns for row in own}
    cases = dict.fromkeys(row.case for row in rows)
    titles = [title for title, _ in columns]
    return Grid(
        ["", *titles], [[case, *(found.get((title, case), "") for title in titles)] for case in cases]
    )


def _machines(rows: Sequence[StoredRow]) -> list[Block]:
    if not rows:
        return [Paragraph("There are no rows yet.")]
    lines = []
    for device, own in grouped(rows, device_title).items():
        for commit, measured in grouped(own, lambda row: row.commit or "unknown").items():
            versions = dict.fromkeys(
                ", ".join(f"{name} {version}" for name, version in row.versions.items()) for row in measured
            )
            dates = [row.date[:10] for row in measured]
            mark = "+" if commit.endswith("+") else ""
            benches = ", ".join(dict.fromkeys(row.bench for row in measured))
            lines.append([device, benches, "\n".join(versions), f"`{commit[:10]}{mark}`", max(dates)])
    return [
        Heading("Machines and versions"),
        Paragraph("A + after a commit marks uncommitted changes."),
        Grid(["device", "benchmarks", "versions", "commit", "date"], lines),
    ]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


if __name__ == "__main__":
    main()

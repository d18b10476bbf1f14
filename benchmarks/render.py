"""The performance page and its charts, from the rows and nothing else: the same rows give the same bytes.

python benchmarks/render.py                      # benchmarks/rows.jsonl → docs/performance.md and charts
"""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from node2seq.benchmarking.layers import CHANNELS
from node2seq.benchmarking.rows import StoredRow, device_title, number_text, read_rows, table_of
from node2seq.benchmarking.timing import growth_exponent
from node2seq.reporting.charts import Curve, loglog_chart
from node2seq.reporting.document import Block, Bullets, Chart, Grid, Heading, Paragraph, to_markdown
from node2seq.storage.files import make_folder, write_bytes

ROOT = Path(__file__).parents[1]
Files = dict[str, str]

_INTRODUCTION = (
    f"Exact float32, {CHANNELS} channels in and out unless a table says otherwise; medians, with the 20th "
    "and the 80th percentile in parentheses. A ratio is to PyTorch Geometric's layer or network that leads "
    "the table, measured in the same run on the same graph: lower is better. Memory is what a step adds at "
    "its peak to what is held before it. The gather bound is the time that it takes to copy as many bytes as "
    "the layer gathers, each row from memory once; small graphs, which stay in a cache, can pass it. A "
    "benchmark reports nothing while its backend differs from the reference."
)
_SECTIONS = {
    "layer": (
        "The layer",
        "Forward + backward beside PyG's GATConv with one head. The plan of the graph is built once and "
        "found again, as over the epochs of a training; “plan anew” builds it in every step.",
    ),
    "scaling": (
        "Over the edges",
        "Random graphs with hubs, each with as many edges a node. The exponent is that of the time and of "
        "the memory over the edges, by least squares of the logarithms.",
    ),
    "epoch": (
        "A training step",
        "Forward, loss, backward and Adam, beside PyG's two-layer GAT with 8 heads of 8 channels as its "
        "users run it. “Captured” is replayed as a CUDA graph, GAT too.",
    ),
    "together": (
        "Many runs as one program",
        "All trainings from the untrained models to their measured results; single runs are timed for a "
        "few and counted up.",
    ),
    "selection": (
        "Non-local selection",
        "One forward of the adaptive selection within two hops, exact, its candidates found before.",
    ),
    "ops": ("Single operations", "The steps of the layer one by one."),
    "determinism": (
        "The same seed, the same bits",
        "Two processes train from the same seed on one device at the same time; their weights after the last "
        "epoch are compared bit by bit.",
    ),
}
_COMMANDS = (
    "`python benchmarks/bench_conv.py`: the layer on a CPU",
    "`python benchmarks/bench_ops.py`: the layer and its operations on a GPU",
    "`python benchmarks/bench_scaling.py`: over the edges",
    "`python benchmarks/bench_epoch.py`: a training step",
    "`python benchmarks/bench_together.py`: many runs as one program",
    "`python benchmarks/bench_selection.py`: non-local selection",
    "`python benchmarks/bench_determinism.py`: the same seed, the same bits",
    "`node2seq bench`: a short version on your machine, which also says which backend is taken there",
)


def main() -> None:
    """Writes the page and prints what it wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=Path, default=ROOT / "benchmarks" / "rows.jsonl")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    make_folder(options.docs)
    for name, text in render(read_rows(options.rows)).items():
        write_bytes(options.docs / name, text.encode())
        print(options.docs / name)


def render(rows: Sequence[StoredRow]) -> Files:
    """The page and its charts by file name."""
    charts: Files = {}
    blocks: list[Block] = [Heading("Performance", 1), Paragraph(_INTRODUCTION)]
    for bench, (title, text) in _SECTIONS.items():
        own = [row for row in rows if row.bench == bench]
        if not own:
            continue
        blocks += [Heading(title), Paragraph(text)]
        for device, measured in _groups(own, device_title):
            blocks.append(Heading(device, 3))
            blocks += _section(bench, device, measured, charts)
    blocks += _machines([row for row in rows if row.bench in _SECTIONS])
    blocks += [Heading("Make it again"), Bullets(_COMMANDS)]
    blocks.append(
        Paragraph(
            "Each appends its rows to `benchmarks/rows.jsonl`, of which the newest of a case counts; "
            "`python benchmarks/render.py` writes this page."
        )
    )
    return {"performance.md": to_markdown(blocks), **charts}


def _section(bench: str, device: str, rows: Sequence[StoredRow], charts: Files) -> list[Block]:
    if bench == "determinism":
        return [_same_bits(rows)]
    if bench == "scaling":
        return _scaling(device, rows, charts)
    blocks: list[Block] = []
    for graph, measured in _groups(rows, lambda row: row.graph):
        first = measured[0]
        blocks.append(Paragraph(f"{graph}: {first.nodes:,} nodes, {first.edges:,} edges"))
        blocks.append(Grid(*table_of(measured)))
    return blocks


def _scaling(device: str, rows: Sequence[StoredRow], charts: Files) -> list[Block]:
    rows = sorted(rows, key=lambda row: row.edges)
    cases = _groups(rows, StoredRow.title)
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
    columns = _groups(rows, lambda row: ", ".join(filter(None, [row.graph, row.variant])))
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
    for device, own in _groups(rows, device_title):
        for commit, measured in _groups(own, lambda row: row.commit or "unknown"):
            versions = dict.fromkeys(
                ", ".join(f"{name} {version}" for name, version in row.versions.items()) for row in measured
            )
            dates = [row.date[:10] for row in measured]
            mark = "+" if commit.endswith("+") else ""
            benches = ", ".join(dict.fromkeys(row.bench for row in measured))
            lines.append([device, benches, "\n".join(versions), f"`{commit[:10]}{mark}`", max(dates)])
    return [
        Heading("What the rows were made with"),
        Paragraph("A + behind a commit marks changes that were not committed yet."),
        Grid(["device", "benchmarks", "versions", "commit", "date"], lines),
    ]


def _groups(rows: Iterable[StoredRow], key: Callable[[StoredRow], str]) -> list[tuple[str, list[StoredRow]]]:
    """Rows of equal key, keys and rows in the order in which they come."""
    found: dict[str, list[StoredRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.items())


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


if __name__ == "__main__":
    main()

"""Time and memory up to ten billion edges, from the rows of large graphs: a part of docs/cluster.md.

python benchmarks/cost_model.py                  # benchmarks/rows.jsonl → docs/cluster.md and its charts
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from script import write_between

from node2seq.benchmarking.rows import StoredRow, read_rows
from node2seq.reporting.charts import Curve, loglog_chart
from node2seq.reporting.document import Block, Chart, Grid, Paragraph, to_markdown
from node2seq.storage import write_bytes

ROOT = Path(__file__).parents[1]
START, END = "<!-- rows -->", "<!-- end of rows -->"
SIZES = (10**7, 10**8, 10**9, 10**10)
# Of the measured graphs: edges for each node, float32 features, one node in so many for training.
EDGES_PER_NODE, FEATURES, TRAINED_SHARE = 50, 64, 100
GIB = 2**30
GPU_GIB = {"80 GB": 80e9 / GIB, "141 GB": 141e9 / GIB}


@dataclass(frozen=True)
class Model:
    """What an epoch costs for each edge or training node, by the largest graph that was measured.

    Args:
        milliseconds: Of a full-batch epoch, for each edge, by readout.
        peak_bytes: Of a full-batch step, for each edge, by readout; the graph itself comes on top.
        batch_milliseconds: Of an epoch on mini-batches, for each training node.
        ready_milliseconds: The same where batches need not be drawn.
        drawn_by: What drew them, in words.
    """

    milliseconds: dict[str, float]
    peak_bytes: dict[str, float]
    batch_milliseconds: float
    ready_milliseconds: float
    drawn_by: str


def full_batch(rows: Sequence[StoredRow]) -> list[StoredRow]:
    """The full-batch epochs of one-hop networks, by size."""
    found = [row for row in rows if (row.bench, row.case, row.variant) == ("large", "Node2Seq", "full batch")]
    return sorted(found, key=lambda row: row.edges)


def fit(rows: Sequence[StoredRow]) -> Model:
    """Costs in proportion to edges, at the rate of the largest graph, since smaller ones fit into caches."""
    largest = {row.readout or "": row for row in full_batch(rows)}
    timed = [row for row in rows if row.bench == "large" and row.p50_ms is not None]
    drawn = min((row for row in timed if row.variant.startswith("mini-batches")), key=_ms)
    ready = next(row for row in timed if row.variant.endswith("ready"))
    return Model(
        {name: _ms(row) / row.edges for name, row in largest.items()},
        {name: (row.peak_bytes or 0) / row.edges for name, row in largest.items()},
        _ms(drawn) / (drawn.nodes / TRAINED_SHARE),
        _ms(ready) / (ready.nodes / TRAINED_SHARE),
        drawn.variant.partition(", ")[2],
    )


def _ms(row: StoredRow) -> float:
    assert row.p50_ms is not None
    return row.p50_ms


def graph_bytes(edges: float) -> float:
    """Edges as two whole numbers of 8 bytes, and float32 features."""
    return 16 * edges + 4 * FEATURES * edges / EDGES_PER_NODE


def array_bytes(edges: float) -> float:
    """What mini-batches are drawn from: sources and starts by target, features, degrees."""
    nodes = edges / EDGES_PER_NODE
    return 8 * edges + (8 + 8 + 4 * FEATURES) * nodes


def _header(model: Model) -> list[str]:
    names = ["edges", "nodes"]
    for readout in sorted(model.milliseconds):
        names += [f"full batch, {readout}: GiB", "s an epoch"]
    names += [f"fits {name}" for name in GPU_GIB]
    return [*names, "arrays for mini-batches: GiB", "s an epoch", "if drawn in time"]


def _costs(model: Model, edges: int) -> list[str]:
    """The line of a graph with so many edges, cell by cell as in :func:`_header`."""
    cells, smallest = [f"{edges:,}", f"{edges // EDGES_PER_NODE:,}"], math.inf
    for readout in sorted(model.milliseconds):
        size = (model.peak_bytes[readout] * edges + graph_bytes(edges)) / GIB
        cells += [_number(size), _number(model.milliseconds[readout] * edges / 1e3)]
        smallest = min(smallest, size)
    trained = edges / EDGES_PER_NODE / TRAINED_SHARE / 1e3
    cells += ["yes" if smallest <= size else "no" for size in GPU_GIB.values()]
    figures = (
        array_bytes(edges) / GIB,
        model.batch_milliseconds * trained,
        model.ready_milliseconds * trained,
    )
    return [*cells, *map(_number, figures)]


def render(rows: Sequence[StoredRow]) -> dict[str, str]:
    """The part of the page, and its charts by file name."""
    model, measured = fit(rows), full_batch(rows)
    points = [
        [
            f"{row.edges:,}",
            row.readout or "",
            f"{_ms(row) / 1e3:.3f}",
            f"{model.milliseconds[row.readout or ''] * row.edges / 1e3:.3f}",
            f"{(row.peak_bytes or 0) / GIB:.1f}",
            f"{model.peak_bytes[row.readout or ''] * row.edges / GIB:.1f}",
        ]
        for row in measured
    ]
    ready = model.ready_milliseconds / model.batch_milliseconds
    drawn = (
        f"With {model.drawn_by} the device waited {100 * (1 - ready):.0f} % of the time: there, more workers "
        "help before further GPUs do."
    )
    if "workers" not in model.drawn_by:
        drawn = (
            f"Batches {model.drawn_by} take {100 * (1 / ready - 1):.0f} % longer: they are drawn, and the "
            "plan of each is built."
        )
    device = " and ".join(dict.fromkeys(row.device for row in measured))
    charts = {
        "cluster-memory.svg": _chart("Memory of the full batch", "GiB", model.peak_bytes, measured, GIB),
        "cluster-time.svg": _chart("Seconds of a full-batch epoch", "s", model.milliseconds, measured, 1e3),
    }
    blocks: list[Block] = [
        Paragraph(
            f"Measured on one {device}: the network of three layers with {FEATURES} channels, "
            f"{EDGES_PER_NODE} edges for each node, {FEATURES} features, one node in {TRAINED_SHARE} for "
            "training. The cost of the full batch is taken in proportion to the edges, that of mini-batches "
            "in proportion to the training nodes, at the rate of the largest graph that was measured. The "
            "GiB of the full batch are those of a step and of the graph itself."
        ),
        Grid(_header(model), [_costs(model, edges) for edges in SIZES]),
        Paragraph(f"“If drawn in time” is an epoch on batches that wait on the device. {drawn}"),
        Paragraph("The measured points, and what the model says of them:"),
        Grid(["edges", "readout", "s an epoch", "model", "GiB of a step", "model"], points),
        *(Chart(text, name.partition(".")[0], name) for name, text in charts.items()),
    ]
    return {"": to_markdown(blocks), **charts}


def _chart(title: str, unit: str, rates: dict[str, float], rows: Sequence[StoredRow], scale: float) -> str:
    """The model as lines from the smallest measured graph on, and the measured points."""
    curves = []
    for readout, rate in sorted(rates.items()):
        own = [row for row in rows if row.readout == readout]
        values = [_ms(row) if unit == "s" else row.peak_bytes or 0 for row in own]
        curves.append(Curve(f"{readout}, model", [rate * edges / scale for edges in SIZES], SIZES))
        curves.append(Curve(f"{readout}, measured", [v / scale for v in values], [row.edges for row in own]))
    return loglog_chart(title, curves, "edges", unit)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def write_page(page: Path, rows: Sequence[StoredRow]) -> None:
    """Replace the part of the page, and its charts beside it."""
    files = render(rows)
    write_between(page, START, END, files.pop(""))
    for name, text in files.items():
        write_bytes(page.parent / name, text.encode())


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=Path, default=ROOT / "benchmarks" / "rows.jsonl")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "cluster.md")
    options = parser.parse_args(arguments)
    write_page(options.page, read_rows(options.rows))


if __name__ == "__main__":
    main()

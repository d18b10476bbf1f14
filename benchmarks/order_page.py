"""The page "When does the order matter?", rendered from the rows of `study_order.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from order_tasks import TASKS
from script import interval, table, words

from node2seq.experiments.samples import Paired, Sample, paired
from node2seq.options import listed
from node2seq.reporting.charts import Dots, dot_chart

BITCOIN, COLUMNS = "bitcoin-otc", "columns"
#: Test figures in percent by layer, and these by graph.
Layers = Mapping[str, Sample]
Samples = dict[str, dict[str, Sample]]

#: What each layer is, in the order of the tables.
MEANINGS = {
    "soft ranks": "a matrix for each of the first three ranks, learned by attention with a gradient",
    "soft ranks, 4 heads": "four such orders side by side, a quarter of the channels each",
    "soft ranks, shared scores": "scored by the rows themselves, without projections for that alone",
    "soft ranks, told the age": "the same, with the age of each neighbour as an edge attribute",
    "hard ranks, given": "a matrix for each of the first three ranks, in the order that the data has",
    "hard ranks, attention": "the same by attention, without a gradient to the order",
    "hard ranks, degree": "the same by degree",
    "hard ranks, random": "the same in a random order",
    "paper, max": "the paper's layer by attention, maximum over windows of three",
    "paper, mean": "the paper's layer by attention, mean over windows of three",
    "paper, max, given": "the paper's layer with maximum, in the order that the data has",
    "paper, max, degree": "the paper's layer with maximum, by degree",
    "paper, max, random": "the paper's layer with maximum, in a random order",
    "attention": "dot-product attention of four heads beside the mean: ranks with one soft rank",
    "attention, told the age": "the same, with the age of each neighbour as an edge attribute",
    "gat": "GATConv with four heads",
    "mean": "the mean of the neighbours, as in GraphSAGE: no order",
    "pna": "mean, standard deviation and maximum, as in PNA without its scalers: no order",
}
# Layers that are given the order, or learn one with a gradient to each rank: not among those to beat.
_ORDERED = (
    "soft ranks",
    "soft ranks, 4 heads",
    "soft ranks, shared scores",
    "hard ranks, given",
    "paper, max, given",
)
_PAIRS = (
    ("soft ranks", "hard ranks, random"),
    ("hard ranks, attention", "hard ranks, random"),
    ("hard ranks, degree", "hard ranks, random"),
    ("paper, max", "paper, max, random"),
    ("paper, max, degree", "paper, max, random"),
    ("soft ranks", "paper, max"),
    ("soft ranks", "mean"),
)


def samples_of(rows: Iterable[Mapping[str, Any]], part: str) -> Samples:
    """The test figures of a part."""
    tests: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        if row["stage"] == "measure" and row["part"] == part and "test" in row:
            tests.setdefault(row["graph"], {}).setdefault(row["layer"], {})[row["seed"]] = 100 * row["test"]
    return {graph: {name: Sample(own) for name, own in layers.items()} for graph, layers in tests.items()}


def difference(layers: Layers, first: str, second: str) -> Paired | None:
    """One layer minus another; None where one of them has no runs."""
    return paired(layers.get(first), layers.get(second))


def write_page(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the page, and the chart beside it."""
    chart = path.with_suffix(".svg")
    dots = chart_of(rows)
    if dots is not None:
        chart.write_text(dots, encoding="utf-8")
    path.write_text(page(rows, chart.name if dots is not None else None), encoding="utf-8")


def page(rows: Sequence[Mapping[str, Any]], chart: str | None = None) -> str:
    """What the rows say, as Markdown."""
    drawn, otc, columns = (samples_of(rows, part) for part in ("drawn", BITCOIN, COLUMNS))
    found = otc.get(BITCOIN, {})
    said = [*_about_drawn(drawn), *_about_bitcoin(found), *_about_columns(columns)]
    lines = ["# When does the order matter?", "", *_lead(drawn, found, columns)]
    lines += [f"- {sentence}" for sentence in said]
    if chart is not None:
        lines += ["", f"![Test figures of each layer, with 95 % intervals]({chart})"]
    lines += ["", _HOW, *_drawn_tables(drawn), *_bitcoin_table(found, rows), *_column_tables(columns)]
    lines += _settings(rows)
    return "\n".join(lines).rstrip() + "\n"


def _lead(drawn: Samples, found: Layers, columns: Samples) -> list[str]:
    """Where an order is above the others, level or below, in one paragraph."""
    said = []
    gaps = [gap for _, gap in _against_the_best(drawn).values()]
    if gaps:
        above, below = (sum(gap.side == side for gap in gaps) for side in (1, -1))
        said.append(
            f"On {above} of {len(gaps)} drawn tasks about an order, soft ranks, which learn it with a "
            "gradient, are above every layer that is not given the order; on "
            f"{below} they are below the best of these."
        )
    gap = difference(found, "hard ranks, given", "hard ranks, random")
    if gap is not None:
        said.append(f"On `{BITCOIN}`, ranks by time are {words(gap)} the same ranks in a random order.")
    pairs = [_pooled(columns, *pair) for pair in _PAIRS if pair[1].endswith("random")]
    sides = [pair.side for pair in pairs if pair is not None]
    if sides:
        said.append(
            f"On the paper's columns together, of {len(sides)} orders compared with a random one "
            f"{sides.count(1)} are above it, {sides.count(-1)} below and {sides.count(0)} level."
        )
    return [" ".join(said), ""] if said else ["There are no runs yet."]


def _against_the_best(drawn: Samples) -> dict[str, tuple[str, Paired]]:
    """By task: the best layer that neither learns ranks with a gradient nor is given the order; soft ranks
    minus it.
    """
    found = {}
    for task, by_layer in drawn.items():
        others = {name: runs for name, runs in by_layer.items() if name not in _ORDERED}
        best = max(others, key=lambda name: others[name].mean, default="")
        gap = difference(by_layer, "soft ranks", best)
        if gap is not None:
            found[task] = best, gap
    return found


def _about_drawn(drawn: Samples) -> list[str]:
    """One sentence for each task: soft ranks against the best of the layers that have no such order."""
    return [
        f"**{TASKS[task][0].upper()}{TASKS[task][1:]}** (drawn graphs): soft ranks reach "
        f"{drawn[task]['soft ranks'].mean:.1f} %. They are {words(gap)} the best layer without such an "
        f"order, *{best}* with {drawn[task][best].mean:.1f} %: {interval(gap)} points."
        for task, (best, gap) in _against_the_best(drawn).items()
    ]


def _about_bitcoin(found: Layers) -> list[str]:
    """What a given order is worth where the data has one, and what a learned one is."""
    said = []
    for first, what, others in (
        ("hard ranks, given", "ranks by time", ("hard ranks, random", "attention", "pna", "mean")),
        ("soft ranks", "soft ranks, whose order is learned,", ("hard ranks, random", "attention", "mean")),
        ("hard ranks, given", "ranks by time", ("attention, told the age", "soft ranks, told the age")),
    ):
        gaps = [(name, difference(found, first, name)) for name in others]
        parts = [f"{words(gap)} *{name}* ({interval(gap)})" for name, gap in gaps if gap is not None]
        if parts:
            said.append(
                f"**Is a rating negative?** (`{BITCOIN}`, ROC-AUC): {what} reach {found[first].mean:.1f}. "
                f"That is {listed(parts)}."
            )
    return said


def _about_columns(columns: Samples) -> list[str]:
    """Each order against a random one, and ranks against the mean, over the paper's columns."""
    said = []
    for first, second in _PAIRS:
        gaps = [gap for runs in columns.values() if (gap := difference(runs, first, second)) is not None]
        pooled = _pooled(columns, first, second)
        if gaps and pooled is not None:
            above, below = (sum(gap.side == side for gap in gaps) for side in (1, -1))
            said.append(
                f"**The paper's columns**: *{first}* is {words(pooled)} *{second}*, {interval(pooled)} "
                f"points over {len(gaps)} columns together; of the {len(gaps)} intervals {above} lie above "
                f"zero and {below} below."
            )
    return said


def _pooled(columns: Samples, first: str, second: str) -> Paired | None:
    """The difference of the means over columns, seed by seed."""
    both = [runs for runs in columns.values() if first in runs and second in runs]
    shared = [runs[name].tests.keys() for runs in both for name in (first, second)]
    seeds = set(shared[0]).intersection(*shared) if shared else set()
    means = [
        Sample({seed: float(np.mean([runs[name].tests[seed] for runs in both])) for seed in seeds})
        for name in (first, second)
    ]
    return paired(*means)


_HOW = """Figures are means ± standard deviations over seeds. A seed decides about the split (and the drawn
graph), the initial weights and the dropout. Differences are of pairs with the same seed, with 95 %
t-intervals, without correction for their number. The epoch is chosen on validation nodes, by the same metric.
All rows are in `results/order.jsonl`, none left out; `python benchmarks/study_order.py` makes them and this
page."""


def _drawn_tables(drawn: Samples) -> list[str]:
    if not drawn:
        return []
    told = (
        "Graphs of 4,000 nodes (`benchmarks/order_tasks.py`) whose label follows from the order of a "
        "node's neighbours by a key that is hidden in the features; in the last task by an inner product of "
        "both nodes' features. There are four classes. Each network is a dense layer, one of these layers "
        "beside the node's own features, and two dense layers. Test accuracy in %:"
    )
    titles = [TASKS[task] for task in drawn]
    figures = [
        (name, meaning, *(_figure(by_layer.get(name)) for by_layer in drawn.values()))
        for name, meaning in MEANINGS.items()
    ]
    gaps = {name: [difference(runs, "soft ranks", name) for runs in drawn.values()] for name in MEANINGS}
    lines = ((name, *map(interval, own)) for name, own in gaps.items() if name != "soft ranks" and any(own))
    return [
        *("", "## Labels that are about an order", "", told, ""),
        *table(("layer", "what it is", *titles), (line for line in figures if any(line[2:]))),
        *("", "Soft ranks minus each of the others, in points:", ""),
        *table(("layer", *titles), lines),
    ]


def _bitcoin_table(found: Layers, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not found:
        return []
    told = (
        f"`{BITCOIN}` (`node2seq/data/bitcoin_otc.py`): nodes are ratings among members of a trading "
        "platform, neighbours the latest earlier ratings of the same member, 20 at most. The given order is "
        "the latest first. The first 60 % by time train, the last 20 % test. The split is the same for all "
        "seeds. Test ROC-AUC in %, and differences from ranks in a random order and from ranks by time:"
    )
    bases = ("hard ranks, random", "hard ranks, given")
    settings = {
        row["layer"]: row["candidate"] for row in rows if row["stage"] == "measure" and row["part"] == BITCOIN
    }
    cells = [
        (
            *(name, meaning, str(found[name])),
            *("" if name == base else interval(difference(found, name, base)) for base in bases),
            settings[name],
        )
        for name, meaning in MEANINGS.items()
        if name in found
    ]
    header = ("layer", "what it is", "ROC-AUC", *(f"minus *{base}*" for base in bases), "settings")
    return ["", "## A graph with times", "", told, "", *table(header, cells)]


def _column_tables(columns: Samples) -> list[str]:
    if not columns:
        return []
    names = [name for name in MEANINGS if any(name in runs for runs in columns.values())]
    told = (
        "The network for any graph ([any-graph.md](any-graph.md)) with its settings by rule, which were "
        "chosen with *paper, max* inside; only the layer in its blocks differs. Test accuracy in %:"
    )
    figures = ((graph, *(_figure(runs.get(name)) for name in names)) for graph, runs in columns.items())
    pairs = [pair for pair in _PAIRS if _pooled(columns, *pair) is not None]
    gaps = [
        (graph, *(interval(difference(runs, *pair)) for pair in pairs)) for graph, runs in columns.items()
    ]
    gaps.append(("**together**", *(interval(_pooled(columns, *pair)) for pair in pairs)))
    header = ("column", *(f"{first} − {second}" for first, second in pairs))
    return [
        *("", "## The paper's columns", "", told, ""),
        *table(("column", *names), figures),
        *("", "Paired differences in points:", ""),
        *table(header, gaps),
    ]


def _settings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the settings were chosen, and what the runs took."""
    trials = [row for row in rows if row["stage"] == "choose"]
    runs = [row for row in rows if row["stage"] == "measure"]
    if not runs:
        return []
    lines = ["", "## How the settings were chosen", ""]
    candidates = list(dict.fromkeys(row["candidate"] for row in trials))
    seeds = [str(seed) for seed in sorted({row["seed"] for row in trials})]
    if candidates:
        lines.append(
            f"On the drawn graphs and on `{BITCOIN}`, each layer takes the best of {len(candidates)} "
            "candidates for each task, by the mean on validation nodes over seeds "
            f"{listed(seeds)}, which no test figure uses. The candidates are the same for every layer: "
            f"{listed([f'`{name}`' for name in candidates])}. They were committed before the test rows were "
            "made, and these were made once."
        )
    failed = sum("error" in row for row in runs)
    devices = sorted({row["environment"].get("device", "") for row in rows})
    hours = sum(row["seconds"] for row in rows) / 3600
    return [
        *(*lines, ""),
        f"{len(trials)} runs chose, {len(runs)} were measured, {failed} of these failed; together "
        f"{hours:.1f} hours on {listed(devices)}.",
    ]


def chart_of(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The test figures of the drawn tasks and of bitcoin-otc by layer, as an SVG file."""
    series = {**samples_of(rows, "drawn"), **samples_of(rows, BITCOIN)}
    layers = [name for name in MEANINGS if any(name in by_layer for by_layer in series.values())]
    dots = []
    for graph, by_layer in series.items():
        means = {name: by_layer[name].mean for name in layers if name in by_layer}
        dots.append(Dots(graph, means, {name: by_layer[name].margin for name in means}))
    if not dots:
        return None
    across = "test accuracy in %, of bitcoin-otc ROC-AUC in %, with 95 % intervals"
    return dot_chart("What each layer reaches", layers, dots, across)


def _figure(sample: Sample | None) -> str:
    return "" if sample is None else str(sample)

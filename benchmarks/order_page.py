"""The page "When does the order matter?", rendered from the rows of `study_order.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from node2seq.data.order_tasks import TASKS
from node2seq.reporting.charts import Dots, dot_chart

BITCOIN, COLUMNS = "bitcoin-otc", "columns"
#: Test figures in percent by graph, by layer, by seed.
Samples = dict[str, dict[str, dict[int, float]]]

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


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and its 95 % t-interval."""

    mean: float
    low: float
    high: float

    @property
    def side(self) -> int:
        """1 if the interval lies above zero, −1 if below, 0 if it holds zero."""
        return (self.low > 0) - (self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"

    @property
    def words(self) -> str:
        """Where the first stands to the second."""
        return ("level with", "above", "below")[self.side]


def t_quantile(freedom: int) -> float:
    """What a t-distributed number exceeds in size with a chance of 5 %."""
    # With t = √freedom · tan(angle) the density is a power of the cosine, on a finite interval.
    angle = np.linspace(0, np.pi / 2, 200_001)
    share = np.cumsum(np.cos(angle) ** (freedom - 1))
    return float(np.sqrt(freedom) * np.tan(np.interp(0.95 * share[-1], share, angle)))


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """First minus second over the seeds that both have; None for fewer than two."""
    gaps = np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])
    if gaps.size < 2:
        return None
    reach = t_quantile(gaps.size - 1) * gaps.std(ddof=1) / gaps.size**0.5
    return Difference(float(gaps.mean()), float(gaps.mean() - reach), float(gaps.mean() + reach))


def samples_of(rows: Iterable[Mapping[str, Any]], part: str) -> Samples:
    """The test figures of a part."""
    found: Samples = {}
    for row in rows:
        if row["stage"] == "measure" and row["part"] == part and "test" in row:
            found.setdefault(row["graph"], {}).setdefault(row["layer"], {})[row["seed"]] = 100 * row["test"]
    return found


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


def _lead(drawn: Samples, found: Mapping[str, Mapping[int, float]], columns: Samples) -> list[str]:
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
    gap = difference(found.get("hard ranks, given", {}), found.get("hard ranks, random", {}))
    if gap is not None:
        said.append(f"On `{BITCOIN}`, ranks by time are {gap.words} the same ranks in a random order.")
    pairs = [_pooled(columns, *pair) for pair in _PAIRS if pair[1].endswith("random")]
    sides = [pair.side for pair in pairs if pair is not None]
    if sides:
        said.append(
            f"On the paper's columns together, of {len(sides)} orders compared with a random one "
            f"{sides.count(1)} are above it, {sides.count(-1)} below and {sides.count(0)} level."
        )
    return [" ".join(said), ""] if said else ["There are no runs yet."]


def _against_the_best(drawn: Samples) -> dict[str, tuple[str, Difference]]:
    """By task: the best layer that neither learns ranks with a gradient nor is given the order; soft ranks
    minus it.
    """
    found = {}
    for task, by_layer in drawn.items():
        others = {name: runs for name, runs in by_layer.items() if name not in _ORDERED}
        if "soft ranks" in by_layer and others:
            best = max(others, key=lambda name: _mean(others[name]))
            gap = difference(by_layer["soft ranks"], others[best])
            if gap is not None:
                found[task] = best, gap
    return found


def _about_drawn(drawn: Samples) -> list[str]:
    """One sentence for each task: soft ranks against the best of the layers that have no such order."""
    return [
        f"**{_capital(TASKS[task])}** (drawn graphs): soft ranks reach "
        f"{_mean(drawn[task]['soft ranks']):.1f} %. They are {gap.words} the best layer without such an "
        f"order, *{best}* with {_mean(drawn[task][best]):.1f} %: {gap} points."
        for task, (best, gap) in _against_the_best(drawn).items()
    ]


def _about_bitcoin(found: Mapping[str, Mapping[int, float]]) -> list[str]:
    """What a given order is worth where the data has one, and what a learned one is."""
    said = []
    for first, what, others in (
        ("hard ranks, given", "ranks by time", ("hard ranks, random", "attention", "pna", "mean")),
        ("soft ranks", "soft ranks, whose order is learned,", ("hard ranks, random", "attention", "mean")),
        ("hard ranks, given", "ranks by time", ("attention, told the age", "soft ranks, told the age")),
    ):
        gaps = [
            (name, difference(found[first], found[name])) for name in others if {first, name} <= found.keys()
        ]
        parts = [f"{gap.words} *{name}* ({gap})" for name, gap in gaps if gap is not None]
        if parts:
            said.append(
                f"**Is a rating negative?** (`{BITCOIN}`, ROC-AUC): {what} reach {_mean(found[first]):.1f}. "
                f"That is {_and(parts)}."
            )
    return said


def _about_columns(columns: Samples) -> list[str]:
    """Each order against a random one, and ranks against the mean, over the paper's columns."""
    said = []
    for first, second in _PAIRS:
        gaps = [gap for gap in _gaps(columns, first, second).values() if gap is not None]
        pooled = _pooled(columns, first, second)
        if not gaps or pooled is None:
            continue
        above, below = (sum(gap.side == side for gap in gaps) for side in (1, -1))
        said.append(
            f"**The paper's columns**: *{first}* is {pooled.words} *{second}*, {pooled} points over "
            f"{len(gaps)} columns together; of the {len(gaps)} intervals {above} lie above zero and {below} "
            "below."
        )
    return said


def _gaps(columns: Samples, first: str, second: str) -> dict[str, Difference | None]:
    return {
        name: difference(runs[first], runs[second])
        for name, runs in columns.items()
        if first in runs and second in runs
    }


def _pooled(columns: Samples, first: str, second: str) -> Difference | None:
    """The difference of the means over columns, seed by seed."""
    both = [runs for runs in columns.values() if first in runs and second in runs]
    seeds = set.intersection(*(runs[first].keys() & runs[second].keys() for runs in both)) if both else set()
    means = [
        {seed: float(np.mean([runs[name][seed] for runs in both])) for seed in seeds}
        for name in (first, second)
    ]
    return difference(means[0], means[1])


_HOW = """Figures are means ± standard deviations over seeds. A seed decides about the split (and the drawn
graph), the initial weights and the dropout. Differences are of pairs with the same seed, with 95 %
t-intervals, without correction for their number. The epoch is chosen on validation nodes, by the same metric.
All rows are in `results/order.jsonl`, none left out; `python benchmarks/study_order.py` makes them and this
page."""


def _drawn_tables(drawn: Samples) -> list[str]:
    if not drawn:
        return []
    lines = ["", "## Labels that are about an order", ""]
    lines.append(
        "Graphs of 4,000 nodes (`node2seq/data/order_tasks.py`) whose label follows from the order of a "
        "node's neighbours by a key that is hidden in the features; in the last task by an inner product of "
        "both nodes' features. There are four classes. Each network is a dense layer, one of these layers "
        "beside the node's own features, and two dense layers. Test accuracy in %:"
    )
    titles = [TASKS[task] for task in drawn]
    lines += ["", f"| layer | what it is | {' | '.join(titles)} |", "|---" * (len(titles) + 2) + "|"]
    for name, meaning in MEANINGS.items():
        cells = [_figure(by_layer.get(name)) for by_layer in drawn.values()]
        if any(cells):
            lines.append(f"| {name} | {meaning} | {' | '.join(cells)} |")
    lines += ["", "Soft ranks minus each of the others, in points:", ""]
    lines += [f"| layer | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for name in MEANINGS:
        gaps = [difference(runs.get("soft ranks", {}), runs.get(name, {})) for runs in drawn.values()]
        if name != "soft ranks" and any(gaps):
            lines.append(f"| {name} | {' | '.join('–' if gap is None else str(gap) for gap in gaps)} |")
    return lines


def _bitcoin_table(found: Mapping[str, Mapping[int, float]], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not found:
        return []
    lines = ["", "## A graph with times", ""]
    lines.append(
        f"`{BITCOIN}` (`node2seq/data/bitcoin_otc.py`): nodes are ratings among members of a trading "
        "platform, neighbours the latest earlier ratings of the same member, 20 at most. The given order is "
        "the latest first. The first 60 % by time train, the last 20 % test. The split is the same for all "
        "seeds. Test ROC-AUC in %, and differences from ranks in a random order and from ranks by time:"
    )
    head = (
        "| layer | what it is | ROC-AUC | minus *hard ranks, random* | minus *hard ranks, given* | settings |"
    )
    lines += ["", head, "|---" * 6 + "|"]
    settings = {
        row["layer"]: row["candidate"] for row in rows if row["stage"] == "measure" and row["part"] == BITCOIN
    }
    for name, meaning in MEANINGS.items():
        if name in found:
            gaps = [
                "" if name == base else _or_dash(difference(found[name], found.get(base, {})))
                for base in ("hard ranks, random", "hard ranks, given")
            ]
            cells = [name, meaning, _figure(found[name]), *gaps, settings[name]]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _column_tables(columns: Samples) -> list[str]:
    if not columns:
        return []
    names = [name for name in MEANINGS if any(name in runs for runs in columns.values())]
    lines = ["", "## The paper's columns", ""]
    lines.append(
        "The network for any graph ([any-graph.md](any-graph.md)) with its settings by rule, which were "
        "chosen with *paper, max* inside; only the layer in its blocks differs. Test accuracy in %:"
    )
    lines += ["", f"| column | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for graph, runs in columns.items():
        lines.append(f"| {graph} | {' | '.join(_figure(runs.get(name)) for name in names)} |")
    pairs = [pair for pair in _PAIRS if _pooled(columns, *pair) is not None]
    titles = [f"{first} − {second}" for first, second in pairs]
    lines += ["", "Paired differences in points:", ""]
    lines += [f"| column | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for graph in columns:
        cells = [_or_dash(_gaps(columns, *pair).get(graph)) for pair in pairs]
        lines.append(f"| {graph} | {' | '.join(cells)} |")
    lines.append(f"| **together** | {' | '.join(_or_dash(_pooled(columns, *pair)) for pair in pairs)} |")
    return lines


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
            f"{_and(seeds)}, which no test figure uses. The candidates are the same for every layer: "
            f"{_and([f'`{name}`' for name in candidates])}. They were committed before the test rows were "
            "made, and these were made once."
        )
    failed = sum("error" in row for row in runs)
    devices = sorted({row["environment"].get("device", "") for row in rows})
    hours = sum(row["seconds"] for row in rows) / 3600
    lines += ["", f"{len(trials)} runs chose, {len(runs)} were measured, {failed} of these failed; together "]
    lines[-1] += f"{hours:.1f} hours on {_and(devices)}."
    return lines


def chart_of(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The test figures of the drawn tasks and of bitcoin-otc by layer, as an SVG file."""
    series = {**samples_of(rows, "drawn"), **samples_of(rows, BITCOIN)}
    layers = [name for name in MEANINGS if any(name in by_layer for by_layer in series.values())]
    dots = []
    for graph, by_layer in series.items():
        means = {name: _mean(by_layer[name]) for name in layers if name in by_layer}
        reach = {name: _reach(by_layer[name]) for name in means}
        dots.append(Dots(graph, means, reach))
    if not dots:
        return None
    across = "test accuracy in %, of bitcoin-otc ROC-AUC in %, with 95 % intervals"
    return dot_chart("What each layer reaches", layers, dots, across)


def _mean(runs: Mapping[int, float]) -> float:
    return float(np.mean(list(runs.values())))


def _reach(runs: Mapping[int, float]) -> float:
    values = np.array(list(runs.values()))
    return t_quantile(values.size - 1) * values.std(ddof=1) / values.size**0.5 if values.size > 1 else 0.0


def _figure(runs: Mapping[int, float] | None) -> str:
    if not runs:
        return ""
    values = np.array(list(runs.values()))
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" if values.size > 1 else f"{values.mean():.1f}"


def _or_dash(gap: Difference | None) -> str:
    return "–" if gap is None else str(gap)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

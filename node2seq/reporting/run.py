"""A run folder → one self-contained HTML page: curves, figures, settings."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from node2seq.data.graph import COUNTED, described_target
from node2seq.data.splits import CLASSIFICATION
from node2seq.reporting.charts import (
    Curve,
    bar_chart,
    heat_maps,
    line_chart,
    reliability_chart,
    scatter_chart,
)
from node2seq.reporting.document import (
    Beside,
    Block,
    Cards,
    Chart,
    Grid,
    Heading,
    Paragraph,
    Section,
    Shaded,
    pairs,
    percent,
    to_html,
)
from node2seq.runs.folder import RunFolder, RunResult
from node2seq.storage import write_bytes
from node2seq.train.measured import Measured, Metrics, NumberMetrics
from node2seq.train.metrics import ERRORS, METRIC_TITLES, NUMBER_SCORES, shown, title_with_unit

# A matrix of more classes, or with longer names above its columns, cannot be read.
_MOST_CLASSES = 15
_LONG_NAME = 12
_CONFUSIONS = 40
# Layers whose matrices are shown.
_MOST_LAYERS = 6

PARTS = {"train": "training", "val": "validation", "test": "test", "test_rest": "all the rest"}


def write_report(folder: RunFolder, compared: Sequence[RunResult] | None = None) -> Path:
    """Write ``report.html`` into a finished run's folder and return its path.

    Args:
        folder: The run folder.
        compared: What the runs reached that it is compared with; None: read from the folder.
    """
    write_bytes(folder.report_file, render(folder, compared).encode())
    return folder.report_file


def render(folder: RunFolder, compared: Sequence[RunResult] | None = None) -> str:
    """Return the page of a finished run as text; arguments as in :func:`write_report`."""
    outcome, config = folder.result, folder.config
    if compared is None:
        others = map(RunFolder, sorted(folder.path.glob("baseline-*")))
        compared = [other.result for other in others if other.finished]
    names = [str(name) for name in config["graph"]["class_names"]]
    part = "test" if "test" in outcome.metrics else "val"
    found, nodes = outcome.metrics[part], f"({PARTS[part]} nodes)"
    metric = outcome.config.settings.metric
    unit = ", in %" if title_with_unit(metric).endswith("%") else ""
    lead = (
        f"seed {outcome.config.seed} · {outcome.epochs} epoch{'' if outcome.epochs == 1 else 's'} "
        f"in {outcome.seconds:.1f} s · "
        f"weights of epoch {outcome.best_epoch}, chosen by validation {METRIC_TITLES[metric]}"
    )
    trained = {
        "seed": outcome.config.seed,
        "epochs trained": outcome.epochs,
        "chosen epoch": outcome.best_epoch,
    }
    about = {
        "Model": {"name": outcome.config.model, **config["model"]["options"]},
        "Training": {**config["run"]["settings"], **(config["run"].get("batches") or {}), **trained},
        "Graph": _graph(config["graph"], outcome.config.row_normalize),
        "Split": _split(folder),
        "Environment": config["environment"],
    }
    blocks: list[Block] = [
        Heading(f"{outcome.config.model} on {outcome.config.source.title}", 1),
        Paragraph(lead, "lead"),
        *(Paragraph(text, "warning") for text in outcome.warnings),
        _cards(outcome),
        Section("Learning curves", [_curves(folder, outcome.best_epoch, metric)]),
        Beside(
            [
                Section(f"Metrics at the chosen epoch{unit}", [parts_table(outcome.metrics)]),
                Section(f"Comparison on the same split{unit}", _comparison([outcome, *compared])),
            ]
        ),
        Beside(_details(found, nodes, names)),
        *_orders(folder, names, outcome.best_epoch),
        *_accuracies(folder.details, found, nodes, names),
        *_linear_part(outcome),
        *_calibration(outcome, folder.details),
        Beside([Section(title, pairs(values)) for title, values in about.items()], "columns"),
        Section(
            "How the columns of the nodes were read", pairs(config["graph"]["summary"].get("columns") or {})
        ),
        Section("Input files", pairs(config["graph"].get("files") or {}, "file", "SHA-256")),
        Paragraph(f"node2seq {config['environment'].get('node2seq')}", "footer"),
    ]
    return to_html(blocks)


def _cards(outcome: RunResult) -> Cards:
    test, val, metric = outcome.metrics.get("test"), outcome.metrics["val"], outcome.config.settings.metric
    title = METRIC_TITLES[metric]
    cards = {
        f"test {title}": shown(metric, _of(test, metric), " %"),
        f"validation {title}": shown(metric, val.value(metric), " %"),
    }
    for figure in other_figures(val, metric):
        cards[f"{METRIC_TITLES[figure]} (test)"] = shown(figure, _of(test, figure), " %")
    reference = shown(val.reference_metric, None if test is None else test.reference, " %")
    return Cards(cards | {f"{val.reference_title} (test)": reference})


def other_figures(measured: Measured, metric: str) -> list[str]:
    """What is shown beside the metric that chose the epoch."""
    return [figure for figure in measured.figures if figure != metric]


def _curves(folder: RunFolder, best_epoch: int, metric: str) -> Beside:
    history, by_node = folder.history, folder.task.by_node
    title = METRIC_TITLES[by_node]

    def curve(label: str, key: str) -> Curve:
        return Curve(label, [float(record[key]) for record in history])

    losses = [curve("training loss", "loss"), curve("validation loss", "val_loss")]
    loss = line_chart("Loss by epoch", losses, best_epoch, limits=(0.0, None))
    drawn = [curve(f"training {title}", f"train_{by_node}"), curve(f"validation {title}", f"val_{by_node}")]
    # An error is of another unit, and stands in the table.
    if metric != by_node and metric not in ERRORS:
        drawn.append(curve(f"validation {METRIC_TITLES[metric]}", "val_score"))
    heading = title[0].upper() + title[1:]
    accuracy = line_chart(
        f"{heading} by epoch" if len(drawn) == 2 else f"{heading} and {METRIC_TITLES[metric]} by epoch",
        drawn,
        best_epoch,
        show=lambda value: f"{value:g}" if by_node in NUMBER_SCORES else f"{100 * value:.0f} %",
        # The first epochs may explain far less than nothing.
        limits=(max(-1.0, min(min(curve.y) for curve in drawn)) if by_node in NUMBER_SCORES else None, 1.0),
    )
    return Beside([Chart(loss), Chart(accuracy)])


def _comparison(outcomes: Sequence[RunResult]) -> list[Block]:
    if len(outcomes) == 1:
        return []
    metric = outcomes[0].config.settings.metric
    titles = [METRIC_TITLES[figure] for figure in other_figures(outcomes[0].metrics["val"], metric)]
    lines = [result_row([one], metric) for one in outcomes]
    return [Grid(["model", "validation", "test", *titles, "epoch"], lines)]


def result_row(outcomes: Sequence[RunResult], metric: str) -> list[str]:
    """What a run reached, or several on the mean: model, validation and test figures, chosen epoch."""
    others = [("test", figure) for figure in other_figures(outcomes[0].metrics["val"], metric)]
    cells = [outcomes[0].config.model]
    for part, figure in (("val", metric), ("test", metric), *others):
        values = values_of(outcomes, part, figure)
        mean = shown(figure, statistics.mean(values) if values else None)
        cells.append(f"{mean} ± {shown(figure, statistics.stdev(values))}" if len(values) > 1 else mean)
    return [*cells, f"{statistics.mean(outcome.best_epoch for outcome in outcomes):.0f}"]


def values_of(outcomes: Sequence[RunResult], part: str, figure: str) -> list[float]:
    """A figure of a part of the split in each run that has it."""
    found = (outcome.metrics[part].value(figure) for outcome in outcomes if part in outcome.metrics)
    return [value for value in found if value is not None]


def parts_table(metrics: Mapping[str, Measured], digits: int = 3) -> Grid:
    """What a model reaches on each part of a split; ``digits``: of the loss."""
    lines = [
        [
            PARTS.get(part, part),
            str(found.nodes),
            *(shown(figure, _of(found, figure)) for figure in found.figures),
            shown(found.reference_metric, found.reference),
            f"{found.loss:.{digits}f}",
        ]
        for part, found in metrics.items()
    ]
    kind = metrics["val"]
    titles = [METRIC_TITLES[figure] for figure in kind.figures]
    return Grid(["nodes", "number", *titles, kind.reference_title, "loss"], lines)


def _details(found: Measured, nodes: str, names: Sequence[str]) -> list[Block]:
    """What is known of the predictions, beyond the metrics of all nodes."""
    match found:
        case Metrics():
            by_class = Section(f"Metrics by class {nodes}, in %", [classes_table(found, names)])
            if len(names) > _MOST_CLASSES:
                return [by_class, Section(f"Most frequent confusions {nodes}", [_confusions(found, names)])]
            return [by_class, Section(f"Confusion matrix {nodes}", [_confusion(found, names)])]
        case NumberMetrics(points=points):
            chart = scatter_chart(f"Predicted and true number {nodes}", points, "true", "predicted")
            return [Section(f"Predicted and true number {nodes}", [Chart(chart)])]
        case _:
            return [Section(f"Metrics by {found.row_word} {nodes}, in %", [classes_table(found, names)])]


def _orders(folder: RunFolder, names: Sequence[str], best_epoch: int) -> list[Block]:
    """How the Node2Seq layers order neighbours, and what they learned to do with them."""
    details = folder.details
    layers, matrices = details.get("layers") or {}, details.get("matrices") or {}
    titles = _titles(matrices)
    ends = {name: layers[name] for name in dict.fromkeys([*layers][:1] + [*layers][-1:])}
    several = len(titles) > 1
    homophily = folder.config["graph"]["summary"].get("homophily")
    line = None if homophily is None else ("all edges", float(homophily))
    blocks: list[Block] = [
        Section(
            "Learned matrices" + (f", {titles[name]}" if several else ""),
            [
                Chart(heat_maps(matrices[name])),
                Paragraph("rows: channels read · columns: channels written", "caption"),
            ],
        )
        for name in [*matrices][:_MOST_LAYERS]
    ]
    shares = [
        ("How often the neighbour at each place has the node's class", _same_class(one, line), name)
        for name, one in ends.items()
    ]
    for name, one in ends.items():
        if any(one["nonlocal"]):
            places = [str(place) for place in range(1, len(one["nonlocal"]) + 1)]
            far = {"non-local": one["nonlocal"]}
            chart = bar_chart("Share of non-local nodes", places, far, "place in the order")
            shares.append(("Non-local nodes at each place", chart, name))
    charts: list[Block] = [
        Section(title + (f", {titles[name]}" if several else ""), [Chart(chart)])
        for title, chart, name in shares
        if chart
    ]
    if layers:
        charts.append(Section("How the order settles", _settling(layers, titles, best_epoch)))
    elif "layers" in details and matrices:
        text = "With one tap, the order of the neighbours plays no part in this network."
        charts.append(Section("Order of the neighbours", [Paragraph(text)]))
    learned = [Beside(blocks)] if several else blocks
    return [
        *learned,
        Beside(charts),
        Section("Neighbours in their order", _examples(details.get("examples") or [], names)),
    ]


def _titles(layers: Iterable[str]) -> dict[str, str]:
    """What layers are called: by their places, and those beside others by what they add."""
    titles, place = {}, 0
    for name in layers:
        is_beside = name.endswith(".pool")
        place += not is_beside
        titles[name] = f"layer {place}" + (", largest" if is_beside else "")
    return titles


def _same_class(layer: Mapping[str, Any], line: tuple[str, float] | None) -> str:
    found = layer.get("same_class")
    if found is None or not any(found["nodes"]):
        return ""
    places = [str(place) for place, count in enumerate(found["nodes"], start=1) if count]
    series = {"before training": found["before"], "after": found["after"]}
    hints = [f"{count} nodes" for count in found["nodes"]]
    return bar_chart(
        "Share of neighbours of the same class", places, series, "place in the order", line, hints
    )


def _settling(layers: Mapping[str, Any], titles: Mapping[str, str], best_epoch: int) -> list[Block]:
    """How much of the final order there was at some epochs."""
    curves = []
    for name, one in layers.items():
        epochs, first, among = zip(*one["agreement"], strict=True)
        curves.append(Curve(titles.get(name, name) if len(layers) > 1 else "first neighbour", first, epochs))
        if len(layers) == 1:
            curves.append(Curve("first three, in any order", among, epochs))
    chart = line_chart(
        "Same first neighbour as in the end", curves, best_epoch, "{:.0%}".format, limits=(0.0, 1.0)
    )
    text = "share that is as with the chosen weights; of 500 nodes at most, spread over the graph"
    return [Chart(chart), Paragraph(text, "caption")]


def _examples(examples: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Block]:
    if not examples:
        return []
    short = _short(names)
    between = " · " if max(map(len, short), default=0) <= _LONG_NAME // 2 else "\n"
    places = max(len(one["neighbours"]) for one in examples)
    lines: list[list[str | Shaded]] = []
    for one in examples:
        label, title = one.get("class"), one["name"]
        if label is not None:
            guess = one["predicted"]
            title += f"\nclass {short[label]}" + ("" if guess == label else f", predicted {short[guess]}")
        line: list[str | Shaded] = [title]
        for other in one["neighbours"]:
            known = other["class"] is not None and other["class"] >= 0
            text = f"{other['name']}\n" + (f"{short[other['class']]}{between}" if known else "")
            text += f"{other['score']:g}".replace("-", "−") + (" · non-local" if other["nonlocal"] else "")
            line.append(Shaded(text, 0.4, other["class"] == label) if known else text)
        lines.append([*line, *[""] * (places - len(one["neighbours"]))])
    caption = "first neighbours by the first Node2Seq layer, best first, without the node itself · "
    caption += "class and score · blue: the node's own class" if "class" in examples[0] else "score"
    return [Grid(["node", *(f"{place}." for place in range(1, places + 1))], lines, caption)]


def _short(names: Sequence[str]) -> list[str]:
    """Different names that fit into a narrow column: the starts, or both ends, or numbers."""
    ends = [name if len(name) <= _LONG_NAME else f"{name[: _LONG_NAME - 1]}…" for name in names]
    half = _LONG_NAME // 2
    both = [name if len(name) <= _LONG_NAME else f"{name[: half - 1]}…{name[-half:]}" for name in names]
    numbered = [f"{number} · {name[:half]}…" for number, name in enumerate(names, start=1)]
    return next((tried for tried in (ends, both) if len(set(tried)) == len(names)), numbered)


def _accuracies(details: Mapping[str, Any], found: Measured, nodes: str, names: Sequence[str]) -> list[Block]:
    """Where predictions are right: by degree and by class."""
    groups = details.get("by_degree")
    if not groups or not isinstance(found, Metrics):
        return []
    titles, shares, counts = zip(*groups, strict=True)
    hints = [f"{count} nodes" for count in counts]
    by_degree = bar_chart("Accuracy by degree", titles, {"accuracy": shares}, "number of edges", hints=hints)
    blocks: list[Block] = [Section(f"Accuracy by degree {nodes}", [Chart(by_degree)])]
    if len(names) <= _MOST_CLASSES:
        rows = [(name, row) for name, row in zip(names, found.rows, strict=True) if row.support]
        recalls = {"accuracy": [row.recall for _, row in rows]}
        hints = [f"{row.support} nodes" for _, row in rows]
        by_class = bar_chart("Accuracy by class", [name for name, _ in rows], recalls, "class", hints=hints)
        blocks.append(Section(f"Accuracy by class {nodes}", [Chart(by_class)]))
    return [Beside(blocks)]


def _linear_part(outcome: RunResult) -> list[Block]:
    found, metric = outcome.linear, outcome.config.settings.metric
    if found is None:
        return []
    title = f"With a linear model of the features within {found.hops} hops"
    if not found.share:
        left_out = "It was fitted and left out: on validation nodes the network is no better with it."
        return [Section(title, [Paragraph(left_out)])]
    lines = [
        [PARTS.get(part, part), shown(metric, before), shown(metric, found.after[part])]
        for part, before in found.before.items()
    ]
    caption = f"its share of the logits is {found.share:g}, chosen on validation nodes"
    header = ["nodes", "the network alone", "with the linear model"]
    return [Section(f"{title}, {title_with_unit(metric)}", [Grid(header, lines, caption)])]


def _calibration(outcome: RunResult, details: Mapping[str, Any]) -> list[Block]:
    found = outcome.calibration
    if found is None:
        return []
    lines = [
        [PARTS.get(part, part), percent(before), percent(found.after[part])]
        for part, before in found.before.items()
    ]
    found_on = "found on validation nodes; no prediction changes by it"
    caption = f"logits are divided by {found.temperature:.3g}, {found_on}"
    title = "Expected calibration error of the probabilities, in %"
    errors = Section(title, [Grid(["nodes", "as trained", "calibrated"], lines, caption)])
    groups = details.get("reliability")
    if not groups:
        return [errors]
    curves = [
        Curve(name, [one[1] for one in group], [one[0] for one in group]) for name, group in groups.items()
    ]
    chart = reliability_chart("Share of right predictions by their probability", curves)
    return [Beside([errors, Section("Share of right predictions by their probability", [Chart(chart)])])]


def classes_table(found: Measured, names: Sequence[str]) -> Grid:
    """What it reaches on each class or label."""
    lines = [
        [name, str(row.support), percent(row.precision), percent(row.recall), percent(row.f1)]
        for name, row in zip(names, found.rows, strict=True)
    ]
    return Grid([found.row_word, "nodes", "precision", "recall", "F1"], lines)


def _confusion(found: Metrics, names: Sequence[str]) -> Grid:
    caption = "rows: true class · columns: predicted class · shade: share of the row"
    columns = list(names)
    if max(map(len, names)) > _LONG_NAME:  # the columns have numbers, which the rows explain
        columns = [str(number) for number in range(1, len(names) + 1)]
        names = [f"{number} · {name}" for number, name in zip(columns, names, strict=True)]
    lines = [
        [name, *(Shaded(str(n), n / (sum(counts) or 1), i == j) for j, n in enumerate(counts))]
        for i, (name, counts) in enumerate(zip(names, found.confusion, strict=True))
    ]
    return Grid(["", *columns], lines, caption)


def _confusions(found: Metrics, names: Sequence[str]) -> Grid:
    """The wrong cells of a matrix that would be too large to read, the largest first."""
    wrong = [
        (count, i, j)
        for i, counts in enumerate(found.confusion)
        for j, count in enumerate(counts)
        if i != j and count
    ]
    wrong.sort(key=lambda cell: (-cell[0], cell[1], cell[2]))
    lines = [[names[i], names[j], str(count)] for count, i, j in wrong[:_CONFUSIONS]]
    caption = f"{sum(count for count, *_ in wrong)} nodes are predicted as another class"
    return Grid(["true class", "predicted class", "nodes"], lines, caption, style="figures texts")


def _graph(graph: Mapping[str, Any], row_normalize: bool) -> dict[str, Any]:
    summary = graph["summary"]
    keys = ("nodes", "edges", "features", "labelled", "components", "isolated", "largest_degree")
    about = {key.replace("_", " "): summary.get(key) for key in keys}
    if about["components"] is None:  # of a graph on disk, they are not looked for
        del about["components"]
    homophily = summary.get("homophily")
    about["homophily"] = "–" if homophily is None else f"{homophily:.2f}"
    counted = COUNTED.get(summary.get("task", CLASSIFICATION))
    if counted is not None:
        about[counted] = ", ".join(f"{name} ({count})" for name, count in summary["class_counts"].items())
    else:
        about["to predict"] = described_target(summary["target"])
    about["features row-normalised"] = row_normalize
    about["notes"] = "; ".join(summary.get("notes") or ()) or "none"
    about["SHA-256"] = graph.get("sha256")
    return about


def _split(folder: RunFolder) -> dict[str, Any]:
    sizes = {PARTS[part]: size for part, size in folder.split.sizes.items()}
    return {"rule": folder.split.rule, "seed": folder.split.seed, **sizes}


def _of(metrics: Measured | None, figure: str) -> float | None:
    return None if metrics is None else metrics.value(figure)

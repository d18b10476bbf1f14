"""A run folder → one self-contained HTML page: curves, figures, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from node2seq.reporting.charts import Curve, line_chart
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
from node2seq.train.metrics import METRIC_TITLES, Metrics

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
    lead = (
        f"seed {outcome.config.seed} · {outcome.epochs} epochs in {outcome.seconds:.1f} s · "
        f"weights of epoch {outcome.best_epoch}, chosen by validation {METRIC_TITLES[metric]}"
    )
    trained = {
        "seed": outcome.config.seed,
        "epochs trained": outcome.epochs,
        "chosen epoch": outcome.best_epoch,
    }
    about = {
        "Model": {"name": outcome.config.model, **config["model"]["options"]},
        "Training": {**config["run"]["settings"], **trained},
        "Graph": _graph(config["graph"], outcome.config.row_normalize),
        "Split": _split(folder),
        "Environment": config["environment"],
    }
    blocks: list[Block] = [
        Heading(f"{outcome.config.model} on {outcome.config.source.title}", 1),
        Paragraph(lead, "lead"),
        *(Paragraph(text, "warning") for text in outcome.warnings),
        _cards(outcome),
        Section("Learning curves", [_curves(folder.history, outcome.best_epoch, metric)]),
        Beside(
            [
                Section("Metrics at the chosen epoch, in %", [_parts(outcome.metrics)]),
                Section("Comparison on the same split, in %", _comparison([outcome, *compared])),
            ]
        ),
        Beside(
            [
                Section(f"Metrics by class {nodes}, in %", [_classes(found, names)]),
                Section(f"Confusion matrix {nodes}", [_confusion(found, names)]),
            ]
        ),
        Beside([Section(title, pairs(values)) for title, values in about.items()], "columns"),
        Section("Input files", pairs(config["graph"].get("files") or {}, "file", "SHA-256")),
        Paragraph(f"node2seq {config['environment'].get('node2seq')}", "footer"),
    ]
    return to_html(blocks)


def _cards(outcome: RunResult) -> Cards:
    test, val, metric = outcome.metrics.get("test"), outcome.metrics["val"], outcome.config.settings.metric
    title = METRIC_TITLES[metric]
    cards = {
        f"test {title}": percent(_of(test, metric), " %"),
        f"validation {title}": percent(val.value(metric), " %"),
    }
    for figure in _others(metric):
        cards[f"{METRIC_TITLES[figure]} (test)"] = percent(_of(test, figure), " %")
    share = None if test is None else test.largest_class
    return Cards(cards | {"largest class (test)": percent(share, " %")})


def _others(metric: str) -> list[str]:
    """What is shown beside the metric that chose the epoch."""
    return [figure for figure in ("accuracy", "macro-f1", "roc-auc") if figure != metric]


def _curves(history: Sequence[Mapping[str, Any]], best_epoch: int, metric: str) -> Beside:
    def curves(**keys: str) -> list[Curve]:
        return [
            Curve(label.replace("_", " "), [float(record[key]) for record in history])
            for label, key in keys.items()
        ]

    loss = line_chart(
        "Loss by epoch",
        curves(training_loss="loss", validation_loss="val_loss"),
        best_epoch,
        limits=(0.0, None),
    )
    shown = curves(training_accuracy="train_accuracy", validation_accuracy="val_accuracy")
    if metric != "accuracy":
        scores = [float(record["val_score"]) for record in history]
        shown.append(Curve(f"validation {METRIC_TITLES[metric]}", scores))
    accuracy = line_chart(
        "Accuracy by epoch" if metric == "accuracy" else f"Accuracy and {METRIC_TITLES[metric]} by epoch",
        shown,
        best_epoch,
        show=lambda value: f"{100 * value:.0f} %",
        limits=(None, 1.0),
    )
    return Beside([Chart(loss), Chart(accuracy)])


def _comparison(outcomes: Sequence[RunResult]) -> list[Block]:
    if len(outcomes) == 1:
        return []
    metric = outcomes[0].config.settings.metric
    others = _others(metric)
    shown = (("val", metric), ("test", metric), *(("test", figure) for figure in others))
    titles = [METRIC_TITLES[figure] for figure in others]
    lines = [
        [
            one.config.model,
            *(percent(_of(one.metrics.get(part), figure)) for part, figure in shown),
            str(one.best_epoch),
        ]
        for one in outcomes
    ]
    return [Grid(["model", "validation", "test", *titles, "epoch"], lines)]


def _parts(metrics: Mapping[str, Metrics]) -> Grid:
    lines = [
        [
            PARTS.get(part, part),
            str(found.nodes),
            *(percent(_of(found, figure)) for figure in ("accuracy", "macro-f1", "roc-auc")),
            percent(found.largest_class),
            f"{found.loss:.3f}",
        ]
        for part, found in metrics.items()
    ]
    return Grid(["nodes", "number", "accuracy", "macro-F1", "ROC-AUC", "largest class", "loss"], lines)


def _classes(found: Metrics, names: Sequence[str]) -> Grid:
    lines = [
        [name, str(row.support), percent(row.precision), percent(row.recall), percent(row.f1)]
        for name, row in zip(names, found.per_class, strict=True)
    ]
    return Grid(["class", "nodes", "precision", "recall", "F1"], lines)


def _confusion(found: Metrics, names: Sequence[str]) -> Grid:
    lines = [
        [name, *(Shaded(str(n), n / (sum(counts) or 1), i == j) for j, n in enumerate(counts))]
        for i, (name, counts) in enumerate(zip(names, found.confusion, strict=True))
    ]
    caption = "rows: true class · columns: predicted class · shade: share of the row"
    return Grid(["", *names], lines, caption)


def _graph(graph: Mapping[str, Any], row_normalize: bool) -> dict[str, Any]:
    summary = graph["summary"]
    keys = ("nodes", "edges", "features", "labelled", "components", "isolated", "largest_degree")
    shown = {key.replace("_", " "): summary.get(key) for key in keys}
    homophily = summary.get("homophily")
    shown["homophily"] = "–" if homophily is None else f"{homophily:.2f}"
    shown["classes"] = ", ".join(f"{name} ({count})" for name, count in summary["class_counts"].items())
    shown["features row-normalised"] = row_normalize
    shown["notes"] = "; ".join(summary.get("notes") or ()) or "none"
    shown["SHA-256"] = graph.get("sha256")
    return shown


def _split(folder: RunFolder) -> dict[str, Any]:
    split = folder.split
    sizes = {PARTS[part]: getattr(split, part).numel() for part in ("train", "val", "test")}
    return {"rule": split.rule, "seed": split.seed, **sizes}


def _of(metrics: Metrics | None, figure: str) -> float | None:
    return None if metrics is None else metrics.value(figure)

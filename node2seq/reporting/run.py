"""A run folder → one self-contained HTML page: curves, figures, settings; no script, no link, no font."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from node2seq.reporting import page
from node2seq.reporting.charts import Line, line_chart
from node2seq.runs.folder import RunFolder
from node2seq.runs.runner import Outcome
from node2seq.storage.files import write_bytes
from node2seq.train.metrics import Metrics

PARTS = {"train": "training", "val": "validation", "test": "test", "test_rest": "all the rest"}


def write_report(path: str | Path) -> Path:
    """Write ``report.html`` into a finished run's folder and return its path."""
    folder = RunFolder(path)
    write_bytes(folder.report_file, render(folder).encode())
    return folder.report_file


def render(folder: RunFolder) -> str:
    """Return the page of a finished run as text."""
    outcome = Outcome.of(folder)
    config = folder.config
    names = [str(name) for name in config["graph"]["class_names"]]
    judged = "test" if "test" in outcome.metrics else "val"
    found = outcome.metrics[judged]
    title = f"{outcome.config.model} on {outcome.config.source.title}"
    sections = [
        _warnings(outcome.warnings),
        _cards(outcome),
        page.section("Learning curves", _curves(folder.history(), outcome.best_epoch)),
        page.beside(
            page.section("Figures at the chosen epoch, in %", _parts(outcome.metrics)),
            page.section("Comparison on the same split, in %", _comparison(folder, outcome)),
        ),
        page.beside(
            page.section(f"Class by class ({PARTS[judged]} nodes), in %", _classes(found, names)),
            page.section(f"Who was taken for whom ({PARTS[judged]} nodes)", _confusion(found, names)),
        ),
        '<div class="columns">'
        + page.section("Model", page.pairs({"name": outcome.config.model, **config["model"]["options"]}))
        + page.section("Training", page.pairs({**config["run"]["settings"], **_training(outcome)}))
        + page.section("Graph", page.pairs(_graph(config["graph"], outcome.config.row_normalize)))
        + page.section("Split", page.pairs(_split(folder)))
        + page.section("Ran on", page.pairs(config["environment"]))
        + "</div>",
        page.section("Input files", page.pairs(config["graph"].get("files") or {}, "file", "SHA-256")),
    ]
    lead = (
        f"seed {outcome.config.seed} · {outcome.epochs} epochs in {outcome.seconds:.1f} s · "
        f"weights of epoch {outcome.best_epoch}, chosen by validation accuracy"
    )
    return page.html(title, lead, sections, f"node2seq {config['environment'].get('node2seq')}")


def _warnings(texts: Iterable[str]) -> str:
    return "".join(f'<p class="warning">{escape(text)}</p>' for text in texts)


def _cards(outcome: Outcome) -> str:
    test, val = outcome.metrics.get("test"), outcome.metrics["val"]
    return page.cards(
        {
            "test accuracy": page.percent(test.accuracy) if test else "–",
            "validation accuracy": page.percent(val.accuracy),
            "macro-F1 (test)": page.percent(test.macro_f1) if test else "–",
            "ROC-AUC (test)": page.percent(test.roc_auc) if test else "–",
        }
    )


def _curves(history: Sequence[Mapping[str, Any]], best_epoch: int) -> str:
    def values(key: str) -> list[float]:
        return [float(record[key]) for record in history]

    loss = line_chart(
        "Loss by epoch",
        [
            Line("training loss", "first", values("loss")),
            Line("validation loss", "second", values("val_loss")),
        ],
        best_epoch,
        limits=(0.0, None),
    )
    accuracy = line_chart(
        "Accuracy by epoch",
        [
            Line("training accuracy", "first", values("train_accuracy")),
            Line("validation accuracy", "second", values("val_accuracy")),
        ],
        best_epoch,
        show_value=lambda value: f"{100 * value:.0f} %",
        limits=(None, 1.0),
    )
    return f'<div class="charts"><figure>{loss}</figure><figure>{accuracy}</figure></div>'


def _comparison(folder: RunFolder, outcome: Outcome) -> str:
    others = sorted(folder.path.glob("baseline-*"))
    outcomes = [outcome, *(Outcome.of(RunFolder(path)) for path in others if RunFolder(path).finished)]
    if len(outcomes) == 1:
        return ""
    rows = [
        [
            one.config.model,
            *(
                _share(one.metrics[part].accuracy if part in one.metrics else None)
                for part in ("val", "test")
            ),
            *(_share(_of(one.metrics.get("test"), figure)) for figure in ("macro_f1", "roc_auc")),
            str(one.best_epoch),
        ]
        for one in outcomes
    ]
    heads = ["model", "validation", "test", "macro-F1", "ROC-AUC", "epoch"]
    return page.table(heads, rows)


def _parts(metrics: Mapping[str, Metrics]) -> str:
    rows = [
        [
            PARTS.get(part, part),
            str(found.nodes),
            *(_share(_of(found, figure)) for figure in ("accuracy", "macro_f1", "roc_auc")),
            f"{found.loss:.3f}",
        ]
        for part, found in metrics.items()
    ]
    return page.table(["nodes of", "number", "accuracy", "macro-F1", "ROC-AUC", "loss"], rows)


def _classes(found: Metrics, names: Sequence[str]) -> str:
    rows = [
        [name, str(row.support), _share(row.precision), _share(row.recall), _share(row.f1)]
        for name, row in zip(names, found.per_class, strict=True)
    ]
    return page.table(["class", "nodes", "precision", "recall", "F1"], rows)


def _confusion(found: Metrics, names: Sequence[str]) -> str:
    rows = []
    for i, (name, counts) in enumerate(zip(names, found.confusion, strict=True)):
        total = sum(counts) or 1
        cells = (
            f'<td class="{"hit" if i == j else "miss"}" style="--share:{count / total:.3f}">{count}</td>'
            for j, count in enumerate(counts)
        )
        rows.append(page.row(name, "".join(cells)))
    caption = "rows: true class · columns: predicted class · shade: share of the row"
    return page.framed(page.head(["", *names]) + "".join(rows), "confusion", caption)


def _training(outcome: Outcome) -> dict[str, Any]:
    return {"seed": outcome.config.seed, "epochs trained": outcome.epochs, "chosen epoch": outcome.best_epoch}


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
    return None if metrics is None else getattr(metrics, figure)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"

"""Files as people have them, trained as they were read before and as they are read now.

Each task is two CSV files that are drawn at random, with one trait: columns of very different size, unequal
classes, forty classes, no features, gaps, dates, numbers to predict, several labels. "Before" is the paper's
network with numbers as they are and the epoch chosen by accuracy, as far as flags can still ask for it.

    python benchmarks/study_columns.py measure      # adds a row for each task, way and seed
    python benchmarks/study_columns.py render       # writes docs/own-files.md from the rows
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from script import study_parser

from node2seq.environment import source_commit
from node2seq.reporting.document import Block, Grid, Heading, Paragraph, to_markdown
from node2seq.storage import JsonLines, write_bytes
from node2seq.train.metrics import METRIC_TITLES, NUMBER_SCORES, shown

ROOT = Path(__file__).parents[1]
NODES, DEGREE, SEEDS = 500, 6, 2
OLD = ("--model", "node2seq", "--raw", "--metric", "accuracy", "--set", "patience=none", "--epochs", "100")


@dataclass(frozen=True)
class Task:
    """Two files and how to train on them.

    Args:
        title: The trait.
        draw: Makes the columns of the nodes, by a generator and each node's class.
        classes: How many there are.
        now: Flags today.
        before: Flags for the former way; None if it could not be trained.
        metric: What the ways are compared by, as rows of ``--json`` name it.
        shares: Of each class; None: equal.
    """

    title: str
    draw: Callable[[np.random.Generator, np.ndarray], dict[str, Any]]
    classes: int = 3
    now: tuple[str, ...] = ()
    before: tuple[str, ...] | None = OLD
    metric: str = "accuracy"
    shares: tuple[float, ...] | None = None


def _features(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    centres = rng.normal(size=(y.max() + 1, 6))
    return centres[y] + rng.normal(size=(len(y), 6))


def _plain(rng: np.random.Generator, y: np.ndarray) -> dict[str, Any]:
    return {f"x{i}": column.round(3) for i, column in enumerate(_features(rng, y).T)}


def _unscaled(rng: np.random.Generator, y: np.ndarray) -> dict[str, Any]:
    age, income = 40 + 8 * (y - 1) + 5 * rng.normal(size=len(y)), 30_000 + 9_000 * rng.normal(size=len(y))
    return {"age": age.round(1), "income": income.round()}


def _gaps(rng: np.random.Generator, y: np.ndarray) -> dict[str, Any]:
    columns = _plain(rng, y)
    return {n: np.where(rng.random(len(y)) < 0.2, "NA", v.astype(str)) for n, v in columns.items()}


def _dates(rng: np.random.Generator, y: np.ndarray) -> dict[str, Any]:
    days = 200 * y + rng.integers(0, 250, len(y))
    return {"since": [(date(2020, 1, 1) + timedelta(days=int(day))).isoformat() for day in days]}


def _number(rng: np.random.Generator, y: np.ndarray) -> dict[str, Any]:
    columns = _plain(rng, y)
    target = 10 * y + 3 * columns["x0"] + rng.normal(size=len(y))
    return {**columns, "kind": target.round(2)}


def _several(rng: np.random.Generator, y: np.ndarray) -> dict[str, Any]:
    columns = _plain(rng, y)
    labels = [f"{'abc'[c]}{';positive' if x > 0 else ''}" for c, x in zip(y, columns["x0"], strict=True)]
    return {**columns, "kind": labels}


TASKS = {
    "unscaled": Task("unscaled columns", _unscaled),
    "unequal": Task("two classes, 4 : 1", _plain, 2, metric="roc_auc", shares=(0.8, 0.2)),
    "forty": Task("forty classes", _plain, 40),
    "featureless": Task("no features", lambda *_: {}),
    "gaps": Task("a fifth of the cells missing", _gaps, now=("--fill", "mean"), before=None),
    "dates": Task("a date alone", _dates, before=(*OLD, "--categorical", "since")),
    "number": Task("a number to predict", _number, before=None, metric="r2"),
    "several": Task(
        "several labels", _several, now=("--label-separator", ";"), before=None, metric="micro_f1"
    ),
}


def write_files(task: Task, folder: Path) -> None:
    """Draw the two files of a task: two thirds of a node's neighbours are of its class."""
    rng = np.random.default_rng(0)
    y = rng.choice(task.classes, NODES, p=task.shares)
    columns = {"id": np.arange(NODES), "kind": [f"k{c}" for c in y], **task.draw(rng, y)}
    by_class = [np.flatnonzero(y == c) for c in range(task.classes)]
    ends = [
        (node, rng.choice(by_class[y[node]]) if rng.random() < 2 / 3 else rng.integers(NODES))
        for node in range(NODES)
        for _ in range(DEGREE // 2)
    ]
    _write(folder / "edges.csv", {"source": [a for a, _ in ends], "target": [b for _, b in ends]})
    _write(folder / "nodes.csv", columns)


def _write(path: Path, columns: dict[str, Any]) -> None:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(name: str, when: str, seeds: int, epochs: int | None = None) -> list[dict[str, Any]]:
    """Train a task in one way, and return a row for each seed."""
    task = TASKS[name]
    flags = task.now if when == "now" else task.before
    assert flags is not None
    with tempfile.TemporaryDirectory() as folder:
        write_files(task, Path(folder))
        command = [sys.executable, "-m", "node2seq", "train", "--edges", "edges.csv", "--nodes", "nodes.csv"]
        command += ["--label", "kind", "--runs", str(seeds), "--device", "cpu", "--json", *flags]
        command += [] if epochs is None else ["--epochs", str(epochs)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name}, {when}: {done.stderr}")
    found = json.loads(done.stdout)
    return [_row(task, name, when, run) for run in found.get("runs", [found])]


def _row(task: Task, name: str, when: str, run: dict[str, Any]) -> dict[str, Any]:
    figures = run["metrics"]["test"]
    row = {"task": name, "when": when, "model": run["model"], "seed": run["seed"], "metric": task.metric}
    row |= {"chosen by": run["metric"], "test": round(figures[task.metric], 5)}
    return {**row, "largest class": run.get("largest_class", {}).get("test"), "commit": source_commit()}


def render(rows: list[dict[str, Any]]) -> str:
    """The page of the rows."""
    lines = []
    for name, task in TASKS.items():
        cells = [
            _cell(task, [r for r in rows if (r["task"], r["when"]) == (name, w)]) for w in ("before", "now")
        ]
        lines.append([task.title, METRIC_TITLES[task.metric.replace("_", "-")], *cells])
    blocks: list[Block] = [
        Heading("Files as people have them", 1),
        Paragraph(
            f"Eight graphs of {NODES} nodes, drawn at random and written as two CSV files, each with one "
            "trait. `node2seq train` is told the label column and nothing else, but for `--fill mean` where "
            'cells are missing and `--label-separator ";"` where a node has several labels. "Before" is the '
            "paper's network with numbers as they are, dates as categories, the epoch chosen by accuracy; "
            "a dash is a task that could not be trained then. Means on test nodes over "
            f"{SEEDS} splits, with standard deviations, in % but for R². With so few, differences of some "
            "points are chance."
        ),
        Grid(["files", "figure", "before", "now"], lines),
        Paragraph(
            "The rows are in `results/columns.jsonl`; `python benchmarks/study_columns.py measure` adds them "
            "and `render` writes this page."
        ),
    ]
    return to_markdown(blocks)


def _cell(task: Task, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "–"
    values = [row["test"] for row in rows]
    metric = task.metric.replace("_", "-")
    scale = 1 if metric in NUMBER_SCORES else 100
    spread = stdev(values) * scale if len(values) > 1 else 0.0
    return f"{shown(metric, fmean(values))} ± {spread:.{3 if scale == 1 else 1}f}"


def main() -> None:
    """Measure what has no row yet, or render the page."""
    rows, page = (str(ROOT / name) for name in ("results/columns.jsonl", "docs/own-files.md"))
    parser = study_parser(__doc__, __file__, rows=rows, stages=("measure", "render"), page=page)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, help="fewer epochs, for a trial with --rows of its own")
    given = parser.parse_args()
    file = JsonLines(given.rows)
    rows = file.refresh().values
    if given.stage == "render":
        write_bytes(given.page, render(rows).encode())
        return
    known = {(row["task"], row["when"]) for row in rows}
    for name in given.tasks:
        ways = ["now"] if TASKS[name].before is None else ["before", "now"]
        for when in ways:
            if (name, when) not in known:
                found = measure(name, when, given.seeds, given.epochs)
                file.append(found)
                print(name, when, [row["test"] for row in found], flush=True)


if __name__ == "__main__":
    main()

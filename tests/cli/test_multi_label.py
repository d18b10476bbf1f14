"""Several labels for each node, from two files to a report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch
from torch import Tensor

from node2seq.data import read_graph

FILES = ("--edges", "edges.csv", "--nodes", "nodes.csv")
QUICK = ("--epochs", "60", "--set", "hidden_channels=16", "--set", "num_layers=1", "--set", "dropout=0.0")
NAMES = ["art", "music", "sport"]


@pytest.fixture
def people(cli) -> np.ndarray:
    """Two files: interests follow from the numbers of a person and the neighbours; some are not known."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3))
    near = [(i, (i + step) % 150) for i in range(150) for step in (1, 2)]
    around = (np.roll(x, 1, 0) + np.roll(x, -1, 0)) / 2
    holds = (x + around / 3 > 0.2).astype(int)
    holds[~holds.any(1), 2] = 1
    names = [f"p{i}" for i in range(150)]
    ends = [(names[i], names[j]) for i, j in near]
    polars.DataFrame(ends, schema=["source", "target"], orient="row").write_csv("edges.csv")
    columns: dict[str, Any] = {"id": names} | {f"x{i}": x[:, i] for i in range(3)}
    for number, name in enumerate(NAMES):
        columns[name] = [None if i % 30 == 0 else int(h) for i, h in enumerate(holds[:, number])]
    polars.DataFrame(columns).write_csv("nodes.csv")
    cells = [
        None if i % 30 == 0 else ";".join(name for name, held in zip(NAMES, row, strict=True) if held)
        for i, row in enumerate(holds)
    ]
    joined = polars.DataFrame(columns).drop(NAMES).with_columns(topics=polars.Series(cells))
    joined.write_csv("joined.csv")
    return holds


def f1(true: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Of each label."""
    return 2 * (true & found).sum(0) / (true.sum(0) + found.sum(0))


@pytest.mark.slow
def test_columns_of_zeros_and_ones_are_several_labels(cli, people):
    done = cli(
        "train", *FILES, "--label", "art,music,sport", *QUICK, "--baseline", "residual-gcn", "--out", "run"
    )
    assert done.status == 0, done.err
    assert "3 labels" in done.out
    config = json.loads(Path("run/config.json").read_text())
    assert config["run"]["settings"]["metric"] == "micro-f1"
    assert config["graph"]["class_names"] == NAMES

    found = cli("evaluate", "run", "--json").json
    assert found == json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])["metrics"]
    assert found["test"]["micro_f1"] > 0.75
    shown = cli("evaluate", "run").out
    assert "label by label" in shown
    report = Path("run/report.html").read_text()
    assert "Metrics by label (test nodes)" in report
    assert "Confusion" not in report

    assert cli("predict", "run", "--out", "p.csv").status == 0
    predicted = polars.read_csv("p.csv").with_columns(polars.col("label").fill_null(""))
    assert predicted.columns == ["id", "label", *NAMES, "unlabelled"]
    held = (predicted.select(NAMES).to_numpy() > 0.5).astype(int)
    cells = [";".join(np.array(NAMES)[row > 0]) for row in held]
    assert predicted["label"].to_list() == cells
    test = json.loads(Path("run/split.json").read_text())["test"]
    true, guess = people[test], held[test]
    assert found["test"]["macro_f1"] == pytest.approx(f1(true, guess).mean())
    micro = 2 * (true & guess).sum() / (true.sum() + guess.sum())
    assert found["test"]["micro_f1"] == pytest.approx(micro)
    assert found["test"]["accuracy"] == pytest.approx((true == guess).mean())
    assert [row["f1"] for row in found["test"]["per_label"]] == pytest.approx(f1(true, guess).tolist())


def test_a_separator_gives_the_same_labels(cli, people):
    frames = [read_graph("edges.csv", "nodes.csv", "art,music,sport")]
    frames.append(read_graph("edges.csv", "joined.csv", "topics", label_separator=";"))
    assert frames[0].class_names == frames[1].class_names == NAMES
    left, right = (frame.y for frame in frames)
    assert isinstance(left, Tensor)
    assert isinstance(right, Tensor)
    assert torch.equal(left, right)
    assert int((left < 0).all(1).sum()) == 5
    files = ("--edges", "edges.csv", "--nodes", "joined.csv", "--label", "topics", "--label-separator", ";")
    done = cli("train", *files, *QUICK, "--json", "--out", "run").json
    told = " ".join(cli("train", *files, *QUICK, "--out", "shown").out.split())
    assert re.search(r"micro-F1 of the same labels for all: \d+\.\d % (?!of)", told)
    assert done["metrics"]["test"]["micro_f1"] > done["micro_f1_of_the_same_labels"]["test"]
    checked = cli("data", "check", *files, "--json").json
    assert (checked["task"], checked["classes"], checked["labelled"]) == ("multi-label", 3, 145)
    cells = dict(polars.read_csv("joined.csv").select("id", "topics").iter_rows())
    node = next(name for name, topics in cells.items() if topics is not None and ";" in topics)
    told = cli("explain", "run", "--node", str(node)).out.splitlines()[0]
    assert f"in the files it is {', '.join(sorted(cells[node].split(';')))} (" in told
    assert "is the most probable label, which is explained" in told
    # A new graph is read as the one of the training was, with and without labels.
    new = ("--edges", "edges.csv", "--nodes", "joined.csv")
    assert cli("predict", "run", "--out", "own.csv").status == 0
    assert cli("predict", "run", *new, "--out", "new.csv").status == 0
    polars.read_csv("joined.csv").drop("topics").write_csv("bare.csv")
    assert cli("predict", "run", *new[:3], "bare.csv", "--out", "bare_p.csv").status == 0
    own, new, bare = (polars.read_csv(name) for name in ("own.csv", "new.csv", "bare_p.csv"))
    assert own.equals(new)
    assert own.drop("unlabelled").equals(bare.drop("unlabelled"))
    named = [cells[name] is None for name in own["id"].to_list()]
    assert (own["unlabelled"].to_list(), bare["unlabelled"].to_list()) == (named, [True] * 150)


def test_several_labels_in_a_cell_are_never_one_class_by_accident(cli, people):
    files = ("--edges", "edges.csv", "--nodes", "joined.csv", "--label", "topics")
    done = cli("train", *files, "--out", "run")
    assert done.status == 2
    assert "column 'topics' seems to hold several labels in a cell, as in" in done.err
    assert "--label-separator ';'" in done.err
    assert "--task classification" in done.err
    assert not Path("run").exists()
    found = cli("data", "check", *files, "--task", "classification", "--json").json
    assert found["task"] == "classification"
    assert "art;music" in found["class_counts"]


def test_names_with_a_comma_are_classes(cli, people):
    towns = ["Paris, France", "Lyon, France", "Rome, Italy", "Milan, Italy", "Oslo, Norway"]
    frame = polars.read_csv("joined.csv").drop("topics")
    frame.with_columns(town=polars.Series([towns[i % 5] for i in range(150)])).write_csv("nodes.csv")
    found = cli("data", "check", *FILES, "--label", "town", "--json").json
    assert (found["task"], found["classes"]) == ("classification", 5)


def test_settings_are_searched_by_micro_f1(cli, people):
    given = ("--sampler", "halving", "--trials", "2", "--seeds", "100-101", "--final-seeds", "200-200")
    labels = ("--label", "art,music,sport", "--fix", "epochs=6", "--finalists", "1", "--out", "search")
    done = cli("tune", *FILES, *labels, *given)
    assert done.status == 0, done.err
    assert "chosen on validation micro-F1" in done.out
    assert cli("train", "--config", "search/recipe.toml", "--json").json["metric"] == "micro-f1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--label", "art,x0"), "column 'x0': "),
        (("--label", "art,dance"), "it has no column 'dance'; its columns are"),
        (("--label", "art,music", "--task", "regression"), "several columns are several labels"),
        (("--label", "art", "--task", "multi-label"), "it is not said what separates the labels in a cell"),
        (("--label", "art,music,sport", "--metric", "roc-auc"), "Choose one of micro-f1, macro-f1, accuracy"),
        (("--label", "art,music,sport", "--class-weights"), "it is for classes, one for each node"),
        (("--label", "art", "--task", "regression", "--label-separator", ";"), "a separator is for several"),
    ],
)
def test_what_does_not_fit_is_refused(cli, people, given: tuple[str, ...], message: str):
    done = cli("train", *FILES, *given, "--out", "run")
    assert done.status == 2
    assert message in done.err
    assert not Path("run").exists()


def test_half_filled_rows_are_unlabelled_with_a_note(cli, people):
    frame = polars.read_csv("nodes.csv")
    art = frame["art"].to_list()
    art[1] = None
    frame.with_columns(art=polars.Series(art)).write_csv("nodes.csv")
    done = cli("data", "check", *FILES, "--label", "art,music,sport")
    assert "1 nodes have only some of the labels filled in" in done.out
    assert "144 of 150 nodes labelled" in done.out

"""Weights and features of edges, from files to predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars
import pytest

FILES = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind")
QUICK = ("--epochs", "6", "--set", "hidden_channels=8", "--seed", "1", "--json")
BOTH = ("--edge-weight", "weight", "--edge-features", "hours,since")


@pytest.fixture
def files(cli) -> None:
    """Forty nodes of two classes, and edges with three columns of numbers."""
    random = np.random.default_rng(0)
    kind = random.integers(2, size=40)
    polars.DataFrame(
        {"id": np.arange(40), "f": kind + random.normal(size=40), "g": random.normal(size=40), "kind": kind}
    ).write_csv("nodes.csv")
    ends = random.integers(40, size=(2, 160))
    same = (kind[ends[0]] == kind[ends[1]]).astype(float)
    polars.DataFrame(
        {
            "source": ends[0],
            "target": ends[1],
            "weight": 0.1 + same,
            "hours": random.random(160),
            "since": random.integers(9, size=160),
        }
    ).write_csv("edges.csv")


@pytest.mark.parametrize("model", ["node2seq", "node2seq-plus", "residual-node2seq"])
def test_training_evaluating_and_predicting_read_the_same_columns(cli, files, model: str) -> None:
    done = cli("train", *FILES, *BOTH, "--model", model, *QUICK)
    assert done.status == 0, done.err
    run = Path(done.json["run"])
    config = json.loads((run / "config.json").read_text())
    assert config["graph"]["schema"]["edges"] == {"weight": "weight", "features": ["hours", "since"]}
    assert config["model"]["edge_dim"] == 2
    assert cli("evaluate", run, "--json").status == 0
    assert cli("predict", run, "--out", "own.csv").status == 0
    new = ("--edges", "edges.csv", "--nodes", "nodes.csv")
    assert cli("predict", run, *new, "--out", "new.csv").status == 0
    assert Path("own.csv").read_text() == Path("new.csv").read_text()
    edges = polars.read_csv("edges.csv")
    edges.with_columns(polars.col("weight") * -3).write_csv("edges2.csv")
    assert cli("predict", run, "--edges", "edges2.csv", *new[2:], "--out", "other.csv").status == 0
    assert Path("other.csv").read_text() != Path("own.csv").read_text()
    edges.drop("since").write_csv("edges3.csv")
    failed = cli("predict", run, "--edges", "edges3.csv", *new[2:], "--out", "failed.csv")
    assert failed.status != 0
    assert "since" in failed.err
    # The values are part of the graph that a run is bound to.
    edges.with_columns(polars.col("weight") + 1).write_csv("edges.csv")
    changed = cli("evaluate", run)
    assert changed.status != 0
    assert "edges.csv" in changed.err


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("gcn", ("--edge-weight", "weight")),
        ("sgc", ("--edge-weight", "weight")),
        ("cheby", ("--edge-weight", "weight")),
        ("gat", ("--edge-features", "hours")),
        ("gin", ("--edge-features", "hours, since")),
    ],
)
def test_the_other_networks(cli, files, model: str, flags: tuple[str, ...]) -> None:
    done = cli("train", *FILES, *flags, "--model", model, "--runs", "2", *QUICK)
    assert done.status == 0, done.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model", "lgcn", "--edge-weight", "weight"), "edge weights with the model lgcn"),
        (("--model", "mlp", "--edge-features", "hours"), "edge features with the model mlp"),
        (("--model", "gat", "--edge-weight", "weight"), "edge weights with the model gat"),
        (("--baseline", "gat", "--edge-weight", "weight"), "edge weights with the model gat"),
        (("--edge-weight", "wieght"), "wieght"),
        (("--edge-features", "hours,,since"), "edge_features"),
    ],
)
def test_what_cannot_be_is_said_before_training(cli, files, flags: tuple[str, ...], words: str) -> None:
    done = cli("train", *FILES, *flags, *QUICK)
    assert done.status != 0
    assert words in done.err
    assert not list(Path().glob("runs/*"))
    if "model" in words:
        assert "node2seq" in done.err  # which models do


def test_a_data_set_by_name_has_no_columns(cli) -> None:
    done = cli("train", "karate", "--edge-weight", "weight", *QUICK)
    assert done.status != 0
    assert "it applies to your own files only" in done.err


def test_settings_in_a_file(cli, files) -> None:
    Path("settings.toml").write_text(
        '[source]\nedges = "edges.csv"\nnodes = "nodes.csv"\nlabel = "kind"\n'
        '[source.reading]\nedge_weight = "weight"\nedge_features = ["hours"]\n'
    )
    done = cli("train", "--config", "settings.toml", *QUICK)
    assert done.status == 0, done.err
    config = json.loads((Path(done.json["run"]) / "config.json").read_text())
    assert config["graph"]["schema"]["edges"] == {"weight": "weight", "features": ["hours"]}


def test_check_says_what_edges_carry(cli, files) -> None:
    plain = cli("data", "check", *FILES)
    assert "--edge-weight weight" in plain.out
    done = cli("data", "check", *FILES, *BOTH)
    assert "edges carry 'weight' as weight and 'hours', 'since' as features" in done.out

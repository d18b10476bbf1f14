"""Neighbours in the order of time, from a user's files to predictions."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

FILES = ("--edges", "payments.csv", "--nodes", "accounts.csv", "--label", "kind", "--directed")
BY_TIME = ("--order-by", "time", "--split-by", "reviewed")
QUICK = ("--epochs", "4", "--set", "hidden_channels=8", "--set", "num_layers=1", "--seed", "1", "--json")
START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def files(cli) -> None:
    """Accounts, and payments with timestamps; an account is of the kind that paid it last."""
    random = np.random.default_rng(0)
    count, payments = 240, 8
    colour = random.integers(2, size=count)
    target = np.repeat(np.arange(count), payments)
    source = (target + random.integers(1, count, size=target.size)) % count
    source[1::payments] = source[::payments]  # paid twice by the same one
    hours = random.permutation(target.size) * 1.25
    last = [int(np.flatnonzero(target == node)[hours[target == node].argmax()]) for node in range(count)]
    reviewed = START + timedelta(days=200)
    pl.DataFrame(
        {
            "id": [f"account {i}" for i in range(count)],
            "colour": np.array(["red", "blue"])[colour],
            "reviewed": [(reviewed + timedelta(days=i)).date().isoformat() for i in range(count)],
            "kind": np.array(["buyer", "seller"])[colour[source[last]]],
        }
    ).write_csv("accounts.csv")
    pl.DataFrame(
        {
            "source": [f"account {i}" for i in source],
            "target": [f"account {i}" for i in target],
            "time": [(START + timedelta(hours=float(hour))).isoformat() for hour in hours],
        }
    ).write_csv("payments.csv")


def write_times(times: list[str], name: str = "payments.csv") -> None:
    pl.read_csv("payments.csv").with_columns(pl.Series("time", times)).write_csv(name)


@pytest.mark.slow
def test_the_label_that_follows_from_the_latest_neighbour_is_learned(cli, files) -> None:
    done = cli("train", *FILES, *BY_TIME, "--epochs", "60", "--seed", "1", "--json")
    assert done.status == 0, done.err
    config = json.loads((Path(done.json["run"]) / "config.json").read_text())
    assert config["model"]["name"] == "residual-node2seq"
    assert config["model"]["options"]["order"] == "edge"
    assert config["model"]["options"]["readout"] == "ranks"
    assert done.json["metrics"]["test"]["accuracy"] >= 0.9
    split = json.loads((Path(done.json["run"]) / "split.json").read_text())
    assert max(split["train"]) < min(split["val"]) <= max(split["val"]) < min(split["test"])
    assert len(split["train"]) == 144


def test_evaluating_and_predicting_read_the_same_times(cli, files) -> None:
    done = cli("train", *FILES, *BY_TIME, *QUICK)
    assert done.status == 0, done.err
    run = Path(done.json["run"])
    schema = json.loads((run / "config.json").read_text())["graph"]["schema"]
    assert schema["edges"] == {"weight": None, "features": [], "order": "time", "order_kind": "date"}
    assert schema["split_by"] == {"column": "reviewed", "kind": "date", "no_future_edges": False}
    assert cli("evaluate", run, "--json").status == 0
    assert cli("predict", run, "--out", "own.csv").status == 0
    new = ("--nodes", "accounts.csv")
    assert cli("predict", run, "--edges", "payments.csv", *new, "--out", "new.csv").status == 0
    assert Path("own.csv").read_text() == Path("new.csv").read_text()
    times = pl.read_csv("payments.csv")["time"].to_list()
    write_times(times[::-1], "turned.csv")
    turned = cli("predict", run, "--edges", "turned.csv", *new, "--out", "turned-out.csv")
    assert turned.status == 0, turned.err
    assert Path("turned-out.csv").read_text() != Path("own.csv").read_text()
    pl.read_csv("payments.csv").drop("time").write_csv("timeless.csv")
    failed = cli("predict", run, "--edges", "timeless.csv", *new, "--out", "failed.csv")
    assert failed.status != 0
    assert "timeless.csv: the column 'time' is missing" in failed.err
    write_times([str(i) for i in range(len(times))], "numbers.csv")
    failed = cli("predict", run, "--edges", "numbers.csv", *new, "--out", "failed.csv")
    assert "it holds numbers. Give dates, as in training" in failed.err
    # The times are part of the graph that a run is bound to.
    write_times(times[::-1])
    changed = cli("evaluate", run)
    assert changed.status != 0
    assert "payments.csv" in changed.err


def test_a_run_is_resumed_with_the_same_weights(cli, files) -> None:
    done = cli("train", *FILES, *BY_TIME, *QUICK)
    assert done.status == 0, done.err
    weights = Path(done.json["run"]) / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    resumed = cli("train", "--resume", done.json["run"], "--json")
    assert resumed.status == 0, resumed.err
    assert weights.read_bytes() == content


@pytest.mark.parametrize("model", ["node2seq", "node2seq-plus", "residual-node2seq"])
def test_several_runs_at_once(cli, files, model: str) -> None:
    few = ("--epochs", "4", "--set", "hidden_channels=8")
    done = cli("train", *FILES, *BY_TIME, "--model", model, "--runs", "2", *few, "--json")
    assert done.status == 0, done.err


def test_another_order_on_the_same_files_for_comparison(cli, files) -> None:
    done = cli("train", *FILES, *BY_TIME, *QUICK, "--set", "order=random")
    assert done.status == 0, done.err
    config = json.loads((Path(done.json["run"]) / "config.json").read_text())
    assert config["model"]["options"]["order"] == "random"
    assert config["model"]["options"]["readout"] == "ranks"


def test_a_network_that_reads_no_order_is_refused_before_training(cli, files) -> None:
    for flags in (("--model", "gcn"), ("--baseline", "residual-gcn")):
        done = cli("train", *FILES, *BY_TIME, *flags, *QUICK[:2], "--json")
        assert done.status != 0
        assert f"orders given by edges with the model {flags[1]}" in done.err
        assert "residual-node2seq" in done.err
    assert not list(Path().glob("runs/*"))


def test_a_search_keeps_the_order_and_its_recipe_is_trained(cli, files) -> None:
    few = ("--trials", "2", "--fix", "epochs=2", "--seeds", "100-100", "--final-seeds", "200-200")
    done = cli(
        "tune",
        *FILES,
        *BY_TIME,
        *few,
        "--finalists",
        "1",
        "--sampler",
        "halving",
        "--out",
        "search",
        "--json",
    )
    assert done.status == 0, done.err
    assert "readout" not in done.json["settings"]
    recipe = Path("search/recipe.toml").read_text()
    assert 'order = "edge"' in recipe
    assert 'readout = "ranks"' in recipe
    trained = cli("train", "--config", "search/recipe.toml", "--json")
    assert trained.status == 0, trained.err


def test_edges_from_the_future(cli, files) -> None:
    nodes = pl.read_csv("accounts.csv")
    days = [(START + timedelta(days=i % 120)).date().isoformat() for i in range(nodes.height)]
    nodes.with_columns(pl.Series("reviewed", days)).write_csv("accounts.csv")
    checked = cli("data", "check", *FILES, *BY_TIME)
    assert "edges are newer than the node that they inform" in checked.out
    assert "warning: " in checked.out
    done = cli("train", *FILES, *BY_TIME, *QUICK)
    assert done.status == 0, done.err
    (warning,) = (text for text in done.json["warnings"] if "newer" in text)
    assert "--no-future-edges" in warning
    shown = cli("train", *FILES, *BY_TIME, *QUICK[:-1])
    assert "newer than the node that they inform" in shown.out
    predicted = cli(
        "predict", done.json["run"], "--edges", "payments.csv", "--nodes", "accounts.csv", "--out", "p.csv"
    )
    assert "newer than the node that they inform" in predicted.err
    dropped = cli("train", *FILES, *BY_TIME, "--no-future-edges", *QUICK)
    assert dropped.status == 0, dropped.err
    assert not any("newer" in text for text in dropped.json["warnings"])
    run = Path(dropped.json["run"])
    config = json.loads((run / "config.json").read_text())
    assert config["graph"]["summary"]["edges"] < pl.read_csv("payments.csv").height
    assert any("inform: dropped" in note for note in config["graph"]["summary"]["notes"])
    new = ("--edges", "payments.csv", "--nodes", "accounts.csv")
    assert cli("predict", run, "--out", "own.csv").status == 0
    assert cli("predict", run, *new, "--out", "new.csv").status == 0
    assert Path("own.csv").read_text() == Path("new.csv").read_text()


@pytest.mark.parametrize(
    ("row", "cell", "words"),
    [
        (3, "31.03.2024", "'31.03.2024' in row 3 is neither a date nor a number"),
        (5, "", "column 'time': 1 time is missing, the first in row 5"),
        (2, "7", "'7' in row 2 is a number, but other cells are dates"),
        (4, "2024-02-30", "'2024-02-30' in row 4 is neither a date nor a number"),
    ],
)
def test_a_bad_time_is_a_sentence(cli, files, row: int, cell: str, words: str) -> None:
    times = pl.read_csv("payments.csv")["time"].to_list()
    times[row - 1] = cell
    write_times(times)
    done = cli("train", *FILES, *BY_TIME, *QUICK)
    assert done.status == 2
    assert words in done.err
    assert "payments.csv" in done.err
    assert done.err.count("\n") == 1
    assert not list(Path().glob("runs/*"))


def test_infinite_numbers_and_ties_are_said(cli, files) -> None:
    count = pl.read_csv("payments.csv").height
    write_times(["inf", *[str(i) for i in range(1, count)]])
    assert "inf in row 1 is infinite" in cli("train", *FILES, *BY_TIME, *QUICK).err
    write_times([str(i // 4) for i in range(count)])
    assert f"{count} of {count} edges have the same 'time'" in cli("data", "check", *FILES, *BY_TIME[:2]).out
    write_times(["5"] * count)
    assert "warning: all edges have the same 'time'" in cli("data", "check", *FILES, *BY_TIME[:2]).out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--order-by", "tmie"), "no column 'tmie'; its columns"),
        (("--split-by", "reveiwed"), "no column 'reveiwed'; its columns"),
        (("--split-by", "reviewed", "--split", "colour"), "these are two splits"),
        (("--no-future-edges",), "it compares the times of edges and nodes"),
        (("--split-by", "colour"), "is neither a date nor a number"),
    ],
)
def test_what_cannot_be_is_said_before_training(cli, files, flags: tuple[str, ...], words: str) -> None:
    done = cli("train", *FILES, *flags, *QUICK)
    assert done.status == 2
    assert words in done.err
    assert not list(Path().glob("runs/*"))


def test_the_commands_of_the_page_run_as_they_stand(cli) -> None:
    page = (Path(__file__).parents[2] / "docs" / "order-by-time.md").read_text()
    tables = re.findall(r"`(\w+\.csv)`:\n\n```csv\n(.*?)^```", page, re.M | re.S)
    assert [name for name, _ in tables] == ["payments.csv", "accounts.csv"]
    for name, text in tables:
        Path(name).write_text(text)
    commands = re.findall(r"^\$ node2seq (.*)$", page, re.M)
    assert len(commands) == 4
    for command in commands:
        done = cli(*shlex.split(command))
        assert done.status == 0, done.err
        assert "warning: " not in done.out + done.err or "train" in command
    (code,) = re.findall(r"```python\n(.*?)^```", page, re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(code, "order-by-time.md", "exec"), names)
    assert names["times"].shape == (10,)


def test_a_data_set_by_name_has_no_columns(cli) -> None:
    for flags in (("--order-by", "time"), ("--split-by", "time"), ("--no-future-edges",)):
        done = cli("train", "karate", *flags, *QUICK)
        assert done.status == 2
        assert "it applies to your own files only" in done.err
    bipartite = cli("train", "bitcoin-otc", "--epochs", "2")
    assert bipartite.status == 2
    assert "load_bitcoin_otc" in bipartite.err

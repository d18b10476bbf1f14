"""Numbers to predict, from two files to a report: train, resume, evaluate, predict, tune."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars
import pytest

from node2seq.runs.folder import RunFolder
from node2seq.runs.training import train_run
from node2seq.storage import read_tensors

FILES = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "price")
QUICK = ("--epochs", "60", "--set", "hidden_channels=16", "--set", "num_layers=1", "--set", "dropout=0.0")


@pytest.fixture
def homes(cli) -> np.ndarray:
    """Two files: the price of a home follows its own size and that of its neighbours; some are not known."""
    rng = np.random.default_rng(0)
    sizes = rng.normal(size=120)
    near = np.stack([np.roll(np.arange(120), -step) for step in (1, 2)], axis=1)
    around = np.stack([sizes[near[:, 0]], sizes[near[:, 1]], np.roll(sizes, 1), np.roll(sizes, 2)])
    prices = 250_000 + 40_000 * sizes + 60_000 * around.mean(0)
    names = [f"home {i}" for i in range(120)]
    ends = [(names[i], names[j]) for i in range(120) for j in near[i]]
    polars.DataFrame(ends, schema=["source", "target"], orient="row").write_csv("edges.csv")
    known = [None if i % 30 == 0 else round(price) for i, price in enumerate(prices)]
    polars.DataFrame({"id": names, "size": sizes, "price": known}).write_csv("nodes.csv")
    return prices


@pytest.mark.slow
def test_a_column_of_many_numbers_is_predicted_as_numbers(cli, homes):
    done = cli("train", *FILES, *QUICK, "--baseline", "residual-gcn", "--out", "run")
    assert done.status == 0, done.err
    assert "the number itself is predicted (regression)" in done.out
    assert "MAE of the training mean" in done.out
    config = json.loads(Path("run/config.json").read_text())
    assert config["run"]["settings"]["metric"] == "r2"
    split = json.loads(Path("run/split.json").read_text())
    known = polars.read_csv("nodes.csv")["price"].to_numpy()
    trained = known[split["train"]]
    target = config["graph"]["schema"]["target"]
    assert target == {
        "kind": "regression",
        "shift": pytest.approx(trained.mean()),
        "scale": pytest.approx(trained.std()),
    }
    report = Path("run/report.html").read_text()
    assert "Predicted and true number" in report
    assert "Confusion" not in report
    assert "MAE of the training mean" in report

    found = cli("evaluate", "run", "--json").json
    final = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])
    assert found == final["metrics"]
    assert found["test"]["r2"] > 0.8
    assert found["test"]["mae"] < found["test"]["mean_mae"]

    assert cli("predict", "run", "--out", "predicted.csv").status == 0
    predicted = polars.read_csv("predicted.csv")
    assert predicted.columns == ["id", "label", "unlabelled"]
    errors = predicted["label"].to_numpy() - known
    test = split["test"]
    assert np.abs(errors[test]).mean() == pytest.approx(found["test"]["mae"])
    assert 1 - (errors[test] ** 2).sum() / ((known[test] - known[test].mean()) ** 2).sum() == pytest.approx(
        found["test"]["r2"]
    )
    unknown = np.isnan(known)
    assert unknown.sum() == 4
    assert np.abs(predicted["label"].to_numpy() - homes)[unknown].mean() < found["test"]["mean_mae"]


def test_new_nodes_are_predicted_in_the_unit_of_the_training(cli, homes):
    assert cli("train", *FILES, *QUICK, "--out", "run").status == 0
    assert cli("predict", "run", "--out", "own.csv").status == 0
    polars.read_csv("nodes.csv").drop("price").write_csv("new.csv")
    new = ("--edges", "edges.csv", "--nodes", "new.csv")
    assert cli("predict", "run", *new, "--out", "new_predictions.csv").status == 0
    own, found = (polars.read_csv(f"{name}.csv")["label"].to_numpy() for name in ("own", "new_predictions"))
    assert np.allclose(own, found, rtol=1e-5)
    assert np.corrcoef(found, homes)[0, 1] > 0.8


def test_the_absolute_error_is_a_loss_and_a_metric(cli, homes):
    given = ("--metric", "mae", "--set", "loss=mae", "--json")
    done = cli("train", *FILES, *QUICK, *given).json
    assert done["metric"] == "mae"
    val = done["metrics"]["val"]
    scale = json.loads((Path(done["run"]) / "config.json").read_text())["graph"]["schema"]["target"]["scale"]
    assert val["loss"] == pytest.approx(val["mae"] / scale)
    epochs = [json.loads(line) for line in (Path(done["run"]) / "metrics.jsonl").read_text().splitlines()]
    assert epochs[done["best_epoch"] - 1]["val_score"] == pytest.approx(-val["mae"], rel=1e-5)
    assert max(epoch["val_score"] for epoch in epochs[:-1]) == epochs[done["best_epoch"] - 1]["val_score"]
    assert "val_r2" in epochs[0]
    assert "val_accuracy" not in epochs[0]


@pytest.mark.slow
def test_a_killed_run_resumes_with_the_same_bits(cli, homes):
    whole = Path(cli("train", *FILES, *QUICK, "--json", "--out", "whole").json["run"])

    class KilledError(Exception):
        pass

    def kill(record) -> None:
        if record.epoch == 7:
            raise KilledError

    with pytest.raises(KilledError):
        train_run(RunFolder(whole).run, "half", on_epoch=kill, checkpoint_seconds=0.0)
    assert not RunFolder("half").finished
    assert cli("train", "--resume", "half").status == 0
    left, right = (read_tensors(Path(run) / "model.safetensors")[0] for run in (whole, "half"))
    assert all((left[name] == right[name]).all() for name in left)
    assert RunFolder("half").result.metrics == RunFolder(whole).result.metrics


def test_several_runs_have_a_scale_each(cli, homes):
    done = cli("train", *FILES, *QUICK, "--runs", "2", "--json", "--out", "series").json
    assert done["mean"]["test_r2"] > 0.7
    configs = [json.loads((Path(run["run"]) / "config.json").read_text()) for run in done["runs"]]
    shifts = [config["graph"]["schema"]["target"]["shift"] for config in configs]
    assert shifts[0] != shifts[1]


def test_settings_are_searched_by_r2(cli, homes):
    given = ("--sampler", "halving", "--trials", "2", "--seeds", "100-101", "--final-seeds", "200-200")
    done = cli("tune", *FILES, *given, "--fix", "epochs=8", "--finalists", "1", "--out", "search")
    assert done.status == 0, done.err
    assert "chosen on validation R²" in done.out
    assert "validation R²" in Path("search/report.html").read_text()
    assert cli("train", "--config", "search/recipe.toml", "--json").json["metric"] == "r2"
    again = cli(
        "tune", *FILES, *given, "--fix", "epochs=8", "--finalists", "1", "--out", "search", "--json"
    ).json
    assert again["metric"] == "r2"
    assert -10 < again["val_score"] <= 1


def test_the_user_decides_between_classes_and_numbers(cli, homes):
    frame = polars.read_csv("nodes.csv")
    frame.with_columns(rooms=polars.Series([i % 3 + 2 for i in range(120)])).write_csv("nodes.csv")
    files = (*FILES[:-1], "rooms")
    found = cli("data", "check", *files, "--ignore", "price", "--json").json
    assert (found["task"], found["classes"]) == ("classification", 3)
    found = cli("data", "check", *files, "--ignore", "price", "--task", "regression", "--json").json
    assert (found["task"], found["classes"], found["target"]["mean"]) == ("regression", 0, 3.0)
    done = cli("data", "check", *FILES, "--task", "classification")
    assert done.status == 2
    assert "only one labelled node" in done.err
    checked = cli("data", "check", *FILES)
    assert "to predict         numbers from" in checked.out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--metric", "accuracy"), "it is no metric of regression. Choose one of r2, mae, rmse."),
        (("--class-weights",), "class_weights=True: it is for classes"),
        (("--set", "label_smoothing=0.1"), "label_smoothing=0.1: it is for classes"),
        (("--task", "sorting"), "task='sorting': there is no such choice"),
        (("--task", "classification", "--metric", "r2", "--split", "part"), "r2"),
    ],
)
def test_settings_of_classes_are_refused(cli, homes, given: tuple[str, ...], message: str):
    if "part" in given:
        parts = polars.Series([("train", "val", "test")[i % 3] for i in range(120)])
        polars.read_csv("nodes.csv").with_columns(part=parts).write_csv("nodes.csv")
    done = cli("train", *FILES, *QUICK, *given, "--out", "run")
    assert done.status == 2
    assert message in done.err
    assert not Path("run").exists()


def test_a_word_among_the_numbers_is_named(cli, homes):
    text = Path("nodes.csv").read_text().splitlines()
    text[5] = text[5].rpartition(",")[0] + ",cheap"
    Path("nodes.csv").write_text("\n".join(text) + "\n")
    done = cli("train", *FILES, "--task", "regression")
    assert done.status == 2
    assert "'cheap' in row 5 is not a number" in done.err

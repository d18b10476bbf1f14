"""Stores on the command line: converted, trained on, resumed, measured and predicted from."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from stored_graphs import write_files

from node2seq.options import build
from node2seq.runs.folder import RunConfig
from node2seq.runs.training import train_run
from node2seq.storage import read_json
from node2seq.train.progress import EpochRecord

pytest.importorskip("duckdb")


def test_the_command(tmp_path: Path, cli):
    edges, nodes = write_files(tmp_path)
    flags = ("--edges", edges, "--nodes", nodes, "--out", "graph.store")
    done = cli("data", "convert", *flags, "--label", "kind")
    assert done.status == 0, done.err
    assert "300 nodes, 1956 edges, 6 features, 3 classes: graph.store" in done.out
    assert "step 1 of 9, reading the nodes: 0 % done" in done.err
    again = cli("data", "convert", *flags, "--label", "kind", "--json")
    assert again.json["nodes"] == 300
    assert json.loads(Path("graph.store/manifest.json").read_text())["sha256"] == again.json["sha256"]
    other = cli("data", "convert", *flags, "--label", "since")
    assert other.status == 2
    assert "it is a store of other files" in other.err
    assert "memory 'much': it is no amount" in cli("data", "convert", *flags, "--memory", "much").err


def stored(cli, folder: Path, **options: str) -> None:
    edges, nodes = write_files(folder)
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    done = cli(
        "data", "convert", "--edges", edges, "--nodes", nodes, "--label", "kind", "--out", "st", *flags
    )
    assert done.status == 0, done.err


SMALL = ("--set", "hidden_channels=8", "--set", "num_layers=2", "--batch-size", "64", "--fanout", "5,5")


@pytest.mark.slow
def test_a_store_is_trained_on_measured_and_predicted_from(tmp_path: Path, cli):
    stored(cli, tmp_path)
    trained = cli("train", "--store", "st", *SMALL, "--epochs", "20", "--set", "lr=0.02", "--out", "run")
    assert trained.status == 0, trained.err
    assert "mini-batches of 64 nodes, neighbours by hop: 5, 5" in trained.out
    measured = cli("evaluate", "run", "--json").json
    assert measured["test"]["accuracy"] > 0.5
    final = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])
    assert measured["test"] == final["metrics"]["test"]
    assert (Path("run") / "report.html").is_file()
    table = pl.read_csv("nodes.csv")
    table.head(3).select("id").write_csv("some.csv")
    assert cli("predict", "run", "--nodes", "some.csv", "--out", "p.csv", "--embeddings", "e.csv").status == 0
    predicted = pl.read_csv("p.csv")
    assert predicted["id"].to_list() == table["id"].to_list()[:3]
    assert pl.read_csv("e.csv").shape == (3, 9)
    assert cli("predict", "run", "--sample", "7", "--out", "s.csv", "--json").json["nodes"] == 7
    everyone = cli("predict", "run", "--out", "all.csv", "--json").json
    assert everyone["nodes"] == 300
    assert len(everyone["unlabelled"]) == 43
    new = cli("predict", "run", "--edges", "edges.csv", "--nodes", "nodes.csv", "--out", "new.csv")
    assert new.status == 0, new.err  # as another graph, in memory and from all neighbours
    names = pl.read_csv("new.csv")
    assert (names["label"] == pl.read_csv("all.csv")["label"]).mean() > 0.7  # pyright: ignore
    pl.DataFrame({"id": ["nobody"]}).write_csv("some.csv")
    unknown = cli("predict", "run", "--nodes", "some.csv", "--out", "u.csv")
    assert "id 'nobody' is not in this graph" in unknown.err
    assert "its graph is a store on disk" in cli("explain", "run", "--node", "x").err


@pytest.mark.slow
def test_what_does_not_fit_a_store_is_said(tmp_path: Path, cli):
    stored(cli, tmp_path)

    def refused(words: str, *flags: str) -> None:
        done = cli("train", *flags, "--out", "never")
        assert done.status == 2
        assert words in done.err, done.err
        assert not Path("never").exists()

    refused("fanout 5,5: it has 2 numbers, and this network reads 4 hops", "--store", "st", "--fanout", "5,5")
    refused("there is no such store", "--store", "nowhere")
    refused("these are two graphs", "karate", "--store", "st")
    refused("it says how to read files", "--store", "st", "--label", "kind")
    refused("--raw with a store: its features are scaled already", "--store", "st", "--raw")
    Path("st/y.bin").unlink()
    refused("y.bin: the file is missing. Restore it from a copy, or convert", "--store", "st")
    Path("st/manifest.json").rename("st/convert.json")
    refused("the store is half written: its conversion was interrupted", "--store", "st")


@pytest.mark.slow
def test_an_interrupted_run_resumes_on_the_same_store_alone(tmp_path: Path, cli):
    stored(cli, tmp_path)
    flags = ("--store", "st", *SMALL, "--epochs", "3")
    assert cli("train", *flags, "--out", "whole").status == 0
    config = build(RunConfig, {**read_json(Path("whole/config.json"))["run"], **_model("whole")}, "config")

    def stop(record: EpochRecord) -> None:
        if record.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(config, "run", on_epoch=stop, checkpoint_seconds=0)
    Path("st").rename("kept")
    stored(cli, tmp_path, fill="mean", dtype="float16")
    other = cli("train", "--resume", "run")
    assert "it is not the one that the run in run was started with" in other.err
    Path("st").rename("other")
    Path("kept").rename("st")
    assert cli("train", "--resume", "run").status == 0
    weights = [Path(name, "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]


def _model(run: str) -> dict[str, object]:
    model = read_json(Path(run, "config.json"))["model"]
    return {"model": model["name"], "options": model["options"]}


def test_long_epochs_say_how_far_they_are(tmp_path: Path, cli, monkeypatch: pytest.MonkeyPatch):
    stored(cli, tmp_path)
    monkeypatch.setattr("node2seq.cli.show.LINE_SECONDS", 0.0)
    done = cli("train", "--store", "st", *SMALL, "--epochs", "1", "--out", "run")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert "residual-node2seq  epoch 1/1  training, 64 of 154 nodes" in lines
    assert "residual-node2seq  epoch 1/1  training, 154 of 154 nodes, 0 s left" in lines
    assert "residual-node2seq  epoch 1/1  measuring, 205 of 205 nodes, 0 s left" in lines
    assert "residual-node2seq  at the end  measuring, 257 of 257 nodes, 0 s left" in lines

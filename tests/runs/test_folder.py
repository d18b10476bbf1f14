"""What a run folder holds, and where the next one goes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from former_options import FORMER

from node2seq import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.runs.folder import RunConfig, RunFolder, Source, free_folder, newest_folder
from node2seq.runs.inference import load_model
from node2seq.runs.training import train_run
from node2seq.train.settings import TrainSettings


def test_what_a_run_folder_holds(finished: Path):
    found = {path.name for path in finished.iterdir()}
    files = {"config.json", "details.json", "metrics.jsonl", "model.safetensors", "split.json"}
    assert found == {".lock", *files}
    config = json.loads((finished / "config.json").read_text())
    assert config["format"] == 1
    assert config["model"]["name"] == "node2seq"
    assert config["model"]["options"]["kernel_size"] == 3  # defaults are written out
    assert config["run"]["seed"] == 3
    assert config["run"]["source"]["name"] == "karate"
    assert config["graph"]["summary"]["nodes"] == 34
    assert len(config["graph"]["sha256"]) == 64
    assert config["environment"]["torch"] == torch.__version__
    split = json.loads((finished / "split.json").read_text())
    assert len(split["train"]) + len(split["val"]) + len(split["test"]) == 34
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines[:-1]] == list(range(1, 13))
    assert lines[-1]["final"] is True
    assert "test" not in " ".join(lines[0])  # test nodes are measured in the last line alone


def test_folder_names(karate: RunConfig, tmp_path: Path):
    assert karate.name == "karate-node2seq-s3"
    assert replace(karate, model="gcn*").name == "karate-gcn-star-s3"
    assert replace(karate, source=Source(nodes="/a/my nodes.csv.gz")).name == "my_nodes-node2seq-s3"
    assert free_folder(tmp_path, "a") == tmp_path / "a"
    assert newest_folder(tmp_path, "a") is None
    for name in ("a", "a-2", "a-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    os.utime(tmp_path / "a" / "config.json", (1, 1))
    assert free_folder(tmp_path, "a") == tmp_path / "a-3"
    assert newest_folder(tmp_path, "a") == tmp_path / "a-2"


def test_what_a_killed_start_left_does_not_block_the_folder(karate: RunConfig, tmp_path: Path):
    (tmp_path / ".lock").touch()
    (tmp_path / "split.json").touch()
    (tmp_path / "config.json.77.part").touch()
    assert RunFolder(tmp_path).is_free
    train_run(karate, tmp_path)
    assert not list(tmp_path.glob("*.part"))


def as_before(folder: Path, **options: object) -> RunFolder:
    """A run folder as earlier versions wrote it: all options under one name."""
    config = json.loads((folder / "config.json").read_text())
    config["model"]["name"] = "node2seq"
    config["model"]["options"] |= {**FORMER, **options}
    (folder / "config.json").write_text(json.dumps(config))
    return RunFolder(folder)


def test_what_is_predicted_does_not_hide_what_is_wrong_with_the_settings(copied: Path):
    config = json.loads((copied / "config.json").read_text())
    config["run"]["settings"]["lr"] = "fast"
    (copied / "config.json").write_text(json.dumps(config))
    with pytest.raises(Node2SeqError, match=r"lr='fast': it should be a number"):
        _ = RunFolder(copied).task


def test_a_folder_of_before_is_the_same_run(copied: Path, finished: Path):
    before, now = as_before(copied), RunFolder(finished)
    assert before.run == now.run
    assert before.run.model == "node2seq"
    assert before.identity != now.identity  # of the file as it was written: its weights carry it
    found = as_before(copied, own="apart", node_dropout=0.2).run
    assert (found.model, found.options.own) == ("node2seq-plus", "apart")
    assert found.differences(now.run) == ["model", "options"]


def test_more_options_with_their_defaults_make_no_other_run(karate: RunConfig):
    plus = replace(karate, model="node2seq-plus", options={**vars(karate.options), **FORMER})
    assert plus.model == "node2seq-plus"
    assert plus.differences(karate) == karate.differences(plus) == []
    assert replace(plus, options={**vars(plus.options), "smoothing": 2}).differences(karate) == [
        "model",
        "options",
    ]


def test_a_config_of_before_trains_the_network_that_it_needs(karate: RunConfig, tmp_path: Path):
    options = {**vars(karate.options), **FORMER, "own": "apart"}
    train_run(replace(karate, options=options, settings=TrainSettings(epochs=1)), tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"]["name"] == "node2seq-plus"
    assert type(load_model(RunFolder(tmp_path / "run"))) is MODELS["node2seq-plus"]

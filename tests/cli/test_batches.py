"""``node2seq train --batch-size``: the same verbs, files and results as on the full batch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from node2seq.runs import training
from node2seq.runs.folder import RunFolder
from node2seq.train import inputs

SMALL = ("--epochs", 4, "--set", "hidden_channels=8")
BATCHES = ("--batch-size", 6, "--fanout", "4,3,2")


@pytest.mark.slow
def test_train_evaluate_and_predict_in_batches(cli, tmp_path: Path):
    done = cli("train", "karate", *SMALL, *BATCHES, "--baseline", "gcn", "--out", "run")
    assert done.status == 0, done.err
    for hops in ("4, 3, 2", "4, 3"):  # the GCN reads two
        words = rf"mini-batches of 6 nodes, neighbours by hop: {hops}, learning rate \S+ instead of 0.01\n"
        assert re.search(words, done.out)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    asked = {"batch_size": 6, "fanout": [4, 3, 2], "workers": 0, "scale_lr": True}
    assert config["run"]["batches"] == asked
    final = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    evaluated = cli("evaluate", "run", "--json").json
    assert evaluated["test"]["accuracy"] == final["metrics"]["test"]["accuracy"]
    assert cli("predict", "run", "--out", "found.csv", "--embeddings", "rows.csv").status == 0
    assert len((tmp_path / "found.csv").read_text().splitlines()) == 35
    assert "batch_size" in (tmp_path / "run" / "report.html").read_text()
    assert (
        cli("train", "karate", *SMALL, *BATCHES, "--workers", 2, "--baseline", "gcn", "--out", "two").status
        == 0
    )
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "two")]
    assert weights[0] == weights[1]


def test_a_run_of_an_earlier_version_keeps_its_learning_rate(cli, tmp_path: Path):
    flags = ("train", "karate", *SMALL, *BATCHES, "--set", "lr=0.02", "--baseline", "gcn", "--out", "run")
    done = cli(*flags)
    assert done.status == 0, done.err
    assert "neighbours by hop: 4, 3, 2\n" in done.out  # a rate of the command line is kept
    assert "neighbours by hop: 4, 3, learning rate" in done.out
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    for run in (config["run"], config["run"]["baseline"]):
        del run["batches"]["scale_lr"]
    file.write_text(json.dumps(config))
    read = RunFolder(tmp_path / "run").run
    assert read.batches is not None
    assert read.baseline is not None
    assert read.baseline.batches is not None
    assert not read.batches.scale_lr
    assert not read.baseline.batches.scale_lr


def test_nothing_is_written_of_batches_that_are_not_there(cli, tmp_path: Path):
    assert cli("train", "karate", *SMALL, "--baseline", "gcn", "--out", "run").status == 0
    assert "batches" not in (tmp_path / "run" / "config.json").read_text()


@pytest.mark.slow
def test_what_does_not_fit_into_memory_is_trained_in_batches(cli, monkeypatch: pytest.MonkeyPatch):
    for module in (inputs, training):
        monkeypatch.setattr(module, "memory_of", lambda _: 20_000)
    done = cli("train", "karate", *SMALL, "--out", "run")
    assert done.status == 0, done.err
    assert "mini-batches of 1024 nodes, neighbours by hop: 10, 10, 10 (the full batch would take" in done.out
    assert "and there are 0.0 GiB)" in done.out
    assert cli("train", "karate", *SMALL, "--out", "run", "--resume").status == 0  # the same run
    far = cli("train", "karate", *SMALL, "--set", "hops=2", "--out", "far")
    assert "It may not fit into memory" in far.out
    assert "chosen in the whole graph" in far.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--fanout", "4,4,4"),
            "--fanout 4,4,4: it is for mini-batches, and this is training on the full batch",
        ),
        (("--workers", 2), "--workers 2: it is for mini-batches"),
        (("--batch-size", 0), "batch size 0: a batch needs at least one node"),
        (("--batch-size", 4, "--fanout", "5"), "fanout 5: it has 1 number, and this network reads 3 hops"),
        (("--batch-size", 4, "--fanout", "5,0,5"), "fanout 5,0,5: 0 is no number of neighbours"),
        (("--batch-size", 4, "--fanout", "5,-2,5"), "fanout 5,-2,5: -2 is no number of neighbours"),
        (("--batch-size", 4, "--fanout", "many"), "--fanout='many': it should be a whole number"),
        (("--batch-size", 4, "--set", "hops=2"), "mini-batches with hops=2: the nodes within several hops"),
        (("--batch-size", 4, "--workers", -1), "workers=-1"),
    ],
)
def test_bad_batches_are_refused_in_a_sentence(cli, tmp_path: Path, flags, words):
    done = cli("train", "karate", *SMALL, *flags, "--out", "run")
    assert done.status == 2
    assert done.err.startswith(f"Error: {words}")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for worker processes in /proc")
def test_killed_while_workers_sample_and_resumed_is_bit_identical(cli, tmp_path: Path):
    arguments = ["train", "karate", "--set", "hidden_channels=8", "--epochs", "40", *map(str, BATCHES)]
    assert cli(*arguments, "--out", "whole").status == 0
    command = [sys.executable, "-m", "node2seq", *arguments, "--workers", "2", "--out", "run"]
    process = subprocess.Popen(
        [*command, "--checkpoint-seconds", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 5/40" in line:
            break
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert len(children) == 2
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert cli("train", "--resume", "run").status == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]
    ends = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{child}") for child in children):  # noqa: PTH110
        assert time.monotonic() < ends, "workers outlive the process that they work for"
        time.sleep(0.5)

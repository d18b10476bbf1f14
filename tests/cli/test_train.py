from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from node2seq.cli import show
from node2seq.runs import folder
from node2seq.train import settings

QUICK = ("--epochs", "4", "--set", "hidden_channels=8")


def test_a_run_with_a_baseline_shows_both_and_keeps_both(cli, tmp_path: Path):
    done = cli("train", "karate", "--baseline", "gcn", *QUICK)
    assert done.status == 0, done.err
    assert "34 nodes, 78 edges, 34 features, 4 classes" in done.out
    assert "│node2seq │" in done.out
    assert "│gcn      │" in done.out
    assert "run folder: runs/karate-node2seq-s0\n" in done.out
    own = tmp_path / "runs" / "karate-node2seq-s0"
    expected = {"config.json", "split.json", "metrics.jsonl", "model.safetensors", "report.html"}
    assert expected <= {path.name for path in own.iterdir()}
    assert expected <= {path.name for path in (own / "baseline-gcn").iterdir()}
    assert (own / "split.json").read_bytes() == (own / "baseline-gcn" / "split.json").read_bytes()


def test_json_is_one_object_and_nothing_else(cli):
    done = cli("train", "karate", "--baseline", "gcn", "--json", *QUICK)
    assert done.status == 0, done.err
    assert done.err == ""
    found = done.json
    assert found["model"] == "node2seq"
    assert found["baseline"]["model"] == "gcn"
    assert 0 <= found["metrics"]["test"]["accuracy"] <= 1
    assert len(found["metrics"]["val"]["per_class"]) == 4
    assert found["run"] == "runs/karate-node2seq-s0"


def test_several_runs_give_mean_and_sample_standard_deviation(cli, tmp_path: Path):
    done = cli("train", "karate", "--runs", "3", "--seed", "5", "--json", *QUICK)
    assert done.status == 0, done.err
    found = done.json
    assert [run["seed"] for run in found["runs"]] == [5, 6, 7]
    accuracies = [run["metrics"]["test"]["accuracy"] for run in found["runs"]]
    assert found["mean"]["test_accuracy"] == pytest.approx(statistics.mean(accuracies))
    assert found["sd"]["test_accuracy"] == pytest.approx(statistics.stdev(accuracies))
    folder = tmp_path / "runs" / "karate-node2seq-s5-x3"
    assert sorted(path.name for path in folder.iterdir()) == ["s5", "s6", "s7", "series.json"]
    shown = cli("train", "--resume", folder)
    assert shown.status == 0, shown.err
    assert f"{100 * found['mean']['test_accuracy']:.1f} ± " in shown.out


def test_several_runs_as_one_program(cli, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("node2seq.runs.series.trains_together", lambda *_: True)  # as on a GPU
    done = cli("train", "karate", "--runs", "2", "--baseline", "gcn", "--out", "both", *QUICK)
    assert done.status == 0, done.err
    assert "node2seq, 2 runs together  epoch" in done.out
    assert "gcn, 2 runs together  epoch" in done.out
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["s0", "s1", "series.json"]
    found = json.loads(cli("train", "--resume", "both", "--json").out)
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    for seed in (0, 1):
        assert (tmp_path / "both" / f"s{seed}" / "report.html").is_file()
        assert (tmp_path / "both" / f"s{seed}" / "baseline-gcn" / "report.html").is_file()


def test_a_series_that_was_stopped_goes_on(cli, tmp_path: Path):
    assert cli("train", "karate", "--runs", "2", "--out", "both", *QUICK).status == 0
    lost = tmp_path / "both" / "s1"
    expected = (lost / "model.safetensors").read_bytes()
    kept = (tmp_path / "both" / "s0" / "model.safetensors").stat().st_mtime_ns
    for path in sorted(lost.iterdir()):
        path.unlink()
    assert cli("train", "--resume", "both").status == 0
    assert (lost / "model.safetensors").read_bytes() == expected
    assert (tmp_path / "both" / "s0" / "model.safetensors").stat().st_mtime_ns == kept


def test_a_finished_folder_is_left_alone_and_a_new_one_numbered(cli, tmp_path: Path):
    for _ in range(2):
        assert cli("train", "karate", *QUICK).status == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ["karate-node2seq-s0", "karate-node2seq-s0-2"]


def test_resume_by_the_same_command_by_folder_and_by_nothing(cli, tmp_path: Path):
    run = tmp_path / "runs" / "karate-node2seq-s0"
    assert cli("train", "karate", *QUICK).status == 0
    expected = (run / "model.safetensors").read_bytes()
    for command in (["karate", "--resume", *QUICK], ["--resume", run], ["--resume"]):
        (run / "model.safetensors").unlink()
        (run / "report.html").unlink()
        done = cli("train", *command)
        assert done.status == 0, done.err
        assert (run / "model.safetensors").read_bytes() == expected
        assert (run / "report.html").exists()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["karate-node2seq-s0"]


def test_resuming_a_finished_run_says_that_nothing_is_left_to_train(cli):
    assert "nothing is left to train" not in cli("train", "karate", *QUICK, "--out", "run").out
    again = cli("train", "--resume", "run")
    first, *others = again.out.splitlines()
    assert first == "node2seq: this run is finished, nothing is left to train → run"
    assert any("run folder: run" in line for line in others)
    assert not any("epoch " in line for line in others[:3])


def test_one_of_a_thing_is_said_as_one(cli):
    done = cli("train", "karate", "--epochs", "1", "--out", "run")
    assert "; 1 component, 0 isolated nodes" in done.out
    assert "node2seq: 1 epoch → run" in done.out


def test_a_config_file_stands_between_recipe_and_command_line(cli, tmp_path: Path):
    (tmp_path / "own.toml").write_text(
        'model = "node2seq"\nseed = 7\nrow_normalize = true\n[source]\nname = "karate"\n'
        '[options]\nkernel_size = 5\nhidden_channels = 8\nreadout = "mean"\n'
        "[settings]\nepochs = 3\nlr = 0.02\n"
    )
    done = cli("train", "--config", "own.toml", "--epochs", "2", "--set", "readout=sum", "--json")
    assert done.status == 0, done.err
    config = json.loads(Path(done.json["run"], "config.json").read_text())
    options, run = config["model"]["options"], config["run"]
    assert (options["kernel_size"], options["readout"]) == (5, "sum")
    assert (run["seed"], run["row_normalize"]) == (7, True)
    assert (run["settings"]["epochs"], run["settings"]["lr"]) == (2, 0.02)


def test_set_reaches_model_and_training(cli):
    done = cli(
        *("train", "karate", "--json", *QUICK, "--set", "conv_weight_decay=0.5", "--set", "patience=none"),
        *("--set", "dropout=0", "--class-weights"),
    )
    assert done.status == 0, done.err
    config = json.loads(Path(done.json["run"], "config.json").read_text())
    assert config["run"]["settings"]["conv_weight_decay"] == 0.5
    assert config["run"]["settings"]["patience"] is None
    assert config["run"]["settings"]["class_weights"] is True
    assert config["model"]["options"]["dropout"] == 0


def test_a_terminal_shows_a_bar_with_time_left(tmp_path: Path, monkeypatch):
    import io

    from rich.console import Console

    from node2seq.cli.show import progress
    from node2seq.train.progress import EpochRecord

    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with progress(console, "node2seq", 10, 0, "accuracy") as on_epoch:
        on_epoch(EpochRecord(10, 0.5, 0.9, 0.6, 0.75, 0.75))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for part in ("node2seq", "10/10", "loss 0.500", "validation 75.0 %", "left"):
        assert part in shown


def test_the_bar_of_a_run_that_stopped_early_is_full():
    import io

    from rich.console import Console

    from node2seq.cli.show import progress
    from node2seq.train.progress import EpochRecord

    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with progress(console, "node2seq", 10, 0, "accuracy") as on_epoch:
        on_epoch(EpochRecord(7, 0.5, 0.9, 0.6, 0.75, 0.75))
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().splitlines()[-2]  # before the cursor is shown again
    assert "7/7" in last
    assert "stopped early" in last
    assert "s left" not in last


@pytest.mark.parametrize("done", [0, 200])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_time_that_is_left_is_right_after_five_epochs(monkeypatch, is_terminal: bool, done: int):
    """Whatever the first epoch takes, which compiles loops, and the one that is slow by chance."""
    import io
    from types import SimpleNamespace

    from rich.console import Console

    from node2seq.cli import show
    from node2seq.train.progress import EpochRecord

    now = 0.0
    monkeypatch.setattr(show, "time", SimpleNamespace(monotonic=lambda: now))
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=200)
    assert isinstance(console.file, io.StringIO)
    progress = show.progress(console, "gcn", done + 500, done, "accuracy")
    with suppress(KeyboardInterrupt), progress as on_epoch:  # a run that ends says no time any more
        for epoch, seconds in enumerate([15.0, 0.03, 0.02, 0.2, 0.04], start=done + 1):
            now += seconds
            on_epoch(EpochRecord(epoch, 0.5, 0.9, 0.6, 0.75, 0.75))
        raise KeyboardInterrupt
    left = [int(number) for number in re.findall(r"(\d+) s left", console.file.getvalue())]
    assert left
    assert 0.5 <= left[-1] / (0.03 * 495) <= 2


def test_elsewhere_a_few_plain_lines():
    import io

    from rich.console import Console

    from node2seq.cli.show import progress
    from node2seq.train.progress import EpochRecord

    console = Console(file=io.StringIO(), width=120)
    with progress(console, "gcn", 100, 0, "accuracy") as on_epoch:
        for epoch in range(1, 101):
            on_epoch(EpochRecord(epoch, 0.5, 0.9, 0.6, 0.75, 0.75))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.split("  ")[1] for line in lines] == ["epoch 1/100", "epoch 5/100", "epoch 100/100"]
    assert lines[0] == "gcn  epoch 1/100  loss 0.500  validation 75.0 %"  # one epoch is no measure
    assert lines[-1] == "gcn  epoch 100/100  loss 0.500  validation 75.0 %  0 s left"


def test_a_series_that_is_stopped_before_its_first_epoch_leaves_nothing(cli, tmp_path: Path, monkeypatch):
    def stop(*_) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(show, "start", stop)
        done = cli("train", "karate", "--runs", "5", "--out", "series")
    assert (done.status, done.err) == (130, "Stopped.\n")
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path):
    import os
    import signal

    command = [sys.executable, "-m", "node2seq", "train", "karate", "--out", "run"]
    process = subprocess.Popen(
        [*command, "--set", "hidden_channels=8", "--epochs", "100000"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("Stopped after epoch ")
    assert err.endswith("the state is saved. Resume with `node2seq train --resume run`.\n")
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_options_are_completed_once_and_nothing_is_read_back(cli, monkeypatch):
    completed, read = [], []
    build = settings.build
    monkeypatch.setattr(settings, "build", lambda *args: completed.append(args) or build(*args))
    for name in ("read_json", "read_lines"):
        known = getattr(folder, name)
        monkeypatch.setattr(folder, name, lambda path, known=known: read.append(path.name) or known(path))
    done = cli(
        "train", "karate", "--epochs", "2", "--set", "kernel_size=2", "--baseline", "gcn", "--out", "r"
    )
    assert done.status == 0
    assert [args[0].__name__ for args in completed] == ["GCNOptions", "Node2SeqOptions"]
    assert not read
    assert Path("r/report.html").is_file()
    assert cli("info", "r").status == 0
    assert read == ["config.json", "split.json", "metrics.jsonl"], (
        "files are read this way, or nothing is tested"
    )

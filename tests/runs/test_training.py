"""One run in its folder: the same as without one, stopped, killed, resumed or refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from node2seq import storage
from node2seq.data import load, make_split
from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.nn.models.network import Network
from node2seq.runs.folder import RunConfig, RunFolder, Source
from node2seq.runs.inference import load_model
from node2seq.runs.training import Stopped, train_run
from node2seq.train import task
from node2seq.train.fitter import fit
from node2seq.train.settings import TrainSettings


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def stop_after(epoch: int):
    def on_epoch(record) -> None:
        if record.epoch == epoch:
            os.kill(os.getpid(), signal.SIGINT)

    return on_epoch


def test_a_run_that_is_stopped_before_its_first_epoch_leaves_nothing(karate: RunConfig, tmp_path: Path):
    def stop(*_) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(karate, tmp_path / "run", on_start=stop)
    assert not (tmp_path / "run").exists()
    train_run(karate, tmp_path / "run")


def test_a_run_that_is_stopped_after_an_epoch_is_kept(karate: RunConfig, tmp_path: Path):
    def stop(*_) -> None:
        raise KeyboardInterrupt  # as by a second Ctrl-C, while the state is not saved

    with pytest.raises(KeyboardInterrupt):
        train_run(karate, tmp_path / "run", on_epoch=stop)
    assert (tmp_path / "run" / "config.json").is_file()
    train_run(karate, tmp_path / "run", resume=True)


def test_a_run_is_the_same_as_fit(karate: RunConfig, finished: Path):
    data = load("karate")
    torch.manual_seed(3)
    model = MODELS["node2seq"](34, 8, 4)
    result = fit(model, data, make_split(data, seed=3), karate.settings)
    outcome = RunFolder(finished).result
    assert outcome.metrics["val"] == result.val
    assert outcome.metrics["test"] == result.test
    assert outcome.best_epoch == result.best.epoch
    for name, tensor in load_model(RunFolder(finished)).state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_a_small_graph_takes_one_thread_so_that_bits_do_not_depend_on_their_number(real_data, tmp_path: Path):
    """Texas has products and sums that two threads cut up in another way than one."""
    real_data("texas", load)
    settings = TrainSettings(epochs=4)
    config = RunConfig(Source("texas"), "gcn", {"hidden_channels": 64}, settings)
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            train_run(
                config, tmp_path / str(threads), on_epoch=lambda _: seen.append(torch.get_num_threads())
            )
            assert torch.get_num_threads() == threads
            assert RunFolder(tmp_path / str(threads)).config["environment"]["threads"] == 1
    finally:
        torch.set_num_threads(before)
    assert seen == [1] * 8
    assert weights(tmp_path / "1") == weights(tmp_path / "2")


@pytest.mark.slow
def test_a_large_graph_takes_all_threads(monkeypatch: pytest.MonkeyPatch, karate: RunConfig, tmp_path: Path):
    monkeypatch.setattr("node2seq.environment._FEW_ENTRIES", 10)
    before, seen = torch.get_num_threads(), set()
    try:
        torch.set_num_threads(2)
        train_run(karate, tmp_path / "run", on_epoch=lambda _: seen.add(torch.get_num_threads()))
    finally:
        torch.set_num_threads(before)
    assert seen == {2}


def test_each_epoch_is_a_json_object_as_soon_as_it_ends(karate: RunConfig, finished: Path, tmp_path: Path):
    seen = []
    train_run(karate, tmp_path / "run", on_epoch=lambda _: seen.append(RunFolder(tmp_path / "run").history))
    final = RunFolder(finished).history
    assert seen == [final[: epoch + 1] for epoch in range(12)]


def test_a_finished_run_with_damaged_weights_is_not_resumed(karate: RunConfig, copied: Path):
    content = bytearray(weights(copied))
    content[-1] ^= 1
    (copied / "model.safetensors").write_bytes(content)
    with pytest.raises(Node2SeqError, match=r"model\.safetensors: its checksum .* restore it from a copy"):
        train_run(karate, copied, resume=True)


@pytest.mark.parametrize("epoch", [1, 6, 11])
def test_stopped_and_resumed_is_bit_identical(karate: RunConfig, epoch: int, finished: Path, tmp_path: Path):
    path = tmp_path / "run"
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match=rf"Stopped after epoch {epoch + 1}; the state is saved\. Resume with"):
        train_run(karate, path, on_epoch=stop_after(epoch))
    assert signal.getsignal(signal.SIGINT) is before
    assert (path / "checkpoint.safetensors").exists()
    assert not RunFolder(path).finished
    started: list[int] = []
    train_run(karate, path, resume=True, on_start=lambda begun: started.append(begun.epoch))
    assert started == [epoch + 1]
    assert weights(path) == weights(finished)
    assert RunFolder(path).result.metrics == RunFolder(finished).result.metrics
    assert RunFolder(path).history == RunFolder(finished).history
    # The order of the neighbours, too, before the interruption and after it.
    assert RunFolder(path).details == RunFolder(finished).details
    assert not (path / "checkpoint.safetensors").exists()


def test_metrics_beyond_the_checkpoint_are_cut_off(karate: RunConfig, finished: Path, tmp_path: Path):
    path = tmp_path / "run"
    with pytest.raises(Stopped):
        train_run(karate, path, on_epoch=stop_after(4))
    metrics = path / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"epoch": 6, "loss": 9}\n{"epo')
    seen: list[str] = []
    train_run(karate, path, resume=True, on_start=lambda begun: seen.append(metrics.read_text()))
    assert [json.loads(line)["epoch"] for line in seen[0].splitlines()] == [1, 2, 3, 4, 5]
    assert RunFolder(path).history == RunFolder(finished).history


def test_resuming_a_finished_run_changes_nothing(karate: RunConfig, copied: Path):
    before = {path.name: path.read_bytes() for path in copied.iterdir() if path.name != ".lock"}
    outcome = train_run(karate, copied, resume=True)
    assert outcome.epochs == 12
    assert {path.name: path.read_bytes() for path in copied.iterdir() if path.name != ".lock"} == before


def test_resuming_where_nothing_is_starts(karate: RunConfig, finished: Path, tmp_path: Path):
    train_run(karate, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(finished)


def test_a_full_disk_while_training_leaves_a_run_that_goes_on(
    karate: RunConfig, finished: Path, tmp_path: Path, monkeypatch
):
    path = tmp_path / "run"
    real, calls = os.fsync, []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 15:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(storage.os, "fsync", fsync)
    with pytest.raises(Node2SeqError, match=r"checkpoint\.safetensors: the disk is full.*train --resume"):
        train_run(karate, path, checkpoint_seconds=0)
    monkeypatch.undo()
    assert not list(path.glob("*.part"))
    train_run(karate, path, resume=True)
    assert weights(path) == weights(finished)


@pytest.mark.parametrize(("file", "call"), [(".lock-holder", 0), ("split.json", 1), ("config.json", 3)])
def test_a_full_disk_at_the_start_leaves_nothing(
    karate: RunConfig, tmp_path: Path, monkeypatch, file: str, call: int
):
    calls = []

    def fails(*_args: object, **_options: object) -> None:
        calls.append(1)
        if call in (0, len(calls)):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((storage.os, "fsync") if call else (Path, "write_text")), fails)
    with pytest.raises(Node2SeqError, match=f"{file}: the disk is full"):
        train_run(karate, tmp_path / "run")
    assert not (tmp_path / "run").exists()


TINY_DISK = """
set -e
mount -t tmpfs -o size=120k tmpfs "$1"
trap 'umount "$1"' EXIT
"$2" -m node2seq train karate --epochs 12 --out "$1/run" --checkpoint-seconds 0 2>&1 || echo "status $?"
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_really_full(tmp_path: Path):
    command = ["unshare", "-m", "bash", "-c", TINY_DISK, "tiny", str(tmp_path), sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "mount:" in done.stdout + done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    assert "the disk is full. Free some space, then resume with `node2seq train --resume " in done.stdout
    assert "status 2" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_nothing_is_left_of_a_run_that_cannot_start(karate: RunConfig, tmp_path: Path):
    with pytest.raises(Node2SeqError, match="data set 'nope': no such name"):
        train_run(replace(karate, source=Source(name="nope")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_graph_without_edges_is_not_trained_on(karate: RunConfig, tmp_path: Path):
    data = load("karate")
    data.edge_index = torch.empty(2, 0, dtype=torch.int64)
    with pytest.raises(Node2SeqError, match="the graph karate: it has no edges between different nodes"):
        train_run(karate, tmp_path / "run", data=data)
    assert not (tmp_path / "run").exists()


def test_figures_that_were_edited_are_named_in_plain_words(copied: Path):
    metrics = copied / "metrics.jsonl"
    *epochs, last = metrics.read_text().splitlines()
    final = json.loads(last)
    final["metrics"]["val"]["per_class"][0]["colour"] = "red"
    metrics.write_text("\n".join([*epochs, json.dumps(final)]) + "\n")
    with pytest.raises(Node2SeqError) as caught:
        _ = RunFolder(copied).result
    assert str(caught.value) == (
        f"{metrics}: its last line does not hold the figures of a run. "
        "Restore the file from a copy, or train again."
    )


def test_a_checkpoint_beside_an_edited_config_is_refused(karate: RunConfig, tmp_path: Path):
    path = tmp_path / "run"
    with pytest.raises(Stopped):
        train_run(karate, path, on_epoch=stop_after(2))
    values = json.loads((path / "config.json").read_text())
    values["run"]["settings"]["lr"] = 0.5
    (path / "config.json").write_text(json.dumps(values))
    config = RunFolder(path).run
    message = "it was written with another config.json or split.json than the ones beside it"
    with pytest.raises(Node2SeqError, match=re.escape(message)):
        train_run(config, path, resume=True)


def test_resuming_with_other_settings_is_refused(karate: RunConfig, copied: Path):
    with pytest.raises(Node2SeqError) as caught:
        train_run(replace(karate, seed=4, settings=TrainSettings(epochs=5)), copied, resume=True)
    assert caught.value.reason == "the run there was started with another seed, settings"


def test_a_run_is_never_overwritten(karate: RunConfig, copied: Path, tmp_path: Path):
    with pytest.raises(Node2SeqError) as caught:
        train_run(karate, copied)
    assert caught.value.reason == "it holds a finished run, and nothing is overwritten"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with pytest.raises(Node2SeqError, match="contains something other than a run"):
        train_run(karate, tmp_path / "thesis")


def test_a_run_is_built_measured_and_written_once(karate: RunConfig, tmp_path: Path, monkeypatch):
    built, measured, read = [], [], []
    make, measure, open_path = Network._make, task.measure, Path.open

    def watched(path: Path, mode: str = "r", *args, **kwargs):
        if "r" in mode:
            read.append(path.name)
        return open_path(path, mode, *args, **kwargs)

    monkeypatch.setattr(
        Network, "_make", lambda *args: built.append(torch.empty(0).device.type) or make(*args)
    )
    monkeypatch.setattr(task, "measure", lambda *args: measured.append(args) or measure(*args))
    monkeypatch.setattr(Path, "open", watched)
    monkeypatch.setattr(Path, "read_bytes", lambda path: watched(path, "rb").read())
    result = train_run(karate, tmp_path / "run")
    # Before, the sizes are worked out without memory.
    assert built == ["meta", "cpu"]
    assert len(measured) == len(result.metrics) == 3
    assert not {"config.json", "split.json", "metrics.jsonl", "model.safetensors"} & set(read)
    assert RunFolder(tmp_path / "run").result == result
    assert {"config.json", "metrics.jsonl"} <= set(read), "files are read this way, or nothing is tested"

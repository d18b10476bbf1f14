from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from node2seq.storage import files as storage
from node2seq.data import load, make_split
from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.runs.inference import evaluate_run, load_model, predict_run
from node2seq.runs.interrupt import Stopped
from node2seq.runs.result import RunResult
from node2seq.runs.training import train_run
from node2seq.runs.folder import RunConfig, RunFolder, Source, free_folder, newest_folder
from node2seq.train.settings import TrainSettings
from node2seq.train.fitter import fit

KARATE = RunConfig(
    source=Source(name="karate"), options={"hidden_channels": 8}, settings=TrainSettings(epochs=12), seed=3
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that tests must not change."""
    path = tmp_path_factory.mktemp("runs") / "karate"
    train_run(KARATE, path)
    return path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "karate"))


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def stop_after(epoch: int):
    def on_epoch(record) -> None:
        if record.epoch == epoch:
            os.kill(os.getpid(), signal.SIGINT)

    return on_epoch


def test_a_run_is_the_same_as_fit(finished: Path):
    data = load("karate")
    torch.manual_seed(3)
    model = MODELS["node2seq"](34, 8, 4)
    result = fit(model, data, make_split(data, seed=3), KARATE.settings)
    outcome = RunResult.of(RunFolder(finished))
    assert outcome.metrics["val"] == result.val
    assert outcome.metrics["test"] == result.test
    assert outcome.best_epoch == result.best.epoch
    for name, tensor in load_model(RunFolder(finished)).state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_what_a_run_folder_holds(finished: Path):
    found = {path.name for path in finished.iterdir()}
    assert found == {".lock", "config.json", "metrics.jsonl", "model.safetensors", "split.json"}
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


def test_evaluating_gives_the_figures_of_training(finished: Path):
    assert evaluate_run(finished) == RunResult.of(RunFolder(finished)).metrics


def test_predicting_gives_every_node(finished: Path):
    prediction = predict_run(finished, embeddings=True)
    assert prediction.probabilities.shape == (34, 4)
    assert prediction.embeddings is not None
    assert prediction.embeddings.shape == (34, 8)
    assert prediction.node_ids == list(range(34))
    assert set(prediction.labels) <= {"0", "1", "2", "3"}


@pytest.mark.parametrize("epoch", [1, 6, 11])
def test_stopped_and_resumed_is_bit_identical(epoch: int, finished: Path, tmp_path: Path):
    path = tmp_path / "run"
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match=rf"Stopped after epoch {epoch + 1}; the state is saved\. Resume with"):
        train_run(KARATE, path, on_epoch=stop_after(epoch))
    assert signal.getsignal(signal.SIGINT) is before
    assert (path / "checkpoint.safetensors").exists()
    assert not RunFolder(path).finished
    started: list[int] = []
    train_run(KARATE, path, resume=True, on_start=lambda begun: started.append(begun.epoch))
    assert started == [epoch + 1]
    assert weights(path) == weights(finished)
    assert RunResult.of(RunFolder(path)).metrics == RunResult.of(RunFolder(finished)).metrics
    assert RunFolder(path).history() == RunFolder(finished).history()
    assert not (path / "checkpoint.safetensors").exists()


def test_metrics_beyond_the_checkpoint_are_cut_off(finished: Path, tmp_path: Path):
    path = tmp_path / "run"
    with pytest.raises(Stopped):
        train_run(KARATE, path, on_epoch=stop_after(4))
    metrics = path / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"epoch": 6, "loss": 9}\n{"epo')
    seen: list[str] = []
    train_run(KARATE, path, resume=True, on_start=lambda begun: seen.append(metrics.read_text()))
    assert [json.loads(line)["epoch"] for line in seen[0].splitlines()] == [1, 2, 3, 4, 5]
    assert RunFolder(path).history() == RunFolder(finished).history()


def test_resuming_a_finished_run_changes_nothing(copied: Path):
    before = {path.name: path.read_bytes() for path in copied.iterdir() if path.name != ".lock"}
    outcome = train_run(KARATE, copied, resume=True)
    assert outcome.epochs == 12
    assert {path.name: path.read_bytes() for path in copied.iterdir() if path.name != ".lock"} == before


def test_resuming_where_nothing_is_starts(finished: Path, tmp_path: Path):
    train_run(KARATE, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(finished)


def test_a_full_disk_while_training_leaves_a_run_that_goes_on(finished: Path, tmp_path: Path, monkeypatch):
    path = tmp_path / "run"
    real, calls = os.fsync, []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 15:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(storage.os, "fsync", fsync)
    with pytest.raises(Node2SeqError, match=r"checkpoint.safetensors: the disk is full\. Free some space"):
        train_run(KARATE, path, checkpoint_seconds=0)
    monkeypatch.undo()
    assert not list(path.glob("*.part"))
    train_run(KARATE, path, resume=True)
    assert weights(path) == weights(finished)


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
    assert "the disk is full. Free some space, then resume with `--resume`" in done.stdout
    assert "status 2" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_nothing_is_left_of_a_run_that_cannot_start(tmp_path: Path):
    with pytest.raises(Node2SeqError, match="data set 'nope': no such name"):
        train_run(replace(KARATE, source=Source(name="nope")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_folder_names(tmp_path: Path):
    assert KARATE.name == "karate-node2seq-s3"
    assert replace(KARATE, model="gcn*").name == "karate-gcn-star-s3"
    assert replace(KARATE, source=Source(nodes="/a/my nodes.csv.gz")).name == "my_nodes-node2seq-s3"
    assert free_folder(tmp_path, "a") == tmp_path / "a"
    assert newest_folder(tmp_path, "a") is None
    for name in ("a", "a-2", "a-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    os.utime(tmp_path / "a" / "config.json", (1, 1))
    assert free_folder(tmp_path, "a") == tmp_path / "a-3"
    assert newest_folder(tmp_path, "a") == tmp_path / "a-2"


def test_what_a_killed_start_left_does_not_block_the_folder(tmp_path: Path):
    (tmp_path / ".lock").touch()
    (tmp_path / "split.json").touch()
    (tmp_path / "config.json.77.part").touch()
    assert RunFolder(tmp_path).is_free
    train_run(KARATE, tmp_path)
    assert not list(tmp_path.glob("*.part"))


def edit(name: str, change):
    def apply(path: Path) -> None:
        file = path / name
        values = json.loads(file.read_text())
        change(values)
        file.write_text(json.dumps(values))

    return apply


def content(name: str, change):
    return lambda path: (path / name).write_bytes(change((path / name).read_bytes()))


DAMAGE = {
    "no folder": (lambda path: shutil.rmtree(path), "{run}: there is no such run folder. Check the path."),
    "no config": (
        lambda path: (path / "config.json").unlink(),
        "{run}: it has no config.json, so it is not a run folder. Give a folder that `node2seq train` made.",
    ),
    "truncated config": (content("config.json", lambda b: b[:100]), "{run}/config.json: it is not JSON"),
    "later version": (
        edit("config.json", lambda c: c.update(format=99)),
        "{run}/config.json: format=99: it was written by a later version of node2seq; this one reads formats "
        "up to 1. Update with `pip install --upgrade node2seq`.",
    ),
    "no version": (
        edit("config.json", lambda c: c.pop("format")),
        "{run}/config.json: format: it is missing. Restore the file from a copy.",
    ),
    "no model": (
        edit("config.json", lambda c: c.pop("model")),
        "{run}/config.json: model: it is missing. Restore the file from a copy.",
    ),
    "unknown model": (
        edit("config.json", lambda c: c["model"].update(name="node3seq")),
        "model 'node3seq': there is no such model. Perhaps node2seq was meant.",
    ),
    "unknown option": (
        edit("config.json", lambda c: c["model"]["options"].update(kernels=3)),
        "{run}/config.json: kernels: there is no such setting.",
    ),
    "wrong type": (
        edit("config.json", lambda c: c["run"].update(seed="three")),
        "{run}/config.json: seed='three': it should be a whole number. Give a value of that kind.",
    ),
    "unknown setting": (
        edit("config.json", lambda c: c["run"]["settings"].update(epoch=3)),
        "{run}/config.json: settings: epoch: there is no such setting. Perhaps epochs was meant.",
    ),
    "edited seed": (
        edit("config.json", lambda c: c["run"].update(seed=4)),
        "{run}/model.safetensors: it was trained with another config.json or split.json than the ones "
        "beside it. Undo the edit of those files, or train again.",
    ),
    "edited split": (
        edit("split.json", lambda s: s["test"].pop()),
        "{run}/model.safetensors: it was trained with another config.json or split.json",
    ),
    "no split": (lambda path: (path / "split.json").unlink(), "{run}/split.json: there is no such file."),
    "truncated weights": (
        content("model.safetensors", lambda b: b[:-9]),
        "{run}/model.safetensors: it is not a whole safetensors file",
    ),
    "pickle as weights": (
        content("model.safetensors", lambda b: b"\x80\x04K\x01."),
        "{run}/model.safetensors: it is a pickle under another name, and opening a pickle can run any "
        "program. Save the weights as safetensors.",
    ),
    "unfinished": (
        lambda path: (path / "model.safetensors").unlink(),
        "{run}: the run is not finished. Finish it with `node2seq train --resume {run}`.",
    ),
    "truncated metrics": (
        content("metrics.jsonl", lambda b: b[:200]),
        "{run}/metrics.jsonl: the line with the final figures is missing. Restore the file.",
    ),
    "another graph": (
        edit("config.json", lambda c: c["graph"].update(sha256="0" * 64)),
        "{run}/model.safetensors: it was trained with another config.json or split.json",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_run_folders(case: str, copied: Path):
    change, message = DAMAGE[case]
    change(copied)
    with pytest.raises(Node2SeqError) as caught:
        evaluate_run(copied)
    assert str(caught.value).startswith(message.format(run=copied))


def test_a_checkpoint_beside_an_edited_config_is_refused(tmp_path: Path):
    path = tmp_path / "run"
    with pytest.raises(Stopped):
        train_run(KARATE, path, on_epoch=stop_after(2))
    edit("config.json", lambda c: c["run"]["settings"].update(lr=0.5))(path)
    config = RunFolder(path).run
    message = "it was written with another config.json or split.json than the ones beside it"
    with pytest.raises(Node2SeqError, match=re.escape(message)):
        train_run(config, path, resume=True)


def test_resuming_with_other_settings_is_refused(copied: Path):
    with pytest.raises(Node2SeqError) as caught:
        train_run(replace(KARATE, seed=4, settings=TrainSettings(epochs=5)), copied, resume=True)
    assert caught.value.reason == "the run there was started with another seed, settings"


def test_a_run_is_never_overwritten(copied: Path, tmp_path: Path):
    with pytest.raises(Node2SeqError) as caught:
        train_run(KARATE, copied)
    assert caught.value.reason == "it holds a finished run, and nothing is overwritten"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with pytest.raises(Node2SeqError, match="there is something else than a run in it"):
        train_run(KARATE, tmp_path / "thesis")

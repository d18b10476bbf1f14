"""Runs of a series, trained together: folders as of single runs, and nothing lost by a stop or a kill."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from node2seq.errors import Node2SeqError
from node2seq.runs import series
from node2seq.runs.folder import RunConfig, RunFolder, RunResult, Source
from node2seq.runs.inference import evaluate_run
from node2seq.runs.series import train_series
from node2seq.runs.training import RunStart, Stopped, train_run
from node2seq.train.progress import EpochRecord
from node2seq.train.settings import TrainSettings

KARATE = RunConfig(
    source=Source(name="karate"),
    options={"hidden_channels": 8},
    settings=TrainSettings(epochs=35, patience=20),
)


def runs_in(home: Path, config: RunConfig = KARATE) -> list[tuple[RunConfig, Path]]:
    return [(replace(config, seed=seed), home / f"s{seed}") for seed in (3, 4, 5)]


def weights(home: Path) -> list[bytes]:
    return [(path / "model.safetensors").read_bytes() for _, path in runs_in(home)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunResult]]:
    """A series that was trained without a break."""
    home = tmp_path_factory.mktemp("series")
    return home, train_series(runs_in(home), home)


def test_each_folder_is_as_of_a_single_run(whole, tmp_path):
    """Up to rounding, which many epochs in float32 make more of: the first ones are compared."""
    home, outcomes = whole
    for (config, path), outcome in zip(runs_in(home), outcomes, strict=True):
        alone = train_run(config, tmp_path / path.name)
        assert outcome.folder.path == path
        assert outcome.metrics["val"] == evaluate_run(path)["val"]
        assert {file.name for file in path.iterdir()} == {f.name for f in alone.folder.path.iterdir()}
        ours, theirs = RunFolder(path).history, RunFolder(alone.folder.path).history
        for line, other in zip(ours[:10], theirs[:10], strict=True):
            assert line.keys() == other.keys()
            assert line["epoch"] == other["epoch"]
            assert line["loss"] == pytest.approx(other["loss"], rel=1e-5)
            assert line["val_loss"] == pytest.approx(other["val_loss"], rel=1e-5)
        best = min(ours, key=lambda line: (-line["val_accuracy"], line["val_loss"], line["epoch"]))
        assert outcome.best_epoch == best["epoch"]
    assert not list(home.glob("*.safetensors"))


def test_a_finished_series_is_read_and_not_trained(whole):
    home, outcomes = whole
    seen: list[RunStart] = []
    assert train_series(runs_in(home), home, on_start=seen.append) == outcomes
    assert not seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_and_resumed_is_bit_identical(whole, tmp_path, number):
    def stop(record: EpochRecord) -> None:
        if record.epoch == 20:
            os.kill(os.getpid(), number)

    with pytest.raises(Stopped, match=f"--resume {tmp_path}"):
        train_series(runs_in(tmp_path), tmp_path, on_epoch=stop)
    begun: list[RunStart] = []
    train_series(runs_in(tmp_path), tmp_path, on_start=begun.append)
    assert begun[0].epoch == 30  # the next look after the signal
    assert weights(tmp_path) == weights(whole[0])


def test_a_kill_costs_what_was_trained_since_the_last_checkpoint(whole, tmp_path):
    class Killed(BaseException):
        pass

    def kill(record: EpochRecord) -> None:
        if record.epoch == 20:
            raise Killed

    with pytest.raises(Killed):
        train_series(runs_in(tmp_path), tmp_path, on_epoch=kill, checkpoint_seconds=0.0)
    begun: list[RunStart] = []
    train_series(runs_in(tmp_path), tmp_path, on_start=begun.append)
    assert begun[0].epoch == 20
    assert weights(tmp_path) == weights(whole[0])


def test_a_kill_while_runs_are_kept_trains_none_anew(whole, tmp_path, monkeypatch):
    real, kept = RunFolder.write_result, []

    def keep_one(folder: RunFolder, *args) -> None:
        if kept:
            raise KeyboardInterrupt
        kept.append(folder)
        real(folder, *args)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_result", keep_one)
        with pytest.raises(KeyboardInterrupt):
            train_series(runs_in(tmp_path), tmp_path)
    assert [RunFolder(path).finished for _, path in runs_in(tmp_path)] == [True, False, False]
    seen: list[EpochRecord] = []
    train_series(runs_in(tmp_path), tmp_path, on_epoch=seen.append)
    assert not seen
    assert weights(tmp_path) == weights(whole[0])


def test_what_does_not_fit_is_trained_in_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(series, "runs_that_fit", lambda *_: 2)
    begun: list[RunStart] = []
    outcomes = train_series(runs_in(tmp_path), tmp_path, on_start=begun.append)
    assert [start.config.seed for start in begun] == [3, 5]
    assert [outcome.config.seed for outcome in outcomes] == [3, 4, 5]


def test_runs_that_fail_say_why(tmp_path):
    wild = replace(KARATE, settings=TrainSettings(epochs=35, lr=1e38))
    with pytest.raises(Node2SeqError, match=r"lr=1e\+38: the loss became"):
        train_series(runs_in(tmp_path, wild), tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))
    assert not RunFolder(tmp_path / "s3").finished
    seen: list[EpochRecord] = []
    with pytest.raises(Node2SeqError, match=r"s3: this run failed and would fail again \(lr=1e\+38"):
        train_series(runs_in(tmp_path, wild), tmp_path, on_epoch=seen.append)
    assert not seen, "what fails for sure is not trained again"
    with pytest.raises(Node2SeqError, match=r"it holds a failed run.* Give another folder with `--out`\.$"):
        train_run(wild, tmp_path / "s3")
    with pytest.raises(Node2SeqError, match="this run failed and would fail again"):
        evaluate_run(tmp_path / "s3")


def test_a_series_with_other_settings_is_refused(whole):
    home, _ = whole
    other = replace(KARATE, settings=TrainSettings(epochs=12))
    with pytest.raises(Node2SeqError, match="the run there was started with another settings"):
        train_series(runs_in(home, other), home)

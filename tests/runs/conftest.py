"""A small run, finished once for all tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.training import train_run
from node2seq.train.settings import TrainSettings


@pytest.fixture(scope="session")
def karate() -> RunConfig:
    """A run that takes a moment."""
    return RunConfig(
        source=Source(name="karate"),
        options={"hidden_channels": 8},
        settings=TrainSettings(epochs=12),
        seed=3,
    )


@pytest.fixture(scope="session")
def finished(karate: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that tests must not change."""
    path = tmp_path_factory.mktemp("runs") / "karate"
    train_run(karate, path)
    return path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "karate"))

"""A small run, finished once for all tests."""

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

from node2seq import storage
from node2seq.data import load, make_split
from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.runs.inference import evaluate_run, load_model, predict_run
from node2seq.runs.training import Stopped
from node2seq.runs.folder import RunResult
from node2seq.runs.training import train_run
from node2seq.runs.folder import RunConfig, RunFolder, Source, free_folder, newest_folder
from node2seq.train.settings import TrainSettings
from node2seq.train.fitter import fit

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

"""Epochs replayed as a CUDA graph: the same bits as without, for one run and for many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.data import fold_numbers, load, make_split
from node2seq.nn.models import MODELS
from node2seq.train.cross_fitting import FOLDS
from node2seq.train.fitter import Fitter
from node2seq.train.settings import TrainSettings
from node2seq.train.trainer import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")

SETTINGS = TrainSettings(epochs=25, averaging=0.5, views=2, consistency=0.5)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODELS},
    "mean": ("node2seq", {"readout": "mean"}),
    "non-local": ("node2seq", {"hops": 2}),
    "plus": ("node2seq-plus", {"own": "apart", "norm": "layer", "smoothing": 2, "taps": "depthwise"}),
    "directed": ("node2seq-plus", {"directed": True, "order": "random"}),
}


@pytest.fixture(scope="module")
def data() -> Data:
    return load("karate").to("cuda")


def make_model(case: str, seed: int) -> nn.Module:
    name, options = CASES[case]
    torch.manual_seed(seed)
    return MODELS[name](34, 16, 4, **options).cuda()


@pytest.mark.parametrize("case", CASES)
def test_one_run_captured_ends_in_the_same_bits(data, case):
    split = make_split(data, seed=0)
    ends = []
    for capture in (False, True):
        fitter = Fitter(make_model(case, 0), data, split, SETTINGS, capture=capture)
        while not fitter.done:
            fitter.step()
        ends.append((fitter.finish(), fitter.model.state_dict(), fitter.captured))
    assert ends[0][2] == 0
    assert ends[1][2] > 0
    assert ends[0][0] == ends[1][0]
    assert all(torch.equal(value, ends[1][1][name]) for name, value in ends[0][1].items())


def train_stack(data: Data, case: str, capture: bool) -> tuple[int, str | None, list[Any], dict[str, Tensor]]:
    splits = [make_split(data, seed=seed) for seed in range(3)]
    trainer = Trainer(
        [make_model(case, seed) for seed in range(3)],
        data,
        splits,
        [replace(SETTINGS, lr=0.01 * (run + 1)) for run in range(3)],
        folds=[fold_numbers(split.val.numel(), FOLDS, split.seed) for split in splits],
        capture=capture,
    )
    trainer.advance(SETTINGS.epochs)
    trainer.finish()
    known = [[run.history for run in trainer.runs], trainer.cross_fitted(), trainer.results()]
    refused = None if trainer.replay is None else trainer.replay.refused
    return trainer.captured, refused, known, trainer.model.state_dict()


@pytest.mark.parametrize("case", CASES)
def test_many_runs_captured_end_in_the_same_bits(data, case):
    plain, captured = (train_stack(data, case, capture) for capture in (False, True))
    assert plain[0] == 0
    assert captured[1] is None
    assert captured[0] > 0
    assert plain[2] == captured[2]
    assert all(torch.equal(value, captured[3][name]) for name, value in plain[3].items())

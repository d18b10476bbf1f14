"""Many runs together: each ends where it ends alone, up to rounding, in float64 on a real graph."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from node2seq.data import load, make_split
from node2seq.nn.models import MODELS
from node2seq.recipes import Recipe
from node2seq.train.fitter import fit
from node2seq.train.many import (
    Progress,
    Training,
    TrainingOutcome,
    prepare_graph,
    train_many,
    untrained,
)
from node2seq.train.progress import FitResult
from node2seq.train.settings import TrainSettings
from node2seq.train.trainer import Trainer

RUNS = 3
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODELS},
    "mean": ("node2seq", {"readout": "mean", "position": 1, "root": "input", "skip": "concat"}),
    "non-local": ("node2seq", {"hops": 2}),
    "local first": ("node2seq", {"hops": 2, "nonlocal_order": "local-first", "position": 3}),
    "random order": ("node2seq", {"order": "random"}),
    "degree order": ("node2seq", {"order": "degree", "readout": "sum"}),
    "plus": ("node2seq", {"own": "apart", "norm": "layer", "smoothing": 2, "taps": "depthwise"}),
    "directed": ("node2seq", {"directed": True, "taps": "scalar"}),
}
ACTIVE = {"views": 2, "consistency": 0.7, "averaging": 0.8, "label_smoothing": 0.1, "class_weights": True}


@pytest.fixture(scope="module")
def data() -> Data:
    graph = load("karate")
    assert graph.x is not None
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(graph.x.size(0), 12, generator=generator, dtype=torch.float64)
    return Data(x=noise, edge_index=graph.edge_index, y=graph.y)


def trainings(data: Data, case: str, **settings: Any) -> list[Training]:
    """Runs that differ in everything that may differ, and in how long they take."""
    model, options = OPTIONS[case]
    made = []
    for run in range(RUNS):
        own: dict[str, Any] = {"input_dropout": (0.0, 0.5, 0.3)[run]}
        if model != "sgc":
            own["dropout"] = (0.4, 0.0, 0.6)[run]
        if model.startswith("node2seq"):
            own |= {"threshold": (0.0, 0.2, -0.1)[run], "conv_scale": (1.0, 0.1, 0.5)[run]}
        recipe = Recipe(
            {"hidden_channels": 8, **options, **own},
            TrainSettings(
                epochs=(10, 7, 12)[run],
                lr=(0.01, 0.03, 0.02)[run],
                weight_decay=(5e-4, 0.0, 1e-2)[run],
                conv_weight_decay=(None, 0.1, 0.0)[run],
                patience=(None, None, 6)[run],
                **settings,
            ),
            row_normalize=True,
        )
        whole = make_split(data, "60/20/20", seed=run)
        split = replace(whole, train=whole.train[run:], val=whole.val[: len(whole.val) - run])
        made.append(Training(model, recipe, split, seed=run))
    return made


def train_alone(data: Data, training: Training) -> tuple[FitResult, nn.Module]:
    graph = prepare_graph(data, training.recipe)
    model = untrained(training, graph)
    return fit(model, graph, training.split, training.recipe.settings), model


def assert_same(outcome: TrainingOutcome, result: FitResult, model: nn.Module) -> None:
    # What stands ahead of a batch normalisation may have a gradient of rounding errors alone: Adam scales it.
    normalized = any(isinstance(module, nn.BatchNorm1d) for module in model.modules())
    close = 1e-6 if normalized else 1e-9
    assert outcome.error is None
    assert outcome.result is not None
    assert outcome.model is not None
    assert outcome.result.best.epoch == result.best.epoch
    assert len(outcome.result.history) == len(result.history)
    for ours, theirs in zip(outcome.result.history, result.history, strict=True):
        assert ours.val_accuracy == theirs.val_accuracy
        assert ours.train_accuracy == theirs.train_accuracy
        assert ours.loss == pytest.approx(theirs.loss, abs=close)
        assert ours.val_loss == pytest.approx(theirs.val_loss, abs=close)
    for part in ("train", "val", "test"):
        assert getattr(outcome.result, part).accuracy == getattr(result, part).accuracy
    alone = model.state_dict()
    assert alone.keys() == outcome.model.state_dict().keys()
    for name, weight in outcome.model.state_dict().items():
        if weight.is_floating_point():
            assert weight.dtype == torch.float64
            assert torch.allclose(weight, alone[name], rtol=0, atol=close), name


# Each kind of layer, readout and network once; what differs from these in one option is slow.
QUICK = ("node2seq", "mean", "non-local", "plus", "gcn", "gat", "mlp", "residual-node2seq")


@pytest.mark.parametrize(
    "case", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in OPTIONS]
)
def test_each_run_ends_where_it_ends_alone(data, case):
    runs = trainings(data, case, optimizer="nadam" if case == "lgcn" else "adam")
    outcomes = train_many(data, runs, keep_models=True)
    for training, outcome in zip(runs, outcomes, strict=True):
        assert_same(outcome, *train_alone(data, training))


@pytest.mark.parametrize("case", ["node2seq", "gcn"])
def test_the_same_runs_together_give_the_same_bits(data, case):
    runs = trainings(data, case)
    first, second = (train_many(data, runs, keep_models=True) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.result == other.result
        assert one.model is not None
        assert other.model is not None
        weights = other.model.state_dict()
        assert all(torch.equal(value, weights[name]) for name, value in one.model.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("case", ["node2seq", "non-local", "gat"])
def test_each_run_ends_where_it_ends_alone_on_cornell(real_data, case):
    cornell = real_data("cornell", load)
    data = Data(x=cornell.x.double(), edge_index=cornell.edge_index, y=cornell.y)
    runs = trainings(data, case)
    for training, outcome in zip(runs, train_many(data, runs, keep_models=True), strict=True):
        assert_same(outcome, *train_alone(data, training))


@pytest.mark.parametrize("case", ["node2seq", pytest.param("lgcn", marks=pytest.mark.slow)])
def test_views_averages_and_smoothed_labels_are_each_runs_own(data, case):
    runs = []
    for run, training in enumerate(trainings(data, case)):
        active = {name: value for i, (name, value) in enumerate(ACTIVE.items()) if i != run + 1}
        settings = replace(
            training.recipe.settings, views=2, **{k: v for k, v in active.items() if k != "views"}
        )
        runs.append(replace(training, recipe=replace(training.recipe, settings=settings)))
    for training, outcome in zip(runs, train_many(data, runs, keep_models=True), strict=True):
        assert_same(outcome, *train_alone(data, training))


def test_a_run_that_fails_leaves_the_others_as_they_are(data):
    runs = trainings(data, "node2seq")
    wild = replace(runs[1].recipe.settings, lr=1e300)
    runs[1] = replace(runs[1], recipe=replace(runs[1].recipe, settings=wild))
    outcomes = train_many(data, runs, keep_models=True)
    assert outcomes[1].result is None
    assert outcomes[1].model is None
    assert outcomes[1].error is not None
    assert outcomes[1].error.startswith("lr=1e+300: the loss became ")
    for run in (0, 2):
        assert_same(outcomes[run], *train_alone(data, runs[run]))


def test_runs_are_told_of_and_can_be_ended(data):
    runs = trainings(data, "gcn")
    runs = [
        replace(t, recipe=replace(t.recipe, settings=replace(t.recipe.settings, epochs=40, patience=None)))
        for t in runs
    ]
    seen: list[Progress] = []

    def end_the_second(progress: Progress) -> list[bool]:
        seen.append(progress)
        return [False, progress.epoch >= 20, False]

    outcomes = train_many(data, runs, on_epoch=end_the_second)
    lengths = [len(outcome.result.history) for outcome in outcomes if outcome.result is not None]
    assert lengths == [40, 20, 40]
    assert [progress.epoch for progress in seen] == [10, 20, 30]
    assert all(progress.members == (0, 1, 2) for progress in seen)
    for run, outcome in enumerate(outcomes):
        assert outcome.result is not None
        so_far = max(record.val_accuracy for record in outcome.result.history[:20])
        assert seen[1].best[run] == so_far


def test_training_continues_without_the_runs_that_ended(data, monkeypatch):
    runs = [*trainings(data, "node2seq", averaging=0.3), *trainings(data, "node2seq", label_smoothing=0.2)]
    for number, epochs in enumerate((40, 5, 12, 45, 3, 22)):
        settings = replace(runs[number].recipe.settings, epochs=epochs, patience=None)
        runs[number] = replace(runs[number], recipe=replace(runs[number].recipe, settings=settings))
    sizes: list[int] = []
    whole = Trainer.take
    monkeypatch.setattr(Trainer, "take", lambda *args: sizes.append(len(args[1])) or whole(*args))
    for training, outcome in zip(runs, train_many(data, runs, keep_models=True), strict=True):
        assert_same(outcome, *train_alone(data, training))
    assert sizes == [3, 3, 2, 1]  # ended and left, at epochs 20 and 40


@pytest.mark.slow
def test_shapes_and_memory_decide_about_groups_and_the_order_stays(data):
    mixed = [trainings(data, case)[run] for run in range(2) for case in ("gcn", "mlp", "mean")]
    groups: list[tuple[int, ...]] = []

    def note(progress: Progress) -> None:
        groups.append(progress.members)

    longer = [
        replace(t, recipe=replace(t.recipe, settings=replace(t.recipe.settings, epochs=12, patience=None)))
        for t in mixed
    ]
    together = train_many(data, longer, on_epoch=note, keep_models=True)
    assert groups == [(0, 3), (1, 4), (2, 5)]
    groups.clear()
    one_by_one = train_many(data, longer, on_epoch=note, keep_models=True, max_bytes=1)
    assert groups == [(0,), (3,), (1,), (4,), (2,), (5,)]
    for training, outcome, other in zip(longer, together, one_by_one, strict=True):
        alone = train_alone(data, training)
        assert_same(outcome, *alone)
        assert_same(other, *alone)
        assert type(outcome.model) is MODELS[training.model]


def test_one_name_of_before_for_two_networks_makes_two_programs(data):
    runs = trainings(data, "node2seq")
    dropping = replace(runs[1].recipe, options={**runs[1].recipe.options, "node_dropout": 0.3})
    runs[1] = replace(runs[1], recipe=dropping)
    outcomes = train_many(data, runs, keep_models=True)
    assert [type(outcome.model).__name__ for outcome in outcomes] == ["Node2Seq", "Node2SeqPlus", "Node2Seq"]
    for training, outcome in zip(runs, outcomes, strict=True):
        assert_same(outcome, *train_alone(data, training))


def test_runs_that_do_not_fit_together_are_halved_and_what_failed_is_let_go(data, monkeypatch):
    runs = trainings(data, "mean")
    expected = train_many(data, runs, keep_models=True)
    started: list[tuple[int, weakref.ref[Trainer]]] = []
    alive: list[int] = []
    advance = Trainer.advance

    def tight(trainer: Trainer, epochs: int) -> None:
        if not started or started[-1][1]() is not trainer:
            alive.append(sum(seen() is not None for _, seen in started))
            started.append((len(trainer.runs), weakref.ref(trainer)))
        if len(trainer.runs) > 1:
            raise torch.OutOfMemoryError
        advance(trainer, epochs)

    monkeypatch.setattr(Trainer, "advance", tight)
    gc.collect()
    gc.disable()  # memory has to be free at once, not when somebody looks for cycles
    try:
        found = train_many(data, runs, keep_models=True)
    finally:
        gc.enable()
    assert [size for size, _ in started] == [3, 1, 2, 1, 1]
    assert alive == [0] * 5
    for one, together in zip(found, expected, strict=True):
        assert together.result is not None
        assert together.model is not None
        assert_same(one, together.result, together.model)
    monkeypatch.setattr(Trainer, "advance", refuse)
    with pytest.raises(torch.OutOfMemoryError):
        train_many(data, runs)


def refuse(*_: object) -> None:
    raise torch.OutOfMemoryError

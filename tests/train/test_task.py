"""Numbers as labels: loss, scale, metrics and the chosen epoch, beside what numpy computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_graph import Parts, Tiny, make_graph
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data import make_split
from node2seq.errors import Node2SeqError
from node2seq.train import TrainSettings, evaluate, fit, predict
from node2seq.train.many import Training, train_many
from node2seq.train.measured import NumberMetrics, metrics_from_dict
from node2seq.train.metrics import shown
from node2seq.train.settings import Recipe

SETTINGS = TrainSettings(epochs=40, lr=0.05, weight_decay=0.0, metric="r2")


def numbers_graph() -> tuple[Data, Parts]:
    data, split = make_graph()
    assert data.x is not None
    data.y = 5000 + 300 * data.x[:, 0].double() - 200 * data.x[:, 1].double()
    return data, split


def model(seed: int = 0) -> Tiny:
    torch.manual_seed(seed)
    return Tiny(8, 1)


@pytest.mark.parametrize("metric", ["r2", "mae", "rmse"])
def test_metrics_are_those_of_the_predicted_numbers(metric: str):
    data, split = numbers_graph()
    assert isinstance(data.y, Tensor)
    network = model()
    result = fit(network, data, split, replace(SETTINGS, metric=metric))
    assert isinstance(result.test, NumberMetrics)
    assert result.test == evaluate(network, data, split.test, result.task)
    true, found = data.y[split.test].numpy(), predict(network, data, result.task)[split.test].numpy()
    mean = data.y[split.train].mean().item()
    for name, guess in (("", found), ("mean_", np.full_like(true, mean))):
        errors = guess - true
        assert getattr(result.test, f"{name}mae") == pytest.approx(np.abs(errors).mean())
        assert getattr(result.test, f"{name}rmse") == pytest.approx(np.sqrt((errors**2).mean()))
        expected = 1 - (errors**2).sum() / ((true - true.mean()) ** 2).sum()
        assert getattr(result.test, f"{name}r2") == pytest.approx(expected)
    assert result.test.beats_trivial(metric)
    best = max(result.history, key=lambda record: (record.val_score, -record.val_loss, -record.epoch))
    assert result.best == best
    value = result.val.value(metric)
    assert value == pytest.approx(-best.val_score if metric in ("mae", "rmse") else best.val_score)
    assert metrics_from_dict(result.test.to_dict()) == result.test


def test_the_loss_is_of_standardised_numbers():
    data, split = numbers_graph()
    assert isinstance(data.y, Tensor)
    own = data.y[split.train]
    target = ((own - own.mean()) / own.std(correction=0)).float()
    output = model().train()(data.x, data.edge_index)[split.train, 0]
    for loss, expected in (("mse", (output - target).square()), ("mae", (output - target).abs())):
        result = fit(model(), data, split, replace(SETTINGS, epochs=1, loss=loss))
        assert result.history[0].loss == pytest.approx(expected.mean().item(), rel=1e-6)


def test_runs_trained_together_have_the_scale_of_their_own_training_nodes():
    data, _ = numbers_graph()
    recipe = Recipe({"hidden_channels": 8}, replace(SETTINGS, epochs=12))
    trainings = [Training("gcn", recipe, make_split(data, seed=s), s, cross_fit=True) for s in (0, 1)]
    together = train_many(data, trainings)
    alone = [train_many(data, [training])[0] for training in trainings]
    for one, other in zip(together, alone, strict=True):
        assert one.result is not None
        assert other.result is not None
        assert one.result.task == other.result.task
        assert one.result.val.value("r2") == pytest.approx(other.result.val.value("r2"), abs=1e-3)
        assert one.cross_fitted == pytest.approx(other.cross_fitted, abs=1e-3)
        assert one.cross_fitted is not None
        assert one.cross_fitted <= one.result.best.val_score + 1e-9
    assert together[0].result is not None
    assert together[1].result is not None
    assert together[0].result.task != together[1].result.task


def test_unlabelled_nodes_are_in_no_part_of_a_split():
    data, _ = numbers_graph()
    assert isinstance(data.y, Tensor)
    data.y[:10] = torch.nan
    split = make_split(data, seed=3)
    assert [part.numel() for part in (split.train, split.val, split.test)] == [30, 10, 10]
    assert min(int(part.min()) for part in (split.train, split.val, split.test)) >= 10
    with pytest.raises(Node2SeqError, match="it counts nodes of each class, and there are no classes"):
        make_split(data, "20/500/rest")
    parts = Parts(torch.tensor([1, 20]), split.val, split.test[:1])
    with pytest.raises(Node2SeqError, match="train node 1: 1 of the train nodes have no label"):
        fit(model(), data, parts, SETTINGS)


def test_equal_numbers_have_no_r2_but_can_be_trained_on():
    data, split = numbers_graph()
    data.y = torch.full((60,), 7.0)
    result = fit(model(), data, split, replace(SETTINGS, epochs=2))
    assert result.val.value("r2") is None
    assert any("the same number" in text for text in result.warnings)


def test_numbers_are_shown_as_numbers_and_shares_in_percent():
    assert shown("mae", -16330.42) == "16330"
    assert shown("mae", 0.012345) == "0.01235"
    assert shown("r2", 0.8444) == "0.844"
    assert shown("accuracy", 0.8444, " %") == "84.4 %"
    assert shown("r2", None) == "–"

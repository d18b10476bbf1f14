"""Steps of Adam and NAdam beside those of torch; averages of the weights are judged, kept and resumed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from tiny_graph import SETTINGS, assert_same_weights, make_graph, make_model
from torch import Tensor, nn

from node2seq.train.fitter import Fitter, fit
from node2seq.train.inference import evaluate


def test_conv_weight_decay_reaches_the_node2seq_group_alone():
    data, split = make_graph()
    plain, decayed = make_model(), make_model()
    one = replace(SETTINGS, epochs=1, weight_decay=0.0)
    fit(plain, data, split, one)
    fit(decayed, data, split, replace(one, conv_weight_decay=100.0))
    assert torch.equal(plain.own.weight, decayed.own.weight)
    assert not torch.equal(plain.near.weight, decayed.near.weight)


@pytest.mark.parametrize(
    ("optimizer", "theirs", "close"),
    # NAdam of torch keeps its product of momenta in 32 bits.
    [("adam", torch.optim.Adam, 1e-12), ("nadam", torch.optim.NAdam, 1e-7)],
)
def test_steps_are_those_of_torch(optimizer, theirs, close):
    data, split = make_graph()
    assert data.x is not None
    assert isinstance(data.y, Tensor)
    data.x = data.x.double()
    ours, twin = make_model().double(), make_model().double()
    settings = replace(SETTINGS, optimizer=optimizer, conv_weight_decay=0.02)
    fitter = Fitter(ours, data, split, settings)
    groups = [
        {"params": twin.near.parameters(), "weight_decay": 0.02},
        {"params": twin.own.parameters(), "weight_decay": settings.weight_decay},
    ]
    reference = theirs(groups, lr=settings.lr)
    for _ in range(12):
        fitter.step()
        reference.zero_grad()
        nn.functional.cross_entropy(
            twin(data.x, data.edge_index)[split.train], data.y[split.train]
        ).backward()
        reference.step()
    for name, weight in twin.named_parameters():
        assert torch.allclose(ours.get_parameter(name), weight, rtol=0, atol=close), name


def test_averaged_weights_are_judged_and_kept():
    data, split = make_graph()
    settings = replace(SETTINGS, averaging=0.15)
    model, seen = make_model(), make_model()
    fitter = Fitter(seen, data, split, settings)
    average = {name: weight.detach().clone() for name, weight in seen.named_parameters()}
    kept = []
    for step in range(6):
        fitter.step()
        share = min(0.15, (1 + step) / (10 + step))
        for name, weight in seen.named_parameters():
            average[name] = share * average[name] + (1 - share) * weight.detach()
        kept.append({name: weight.clone() for name, weight in average.items()})
    result = fit(model, data, split, replace(settings, epochs=6))
    for name, weight in model.named_parameters():
        assert torch.allclose(weight, kept[result.best.epoch - 1][name], atol=1e-6), name
    assert result.val == evaluate(model, data, split.val)
    assert result.val.value("accuracy") == result.best.val_accuracy


def test_interrupted_averages_resume():
    data, split = make_graph()
    settings = replace(SETTINGS, averaging=0.9)
    whole, half = make_model(), make_model()
    expected = fit(whole, data, split, settings)
    first = Fitter(half, data, split, settings)
    for _ in range(7):
        first.step()
    model = make_model(seed=99)
    second = Fitter(model, data, split, settings)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    while not second.done:
        second.step()
    assert second.finish() == expected
    assert_same_weights(model, whole)

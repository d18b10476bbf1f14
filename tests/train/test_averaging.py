"""Averages of the weights: what is judged, kept and resumed."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from tiny_graph import SETTINGS, assert_same_weights, make_graph, make_model

from node2seq.train.fitter import Fitter, fit
from node2seq.train.inference import evaluate


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
    assert result.val.accuracy == result.best.val_accuracy


def test_interrupted_averages_go_on():
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

"""Which settings matter."""

from __future__ import annotations

import random

from node2seq.search.report import importances
from node2seq.search.space import Choice, Space, Uniform, stratified
from node2seq.search.trials import Trial


def test_importance_finds_the_setting_that_matters():
    space = Space({"a": Choice((1, 2))}, {"b": Uniform(0.0, 1.0), "c": Uniform(0.0, 1.0)})
    draw = random.Random(3)
    trials = []
    for number, settings in enumerate(stratified(space.ranges, 80, draw)):
        value = 0.5 + 0.2 * (settings["b"] > 0.5) + 0.02 * draw.random()
        trials.append(Trial(number, settings, "", {100: value}))
    trials.append(Trial(80, {"a": 1, "b": 0.0, "c": 0.0}, "", {100: None}))
    trials.append(Trial(81, {"a": 1, "b": 0.0, "c": 0.0}, "", {101: 0.9}))
    found = importances(space, trials, (100,))
    assert next(iter(found)) == "b"
    assert found["b"] > 0.95
    assert found["a"] < 0.1
    assert found["c"] < 0.15

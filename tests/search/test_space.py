"""Ranges: every value has a place, draws cover them evenly, and what is near differs a little."""

from __future__ import annotations

import random

from node2seq.search.space import Choice, LogUniform, Uniform, near, stratified


def test_every_value_has_a_place_and_is_found_there_again():
    for known in (
        Choice((1, "a", None)),
        Uniform(-0.2, 0.2),
        LogUniform(1e-5, 0.1),
        LogUniform(1e-3, 1, 0.25),
    ):
        for place in (0.0, 0.1, 0.3, 0.5, 0.77, 1.0):
            value = known.at(place)
            assert known.at(known.place_of(value)) == value, known
    assert LogUniform(1e-3, 1.0, zero=0.25).at(0.2) == 0.0
    assert LogUniform(1e-3, 1.0).at(0.5) == 0.0316
    assert Uniform(0.0, 1.0).place_of(7.0) == 1.0


def test_draws_cover_each_range_evenly():
    drawn = stratified({"a": Choice((1, 2, 3)), "b": Uniform(0.0, 1.0)}, 30, random.Random(0))
    assert sorted(settings["a"] for settings in drawn) == [1] * 10 + [2] * 10 + [3] * 10
    tenths = sorted(int(settings["b"] * 10) for settings in drawn)
    assert tenths == sorted(list(range(10)) * 3)


def test_what_is_near_differs_a_little():
    ranges = {"a": Uniform(0.0, 1.0), "b": LogUniform(0.01, 1.0)}
    draw = random.Random(0)
    start = {"a": 0.5, "b": 0.1}
    found = [near(ranges, start, 0.05, draw) for _ in range(200)]
    assert (
        sum(settings != start for settings in found) > 190
    )  # the others moved by less than three digits show
    assert all(0.3 < settings["a"] < 0.7 for settings in found)
    assert {settings["a"] == 0.5 for settings in found} == {True, False}

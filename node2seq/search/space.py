"""What may be chosen: a range for each setting, in which every value has a place between 0 and 1."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]

    def at(self, place: float) -> Any:
        """The value at a place from 0 up to 1."""
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]

    def place_of(self, value: Any) -> float:
        """The place of a value; one from outside is in the middle, that of a number at the nearest end."""
        return (self.values.index(value) + 0.5) / len(self.values) if value in self.values else 0.5


@dataclass(frozen=True)
class Uniform:
    """A number of an interval, drawn uniformly."""

    low: float
    high: float

    def at(self, place: float) -> float:  # noqa: D102
        return _readable(self.low + place * (self.high - self.low))

    def place_of(self, value: float) -> float:  # noqa: D102
        return _inside((value - self.low) / (self.high - self.low))


@dataclass(frozen=True)
class LogUniform:
    """A positive number of an interval, drawn uniformly in its logarithm; 0 with probability ``zero``."""

    low: float
    high: float
    zero: float = 0.0

    def at(self, place: float) -> float:  # noqa: D102
        if place < self.zero:
            return 0.0
        share = (place - self.zero) / (1.0 - self.zero)
        return _readable(self.low * (self.high / self.low) ** share)

    def place_of(self, value: float) -> float:  # noqa: D102
        if value <= 0.0:
            return self.zero / 2
        share = _inside(math.log(value / self.low) / math.log(self.high / self.low))
        return self.zero + share * (1.0 - self.zero)


#: The values that a setting may take.
Range = Choice | Uniform | LogUniform


@dataclass(frozen=True)
class Space:
    """The settings that are searched.

    Args:
        shape: Those that decide about sizes and branches: runs that differ in one are programs of their own.
        free: Those in which the runs of one program may differ.
    """

    shape: Mapping[str, Range] = field(default_factory=dict)
    free: Mapping[str, Range] = field(default_factory=dict)

    @property
    def ranges(self) -> dict[str, Range]:
        """All of them."""
        return {**self.shape, **self.free}

    def without(self, names: Mapping[str, Any]) -> Space:
        """The space with some settings left out, because they are fixed."""
        shape = {name: known for name, known in self.shape.items() if name not in names}
        return Space(shape, {name: known for name, known in self.free.items() if name not in names})

    def with_choices(self, choices: Mapping[str, Choice]) -> Space:
        """The space with some settings limited to a few values; those it did not have decide about shapes."""
        free = {name: choices.get(name, known) for name, known in self.free.items()}
        new = {name: choice for name, choice in choices.items() if name not in free}
        return Space({**self.shape, **new}, free)


def stratified(ranges: Mapping[str, Range], count: int, draw: random.Random) -> list[Settings]:
    """Draw settings such that each range is covered evenly, however few they are: a Latin hypercube."""
    drawn: list[Settings] = [{} for _ in range(count)]
    for name, known in ranges.items():
        places = [(stratum + draw.random()) / count for stratum in range(count)]
        draw.shuffle(places)
        for settings, place in zip(drawn, places, strict=True):
            settings[name] = known.at(place)
    return drawn


def near(ranges: Mapping[str, Range], settings: Settings, step: float, draw: random.Random) -> Settings:
    """Settings close by: half of them moved, one at least, by about ``step`` of their ranges."""
    moved = [name for name in ranges if draw.random() < 0.5] or draw.sample(list(ranges), min(1, len(ranges)))
    changed = dict(settings)
    for name in moved:
        known = ranges[name]
        changed[name] = known.at(_inside(known.place_of(settings[name]) + draw.gauss(0.0, step)))
    return changed


def _inside(place: float) -> float:
    return min(max(place, 0.0), 1.0)


def _readable(value: float) -> float:
    """Three digits: a fourth is noise to a training and a burden to a reader."""
    return float(f"{value:.3g}")

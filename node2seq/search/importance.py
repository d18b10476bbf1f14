"""Which settings matter: how much of the differences between trials each one explains by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from node2seq.search.space import Choice, Space
from node2seq.search.trials import Trial

# Numbers are compared in so many groups of equal size.
_GROUPS = 4


def importances(space: Space, trials: Sequence[Trial], seeds: Sequence[int]) -> dict[str, float]:
    """Each setting's share of the variance of the mean validation accuracy, the largest first.

    Epsilon squared of a one-way analysis of variance: the share that the setting's groups explain beyond
    what groups drawn by chance would. Shares of settings that act together do not add up to 1.

    Args:
        space: What was searched.
        trials: What was tried; only those with a figure for each of the seeds count.
        seeds: The splits to compare on.
    """
    judged = [t for t in trials if t.accuracies.keys() >= set(seeds) and math.isfinite(t.mean(seeds))]
    values = [trial.mean(seeds) for trial in judged]
    found = {}
    for name, known in space.ranges.items():
        if isinstance(known, Choice):
            groups = [str(trial.settings[name]) for trial in judged]
        else:
            groups = _quantiles([known.place_of(trial.settings[name]) for trial in judged])
        found[name] = _explained(groups, values)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _explained(groups: Sequence[object], values: Sequence[float]) -> float:
    members: dict[object, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        members.setdefault(group, []).append(value)
    free = len(values) - len(members)
    if len(members) < 2 or free < 1:
        return 0.0
    centre = fmean(values)
    total = sum((value - centre) ** 2 for value in values)
    within = sum((value - fmean(group)) ** 2 for group in members.values() for value in group)
    if total <= 0.0:
        return 0.0
    return max(0.0, (total - within - (len(members) - 1) * within / free) / total)


def _quantiles(places: Sequence[float]) -> list[int]:
    """The group of each place, by rank; equal places are in one group."""
    first = {place: rank for rank, place in reversed(list(enumerate(sorted(places))))}
    return [first[place] * _GROUPS // len(places) for place in places]

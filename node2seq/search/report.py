"""The page of a search: trial by trial, how much each setting matters, the best ten, the recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pvariance

from node2seq import __version__
from node2seq.recipes import network_for
from node2seq.reporting.charts import Curve, history_chart
from node2seq.reporting.document import (
    Beside,
    Block,
    Cards,
    Chart,
    Grid,
    Heading,
    Paragraph,
    Section,
    Shaded,
    pairs,
    plain,
    to_html,
)
from node2seq.search.session import Request, SearchResult
from node2seq.search.space import Choice, Space
from node2seq.search.trials import Trial, best_of
from node2seq.storage import write_bytes
from node2seq.train.metrics import METRIC_TITLES, shown, title_with_unit
from node2seq.train.settings import settings_of

SHOWN = 10


def write_summary(path: Path, request: Request, found: SearchResult) -> None:
    """Write the page of a search."""
    write_bytes(path, render(request, found).encode())


def render(request: Request, found: SearchResult) -> str:
    """Return the page of a search as text."""
    trials, seeds = list(found.trials), request.plan.first_seeds
    judged = _judged(trials, seeds)
    metric = found.recipe.settings.metric
    title = METRIC_TITLES[metric]
    trainings, cut = sum(len(trial.accuracies) for trial in trials), sum(trial.pruned for trial in trials)
    lead = (
        f"{len(trials)} trials{f', {cut} of them cut short' if cut else ''}; {trainings} trainings "
        f"in {sum(t.seconds for t in trials):.0f} s; "
        f"chosen on validation {title}, without the test nodes of each split"
    )
    if not found.finished:
        lead += "; the search has not ended"
    blocks: list[Block] = [
        Heading(f"Settings of {request.model} for {request.source.title}", 1),
        Paragraph(lead, "lead"),
        Paragraph(found.verdict, "verdict"),
        Cards(
            {
                f"validation {title}": shown(metric, found.best.mean(), " %"),
                "standard deviation": shown(metric, found.best.deviation, " %"),
                "splits": str(len(found.best.accuracies)),
                "trial": str(found.best.number),
            }
        ),
        Beside(
            [
                Section("Trial by trial", _history(trials, seeds, found.best, metric)),
                Section("How much each setting matters", _importance(found, judged, seeds)),
            ]
        ),
        Section("The best trials" + (", in %" if title_with_unit(metric) != title else ""), [_best(found)]),
        Section("The recipe", pairs(settings_of(network_for(request.model, request.space), found.recipe))),
        Paragraph(f"node2seq {__version__}", "footer"),
    ]
    return to_html(blocks)


def _history(trials: Sequence[Trial], seeds: Sequence[int], best: Trial, metric: str) -> list[Block]:
    whole = [(trial.number, trial.mean(seeds)) for trial in _judged(trials, seeds)]
    short = [(trial.number, value) for trial in trials if trial.pruned and (value := _when_cut_short(trial))]
    if not whole:
        return []
    values = [value for _, value in whole]
    so_far = [max(values[: place + 1]) for place in range(len(values))]
    chart = history_chart(
        f"Validation {METRIC_TITLES[metric]} by trial",
        [_curve("mean of a trial", whole), _curve("cut short", short)],
        _curve("best so far", list(zip([number for number, _ in whole], so_far, strict=True))),
        best.number,
        "trial",
        lambda value: shown(metric, value, " %"),
    )
    caption = f"means over the first {len(seeds)} splits; trial 0 is the default"
    return [Chart(chart), Paragraph(caption, "caption")]


def _curve(label: str, points: Sequence[tuple[float, float]]) -> Curve:
    return Curve(label, [value for _, value in points], [number for number, _ in points])


def _when_cut_short(trial: Trial) -> float | None:
    values = [value for value in trial.accuracies.values() if value is not None]
    return fmean(values) if values else None


def _importance(found: SearchResult, judged: Sequence[Trial], seeds: Sequence[int]) -> list[Block]:
    if len(judged) < _FEW:
        return [Paragraph(f"{len(judged)} whole trials are too few to tell; it takes {_FEW}.")]
    lines = [
        [name, Shaded(f"{100 * share:.0f}", share), plain(found.best.settings[name])]
        for name, share in importances(found.space, judged, seeds).items()
    ]
    caption = f"share of the variance between {len(judged)} trials that a setting explains by itself, in %"
    return [Grid(["setting", "share", "chosen"], lines, caption)] if lines else []


def _judged(trials: Sequence[Trial], seeds: Sequence[int]) -> list[Trial]:
    return [t for t in trials if t.accuracies.keys() >= set(seeds) and math.isfinite(t.mean(seeds))]


def _best(found: SearchResult) -> Grid:
    by_splits = sorted(best_of(found.trials), key=lambda trial: -len(trial.accuracies))
    best = [found.best, *(t for t in by_splits if t is not found.best and math.isfinite(t.mean()))][:SHOWN]
    metric, names = found.recipe.settings.metric, list(found.space.ranges)
    # A column that says the same of all only pushes others out of sight.
    names = [name for name in names if len({plain(trial.settings[name]) for trial in best}) > 1]
    rows = []
    for trial in best:
        epochs = fmean(epoch for epoch in trial.epochs.values() if epoch is not None)
        mean, deviation = (shown(metric, value) for value in (trial.mean(), trial.deviation))
        figures = [mean, deviation, f"{epochs:.0f}"]
        settings = [plain(trial.settings[name]) for name in names]
        rows.append([str(trial.number), str(len(trial.accuracies)), *figures, *settings])
    caption = "the chosen one first, then by splits and mean, with the settings in which they differ"
    return Grid(["trial", "splits", "mean", "sd", "epoch", *names], rows, caption)


# Numbers are compared in this many groups of equal size.
_GROUPS = 4
# With fewer trials, what groups explain is chance.
_FEW = 2 * _GROUPS


def importances(space: Space, trials: Sequence[Trial], seeds: Sequence[int]) -> dict[str, float]:
    """Each setting's share of the variance of the mean validation accuracy, the largest first.

    Epsilon squared of a one-way analysis of variance: the share that the setting's groups explain beyond
    what groups drawn by chance would. Shares of settings that act together do not add up to 1.

    Args:
        space: What was searched.
        trials: What was tried; only those with a figure for each of the seeds count.
        seeds: The splits to compare on.
    """
    judged = _judged(trials, seeds)
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
    members = [
        [v for g, v in zip(groups, values, strict=True) if g == group] for group in dict.fromkeys(groups)
    ]
    free = len(values) - len(members)
    if len(members) < 2 or free < 1:
        return 0.0
    within, total = (sum(pvariance(some) * len(some) for some in parts) for parts in (members, [values]))
    return max(0.0, (total - within - (len(members) - 1) * within / free) / total) if total > 0.0 else 0.0


def _quantiles(places: Sequence[float]) -> list[int]:
    """The group of each place, by rank; equal places are in one group."""
    first = {place: rank for rank, place in reversed(list(enumerate(sorted(places))))}
    return [first[place] * _GROUPS // len(places) for place in places]

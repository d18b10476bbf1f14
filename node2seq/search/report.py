"""A search → one self-contained HTML page: what was tried, what mattered, what was chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from node2seq import __version__
from node2seq.reporting import page
from node2seq.reporting.charts import Line, line_chart
from node2seq.search.importance import importances
from node2seq.search.session import Found, Request
from node2seq.search.trials import Trial, best_of
from node2seq.storage.files import write_bytes
from node2seq.train.recipe import settings_of

SHOWN = 10


def write_summary(path: Path, request: Request, found: Found) -> None:
    """Write the page of a search."""
    write_bytes(path, render(request, found).encode())


def render(request: Request, found: Found) -> str:
    """Return the page of a search as text."""
    trials, seeds = list(found.trials), request.plan.first_seeds
    judged = [t for t in trials if t.accuracies.keys() >= set(seeds) and math.isfinite(t.mean(seeds))]
    trainings = sum(len(trial.accuracies) for trial in trials)
    lead = (
        f"{len(trials)} settings, {trainings} trainings in {sum(t.seconds for t in trials):.0f} s; "
        "chosen on validation accuracy, without the test nodes of each split"
    )
    if not found.finished:
        lead += "; the time was spent before the search had ended"
    sections = [
        page.cards(
            {
                "validation accuracy": page.percent(found.best.mean()),
                "standard deviation": page.percent(found.best.deviation),
                "splits": str(len(found.best.accuracies)),
                "trial": str(found.best.number),
            }
        ),
        page.beside(
            page.section("Trial by trial", _history(judged, seeds, found.best)),
            page.section("How much each setting matters", _importance(found, judged, seeds)),
        ),
        page.section(f"The best {SHOWN}, in %", _best(found)),
        page.section("The recipe", page.pairs(settings_of(request.model, found.recipe))),
    ]
    title = f"Settings of {request.model} for {request.source.title}"
    return page.html(title, lead, sections, f"node2seq {__version__}")


def _history(judged: Sequence[Trial], seeds: Sequence[int], best: Trial) -> str:
    if best not in judged:
        return ""
    values = [trial.mean(seeds) for trial in judged]
    so_far = [max(values[: number + 1]) for number in range(len(values))]
    chart = line_chart(
        "Validation accuracy by trial",
        [Line("mean of a trial", "first", values), Line("best so far", "second", so_far)],
        judged.index(best) + 1,
        show_value=lambda value: f"{100 * value:.1f} %",
        over="trial",
    )
    return f'<div class="charts"><figure>{chart}</figure></div>'


def _importance(found: Found, judged: Sequence[Trial], seeds: Sequence[int]) -> str:
    rows = [
        page.row(
            name, f'<td class="hit" style="--share:{share:.3f}">{100 * share:.0f}</td>' + page.cell(chosen)
        )
        for name, share in importances(found.space, judged, seeds).items()
        for chosen in [page.plain(found.best.settings[name])]
    ]
    caption = f"share of the variance between {len(judged)} trials that a setting explains by itself, in %"
    heads = page.head(["setting", "share", "chosen"])
    return page.framed(heads + "".join(rows), "confusion", caption) if rows else ""


def _best(found: Found) -> str:
    by_splits = sorted(best_of(found.trials), key=lambda trial: -len(trial.accuracies))
    names = list(found.space.ranges)
    rows = []
    for trial in [found.best, *(t for t in by_splits if t is not found.best)][:SHOWN]:
        if math.isfinite(trial.mean()):
            epochs = fmean(epoch for epoch in trial.epochs.values() if epoch is not None)
            figures = [f"{100 * trial.mean():.1f}", f"{100 * trial.deviation:.1f}", f"{epochs:.0f}"]
            settings = [page.plain(trial.settings[name]) for name in names]
            rows.append([str(trial.number), str(len(trial.accuracies)), *figures, *settings])
    return page.table(["trial", "splits", "mean", "sd", "epoch", *names], rows)

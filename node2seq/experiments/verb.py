"""The verb ``reproduce``, whichever way it was called."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from node2seq.experiments.cells import RUNS, Cell, Key, choose_cells, runs_of
from node2seq.experiments.check import STATED_TOLERANCE, Comparison, check_rows
from node2seq.experiments.progress import Say, progress
from node2seq.experiments.render import render
from node2seq.experiments.samples import costs_of
from node2seq.experiments.store import RowStore
from node2seq.experiments.workers import orphaned_keys, reproduce, stale_keys


@dataclass(frozen=True)
class Request:
    """What the command line asks for.

    Args:
        tables: ``1`` to ``6``, or one of ours: see ``TABLES`` of :mod:`node2seq.experiments.paper`.
            None: the paper's.
        columns: Only these columns.
        models: Only these models.
        runs: Seeds 0 to runs − 1 of each cell.
        jobs: Processes at once.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        budget_seconds: Stop after so much time; the same command goes on later.
        check: Instead, make so many random rows again and compare.
        check_seed: Which rows; another draw each time if not given.
        list_only: Instead, list the cells.
        retire: First move rows of past recipes away.
        render_only: Instead, render the rows that are there.
        epochs: At most so many epochs, for a trial in a folder of its own.
        results: Where the rows are kept.
        docs: Where the rendered tables go; None renders nothing after training.
        data_root: The folder of the data sets.
        commit: What the rows say of the code, where there is no checkout.
    """

    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    runs: int = RUNS
    jobs: int = 1
    device: str = "auto"
    budget_seconds: float | None = None
    check: int | None = None
    check_seed: int | None = None
    list_only: bool = False
    retire: bool = False
    render_only: bool = False
    epochs: int | None = None
    results: Path = Path("results")
    docs: Path | None = None
    data_root: str | None = None
    commit: str | None = None


def run(request: Request, say: Say, live: bool = False) -> int:
    """Do what was asked for; the exit status.

    Args:
        request: What to do.
        say: Prints a line.
        live: Whether a table may be drawn in place.
    """
    cells = choose_cells(request.tables, request.columns, request.models)
    if request.list_only:
        return _list(cells, request, say)
    if request.check is not None:
        return _check(cells, request, say)
    if request.render_only:
        return _render(request, say)
    runs = runs_of(cells, request.runs, request.epochs)
    store = RowStore(request.results)
    if request.retire and (stale := [*stale_keys(store, runs), *orphaned_keys(store, cells)]):
        say(f"{store.retire(stale)} rows of past recipes moved to {store.retired_path}")
    started, before = time.monotonic(), sum(run.key in store.rows for run in runs)
    say(f"{len(cells)} cells, {len(runs)} runs, {before} of them done; rows in {store.path}")
    with progress(runs, store.rows, say, live) as on_rows:
        missing = reproduce(
            runs,
            str(request.results),
            device=request.device,
            jobs=request.jobs,
            budget_seconds=request.budget_seconds,
            root=request.data_root,
            commit=request.commit,
            on_rows=on_rows,
        )
    made = len(runs) - missing - before
    say(f"{made} runs made in {time.monotonic() - started:.1f} s; {missing} of {len(runs)} are missing")
    store.refresh()
    for cost in costs_of([store.rows[run.key] for run in runs if run.key in store.rows]):
        say(f"All calls so far: {cost.runs} of these runs in {cost.wall_seconds:.1f} s on {cost.device}")
    if request.docs is not None:
        _render(request, say)
    return 0


def _list(cells: list[Cell], request: Request, say: Say) -> int:
    store = RowStore(request.results)
    for cell in cells:
        done = sum(Key(*cell, seed) in store.rows for seed in range(request.runs))
        say(f"{cell}  {done}/{request.runs}")
    say(f"{len(cells)} cells")
    return 0


def _check(cells: list[Cell], request: Request, say: Say) -> int:
    seed = request.check_seed if request.check_seed is not None else random.SystemRandom().randrange(10**6)
    say(f"Tolerance: {STATED_TOLERANCE}.")
    everything = not (request.tables or request.columns or request.models)
    comparisons = check_rows(
        str(request.results),
        request.check or 0,
        seed=seed,
        device=request.device,
        root=request.data_root,
        only=lambda key: everything or key.cell in cells,
        on_comparison=lambda comparison: say(_comparison_line(comparison)),
    )
    passed = sum(comparison.passed for comparison in comparisons)
    say(f"{passed} of {len(comparisons)} rows hold (drawn with --check-seed {seed})")
    return 0 if comparisons and passed == len(comparisons) else 1


def _comparison_line(comparison: Comparison) -> str:
    row = comparison.row
    key = row.key
    made = f"made on {row.device} at {(row.commit or 'an unknown commit')[:7]}"
    where = "same machine type and code" if comparison.same_bits else made
    return (
        f"{'holds ' if comparison.passed else 'FAILS '} {key.cell}  seed {key.seed}  "
        f"test {100 * row.test:.2f} → {100 * comparison.test:.2f}  epoch {row.epoch} → "
        f"{comparison.epoch}  (allowed {100 * comparison.allowed:.1f} points; {where})"
    )


def _render(request: Request, say: Say) -> int:
    for path in render(request.results, request.docs or Path("docs")):
        say(f"wrote {path}")
    return 0

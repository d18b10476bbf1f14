"""``node2seq reproduce``: the paper's tables from the data sets, row by row."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from node2seq.cli.commands import echo
from node2seq.cli.flags import ReproduceFlags
from node2seq.experiments import workers
from node2seq.experiments.cells import Cell, Key, Run, choose_cells, runs_of
from node2seq.experiments.check import STATED_TOLERANCE, Comparison, check_rows
from node2seq.experiments.progress import Say, progress
from node2seq.experiments.render import render
from node2seq.experiments.rows import RowStore
from node2seq.experiments.samples import costs_of


def reproduce(flags: ReproduceFlags, say: Say = echo) -> int:
    """Train, list, check or render, and return the exit status.

    Args:
        flags: What to do.
        say: Prints a line.
    """
    cells = choose_cells(flags.tables, flags.columns, flags.models)
    if flags.list_only:
        return _list(cells, flags, say)
    if flags.check is not None:
        return _check(cells, flags, say)
    if flags.render_only:
        return _render(flags, say)
    runs = runs_of(cells, flags.runs, flags.epochs)
    store = RowStore(flags.results)
    if flags.retire and (stale := [*workers.stale_keys(store, runs), *workers.orphaned_keys(store, cells)]):
        say(f"{store.retire(stale)} rows of past recipes moved to {store.retired_path}")
    started, before = time.monotonic(), sum(run.key in store.rows for run in runs)
    say(f"{len(cells)} cells, {len(runs)} runs, {before} of them done; rows in {store.path}")
    try:
        missing = _train(runs, store, flags, say)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Stopped. Finished rows are kept; run the same command to resume.") from None
    made = len(runs) - missing - before
    say(f"{made} runs made in {time.monotonic() - started:.1f} s; {missing} of {len(runs)} are missing")
    store.refresh()
    for cost in costs_of([store.rows[run.key] for run in runs if run.key in store.rows]):
        say(f"All calls so far: {cost.runs} of these runs in {cost.wall_seconds:.1f} s on {cost.device}")
    if flags.docs is not None:
        _render(flags, say)
    return 0


def _train(runs: Sequence[Run], store: RowStore, flags: ReproduceFlags, say: Say) -> int:
    """Train what is missing, and return how many runs still are."""
    with progress(runs, store.rows, say, live=sys.stdout.isatty()) as on_rows:
        return workers.reproduce(
            runs,
            str(flags.results),
            device=flags.device,
            jobs=flags.jobs,
            budget_seconds=flags.budget_seconds,
            root=flags.data_root,
            commit=flags.commit,
            on_rows=on_rows,
        )


def _list(cells: list[Cell], flags: ReproduceFlags, say: Say) -> int:
    store = RowStore(flags.results)
    for cell in cells:
        done = sum(Key(*cell, seed) in store.rows for seed in range(flags.runs))
        say(f"{cell}  {done}/{flags.runs}")
    say(f"{len(cells)} cells")
    return 0


def _check(cells: list[Cell], flags: ReproduceFlags, say: Say) -> int:
    seed = flags.check_seed if flags.check_seed is not None else random.SystemRandom().randrange(10**6)
    say(f"Tolerance: {STATED_TOLERANCE}.")
    everything = not (flags.tables or flags.columns or flags.models)
    comparisons = check_rows(
        str(flags.results),
        flags.check or 0,
        seed=seed,
        device=flags.device,
        root=flags.data_root,
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


def _render(flags: ReproduceFlags, say: Say) -> int:
    for path in render(flags.results, flags.docs or Path("docs"), flags.formats or ("md",)):
        say(f"wrote {path}")
    return 0

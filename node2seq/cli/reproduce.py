"""``node2seq reproduce``: the paper's tables from the data sets, row by row."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from node2seq.cli.commands import echo, import_rich, keeping_rows
from node2seq.cli.flags import ReproduceFlags
from node2seq.errors import Node2SeqError
from node2seq.experiments import workers
from node2seq.experiments.check import (
    Comparison,
    Difference,
    Variation,
    check_rows,
    foreign,
    judge,
    variation_of,
)
from node2seq.experiments.paper import Cell, Key, Run, choose_cells, runs_of
from node2seq.experiments.results_page import render
from node2seq.experiments.rows import ResultRow, RowStore
from node2seq.experiments.samples import costs_of
from node2seq.experiments.stages import Say


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
        if not (file := RowStore(flags.results).path).is_file():  # an empty page would replace another
            raise Node2SeqError(
                str(file), "there is no such file", "Train first, or name the folder with --results"
            )
        return _render(flags, say)
    runs = runs_of(cells, flags.runs, flags.epochs)
    store = RowStore(flags.results)
    if flags.retire and (stale := [*workers.stale_keys(store, runs), *workers.orphaned_keys(store, cells)]):
        say(f"{store.retire(stale)} rows of past recipes moved to {store.retired_path}")
    started, before = time.monotonic(), sum(run.key in store.rows for run in runs)
    say(f"{len(cells)} cells, {len(runs)} runs, {before} of them done; rows in {store.path}")
    missing = _train(runs, store, flags, say)
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
    with keeping_rows(), _progress(runs, store.rows, say, live=sys.stdout.isatty()) as on_rows:
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
    store = RowStore(flags.results)
    everything = not (flags.tables or flags.columns or flags.models)
    if not any(everything or key.cell in cells for key in store.rows):
        cure = "Train first, or name the folder with --results"
        raise Node2SeqError(f"--check {flags.check}", f"{store.path} has no rows of these cells", cure)
    variation = variation_of([*store.rows.values(), *store.retired(), *store.made_twice()])
    say(_variation_line(variation))
    comparisons = check_rows(
        str(flags.results),
        flags.check or 0,
        seed=seed,
        device=flags.device,
        root=flags.data_root,
        only=lambda key: everything or key.cell in cells,
        on_comparison=lambda comparison: say(_comparison_line(comparison, variation)),
    )
    if elsewhere := sum(not one.same_bits for one in comparisons):
        say(_power_line(variation, foreign(store.rows.values()), elsewhere))
    holds = judge(comparisons, variation)
    verdict = "hold" if holds else "do NOT hold"
    say(f"The {len(comparisons)} rows {verdict} together (drawn with --check-seed {seed})")
    return 0 if holds else 1


def _variation_line(variation: Variation) -> str:
    close, widest = variation.close, variation.widest
    source = f"as {variation.repeats} repeated trainings vary" if variation.repeats else "as stated"
    return (
        "Allowed: nothing where machine type and code are those of the row. Elsewhere, "
        f"{source}: a row is close within {100 * close.val:.2f} points of validation and "
        f"{100 * close.test:.2f} of test accuracy and {100 * close.epoch:.0f} % of the epoch; "
        f"it fails beyond {100 * widest.val:.2f} or {100 * widest.test:.2f} points."
    )


def _power_line(variation: Variation, others: Sequence[Difference], rows: int) -> str:
    told = (
        f"{variation.needed(rows)} of {rows} rows made elsewhere have to be close. Right rows pass this "
        f"{100 * variation.right_rate(rows):.1f} % of the time or more"
    )
    if not others:
        return f"{told}."
    alone, together = (100 * variation.pass_rate(others, count) for count in (1, rows))
    return (
        f"{told}; rows of another model, with the same column and seed, {together:.2g} % (one row alone: "
        f"{alone:.2g} %)."
    )


def _comparison_line(comparison: Comparison, variation: Variation) -> str:
    row, again = comparison.row, comparison.again
    if comparison.same_bits:
        verdict = "equal" if comparison.equal else "FAILS"
        where = "same machine type and code: has to be equal"
    else:
        found = comparison.difference
        beyond = "apart" if found.within(variation.widest) else "FAILS"
        verdict = "close" if found.within(variation.close) else beyond
        where = f"made on {row.device} at {(row.commit or 'an unknown commit')[:7]}"
    return (
        f"{verdict}  {row.key.cell}  seed {row.key.seed}  validation {100 * row.val:.2f} → "
        f"{100 * again.val:.2f}  test {100 * row.test:.2f} → {100 * again.test:.2f}  "
        f"epoch {row.epoch} → {again.epoch}  ({where})"
    )


def _render(flags: ReproduceFlags, say: Say) -> int:
    for path in render(flags.results, flags.docs or Path("docs"), flags.formats or ("md",)):
        say(f"wrote {path}")
    return 0


@contextmanager
def _progress(
    runs: Sequence[Run], done: dict[Key, ResultRow], say: Say, live: bool
) -> Iterator[Callable[[Sequence[ResultRow]], None]]:
    """Show rows as they arrive.

    Args:
        runs: All trainings of the call.
        done: The rows that are there already.
        say: Prints a line.
        live: Whether to draw a table that changes in place; needs rich.
    """
    board = _Board(runs, done)
    if live and (rich := import_rich()):
        with rich.live.Live(board.draw(rich), refresh_per_second=4) as screen:

            def show(rows: Sequence[ResultRow]) -> None:
                board.add(rows)
                screen.update(board.draw(rich))

            yield show
    else:

        def tell(rows: Sequence[ResultRow]) -> None:
            for row in rows:
                board.add([row])
                say(board.line(row))

        yield tell


class _Board:
    """Which trainings are done, and with what."""

    def __init__(self, runs: Sequence[Run], done: dict[Key, ResultRow]) -> None:
        self.total = len(runs)
        self._wanted: dict[Cell, set[int]] = {}
        for run in runs:
            self._wanted.setdefault(run.key.cell, set()).add(run.key.seed)
        self._tests: dict[Cell, list[float]] = {cell: [] for cell in self._wanted}
        self.made = self._before = 0
        self._started = time.monotonic()
        self.add([done[run.key] for run in runs if run.key in done])
        self._before = self.made

    def add(self, rows: Sequence[ResultRow]) -> None:
        """Count rows; those of other calls on the same store are left out."""
        for row in rows:
            key = row.key
            if key.seed in self._wanted.get(key.cell, ()):
                self._tests[key.cell].append(100 * row.test)
                self.made += 1

    def line(self, row: ResultRow) -> str:
        """One line for a new row."""
        return (
            f"{self.made}/{self.total}  {row.key.cell}  seed {row.key.seed}  val {100 * row.val:.1f}  "
            f"test {100 * row.test:.1f}  epoch {row.epoch}/{row.epochs}  {row.seconds:.1f} s"
            f"  {self._left()}"
        )

    def draw(self, rich: Any) -> Any:
        """The table of all cells."""
        table = rich.table.Table(
            title=f"{self.made} of {self.total} runs, {self._left()}", box=rich.box.SIMPLE_HEAD
        )
        for heading in ("column", "model", "variant", "study", "runs", "test"):
            table.add_column(heading, justify="right" if heading in ("runs", "test") else "left")
        for cell, tests in self._tests.items():
            style = "dim" if not tests else "green" if len(tests) == len(self._wanted[cell]) else ""
            mean = f"{statistics.fmean(tests):.1f}" if tests else "–"
            spread = f" ± {statistics.stdev(tests):.1f}" if len(tests) > 1 else ""
            runs = f"{len(tests)}/{len(self._wanted[cell])}"
            table.add_row(cell.column, cell.model, cell.variant, cell.study, runs, mean + spread, style=style)
        return table

    def _left(self) -> str:
        new = self.made - self._before
        if not new or self.made >= self.total:
            return f"{time.monotonic() - self._started:.0f} s"
        left = (time.monotonic() - self._started) / new * (self.total - self.made)
        return f"about {left:.0f} s left"

"""Progress while the tables are made: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from node2seq.experiments.cells import Cell, Key, Run
from node2seq.experiments.rows import ResultRow

Say = Callable[[str], None]


@contextmanager
def progress(
    runs: Sequence[Run], done: dict[Key, ResultRow], say: Say, live: bool
) -> Iterator[Callable[[Sequence[ResultRow]], None]]:
    """Show rows as they arrive.

    Args:
        runs: All trainings of the call.
        done: The rows that are there already.
        say: Prints a line.
        live: Whether to draw a table that changes in place; needs rich.
    """
    board = Board(runs, done)
    if live and (rich := _rich()):
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


class Board:
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


def _rich() -> Any:
    """The package rich, or None where it is not installed."""
    try:
        import rich.box
        import rich.live
        import rich.table
    except ModuleNotFoundError:
        return None
    return rich

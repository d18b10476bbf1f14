"""What the benchmarks share: their arguments, the table that they print and the file of their rows."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from node2seq.benchmarking.layers import NOT_COMPILED
from node2seq.benchmarking.rows import (
    BenchmarkRow,
    Machine,
    append_rows,
    number_text,
    size_text,
    time_text,
)
from node2seq.environment import pick_device


def argument_parser(description: str | None, script: str) -> argparse.ArgumentParser:
    """A parser with the arguments that every benchmark has.

    Args:
        description: The script's docstring.
        script: Its path; rows go to ``rows.jsonl`` beside it unless told otherwise.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--rows", type=Path, default=Path(script).with_name("rows.jsonl"), help="file to append rows to"
    )
    parser.add_argument("--commit", help="commit to note in rows where the code is not a checkout")
    return parser


class Report:
    """Prints each row as a line of a table and appends it to a file.

    Args:
        options: What :func:`argument_parser` read.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.device: torch.device = pick_device(options.device)
        self.machine = Machine.here(self.device, options.commit)
        self._path: Path = options.rows

    def header(self, title: str, base: str | None = None) -> None:
        """Print the head of a table; ``base`` is what ratios are to."""
        times = "" if base is None else f"× {base}"
        columns = f"{times:>14}{'× compiled':>12}{'memory':>12}{times:>14}{'of bound':>10}"
        print(f"\n{title}\n{'':36}{'ms (20 to 80 %)':>28}{columns}", flush=True)

    def add(self, row: BenchmarkRow) -> BenchmarkRow:
        """Print a row, append it to the file and return it."""
        ratio, compiled, peak_ratio = (
            number_text(value, ".3f") for value in (row.ratio, row.compiled_ratio, row.peak_ratio)
        )
        memory, bound = size_text(row.peak_bytes), number_text(row.bound_share, ".0%")
        cells = f"{ratio:>14}{compiled:>12}{memory:>12}{peak_ratio:>14}{bound:>10}"
        print(f"{row.title():36}{time_text(row):>28}{cells}".rstrip(), flush=True)
        if not (row.result or "").startswith(NOT_COMPILED):  # which says something of the machine alone
            append_rows(self._path, [row], self.machine)
        return row

"""What the benchmarks share: arguments, clocks, the table that they print and the file of their rows."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from node2seq.benchmarking.layers import COMPILED, NOT_COMPILED, measure
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

    Where a table has ratios, they are to its first row, and to the same case under ``torch.compile``.

    Args:
        options: What :func:`argument_parser` read.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.device: torch.device = pick_device(options.device)
        self.machine = Machine.here(self.device, options.commit)
        self._path: Path = options.rows
        self._has_ratios = False
        self._base: BenchmarkRow | None = None
        self._compiled: BenchmarkRow | None = None

    def header(self, title: str, base: str | None = None) -> None:
        """Print the head of a table; ``base`` is what ratios are to, if it has any."""
        self._has_ratios, self._base, self._compiled = base is not None, None, None
        times = "" if base is None else f"× {base}"
        columns = f"{times:>14}{'× compiled':>12}{'memory':>12}{times:>14}{'of bound':>10}"
        print(f"\n{title}\n{'':36}{'ms (20 to 80 %)':>28}{columns}", flush=True)

    def add(self, row: BenchmarkRow) -> BenchmarkRow:
        """Print a row with its ratios, append it to the file and return it."""
        if self._base is not None:
            row = row.beside(self._base, self._compiled)
            if (row.case, row.variant) == (self._base.case, COMPILED):
                self._compiled = row
        elif self._has_ratios:
            self._base = row
        ratio, compiled, peak_ratio = (
            number_text(value, ".3f") for value in (row.ratio, row.compiled_ratio, row.peak_ratio)
        )
        memory, bound = size_text(row.peak_bytes), number_text(row.bound_share, ".0%")
        cells = f"{ratio:>14}{compiled:>12}{memory:>12}{peak_ratio:>14}{bound:>10}"
        print(f"{row.title():36}{time_text(row):>28}{cells}".rstrip(), flush=True)
        if not (row.result or "").startswith(NOT_COMPILED):  # which says something of the machine alone
            append_rows(self._path, [row], self.machine)
        return row


def seconds_of(step: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """How long a step takes once, to the end of what the device has to do, and what it returns."""
    started = time.perf_counter()
    found = step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started, found


def growth_exponent(sizes: Sequence[float], costs: Sequence[float]) -> float | None:
    """The exponent a of cost ≈ c · size^a by least squares of the logarithms; none below three sizes."""
    if len(sizes) < 3:
        return None
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second of a large copy, read and written: the speed of the memory."""
    source = torch.ones(2**30 if device.type == "cuda" else 2**26, device=device)
    copied = torch.empty_like(source)
    found = measure(lambda: copied.copy_(source), device, seconds=0.5, most=10)
    assert found is not None
    return 2 * source.nbytes / (found.p50_ms / 1e3)

"""One JSON line for each case that was measured, and what it was measured on."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from node2seq.environment import device_name, package_versions, source_commit
from node2seq.errors import Node2SeqError
from node2seq.storage.jsonl import JsonLines, read_lines

PACKAGES = ("torch", "torch_geometric", "numpy", "triton", "numba")
# What tells one case from another: of rows that are equal in these the newest counts.
IDENTITY = (
    "bench",
    "graph",
    "nodes",
    "edges",
    "case",
    "variant",
    "kernel_size",
    "readout",
    "backend",
    "device",
    "threads",
)


@dataclass(frozen=True)
class Row:
    """One case and what was found.

    Args:
        bench: Which benchmark.
        graph: The graph's name.
        nodes: Its nodes.
        edges: Its directed edges, self loops not counted.
        case: What was measured: a layer, an operation or a network.
        variant: In which way, where there are several: ``"plan anew"``, ``"captured"`` …
        kernel_size: Taps of the convolution.
        readout: Its readout.
        backend: Which backend ran.
        p20_ms: A fifth of the repeats were faster.
        p50_ms: The median.
        p80_ms: A fifth of the repeats were slower.
        base: What ``ratio`` and ``peak_ratio`` are to; measured in the same run.
        ratio: Median to median of the base.
        peak_bytes: What a step adds at its peak to what is held before it.
        peak_ratio: The same to the base's.
        bound_share: The time that its gathers take at the speed of a copy, over its own.
        result: A result that is no time: ``"out of memory"``, ``"the same bits"`` …
    """

    bench: str
    graph: str
    nodes: int
    edges: int
    case: str
    variant: str = ""
    kernel_size: int | None = None
    readout: str | None = None
    backend: str | None = None
    p20_ms: float | None = None
    p50_ms: float | None = None
    p80_ms: float | None = None
    base: str | None = None
    ratio: float | None = None
    peak_bytes: int | None = None
    peak_ratio: float | None = None
    bound_share: float | None = None
    result: str | None = None

    def beside(self, base: Row) -> Row:
        """The same row with its ratios to ``base``, where both have a figure."""
        ratio = _ratio(self.p50_ms, base.p50_ms)
        peak_ratio = _ratio(self.peak_bytes, base.peak_bytes)
        return replace(self, base=base.case if ratio else None, ratio=ratio, peak_ratio=peak_ratio)

    def title(self) -> str:
        """The case in words."""
        words = [self.case, self.readout, f"k={self.kernel_size}" if self.kernel_size else None]
        return ", ".join(filter(None, [" ".join(filter(None, words)), self.variant]))


@dataclass(frozen=True)
class Machine:
    """What rows were made on: the device's name, threads, versions and the commit of the code."""

    device: str
    threads: int | None
    versions: dict[str, str]
    commit: str | None

    @classmethod
    def here(cls, device: torch.device, commit: str | None = None) -> Machine:
        """This machine; ``commit`` stands in where the code is no checkout."""
        versions = {name: v for name, v in package_versions(PACKAGES).items() if v is not None}
        name = re.sub(r"\((R|TM)\)", "", device_name(device))
        threads = None if device.type == "cuda" else torch.get_num_threads()
        return cls(name, threads, versions, commit or source_commit())


@dataclass(frozen=True, kw_only=True)
class Kept(Row):
    """A row as it stands in a file: what was found, on what, and when."""

    device: str
    threads: int | None = None
    versions: dict[str, str]
    commit: str | None = None
    date: str


def device_title(made_on: Machine | Kept) -> str:
    """The device, and the threads of a processor."""
    count = made_on.threads
    return made_on.device + ("" if count is None else f", {count} thread{'s' if count > 1 else ''}")


def append_rows(path: Path, rows: Iterable[Row], machine: Machine) -> None:
    """Add rows to a file: all of them, or none if the process is killed meanwhile."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    JsonLines(path).append(_values(Kept(**vars(row), **vars(machine), date=date)) for row in rows)


def read_rows(path: Path) -> list[Kept]:
    """The newest row of each case, in the order in which cases first came; none where there is no file."""
    if not path.exists():
        return []
    newest: dict[tuple[Any, ...], Kept] = {}
    for number, found in enumerate(read_lines(path), start=1):
        try:
            row = Kept(**found)
        except TypeError as error:
            raise Node2SeqError(
                f"{path}, line {number}", f"it is not a row ({error})", "Restore it from a copy"
            ) from error
        identity = tuple(getattr(row, name) for name in IDENTITY)
        if identity not in newest or newest[identity].date <= row.date:
            newest[identity] = row
    return list(newest.values())


def add_arguments(parser: argparse.ArgumentParser, rows: Path) -> None:
    """What every benchmark can be told about its rows; ``rows`` is where they go unless told."""
    parser.add_argument("--rows", type=Path, default=rows, help="file to append rows to")
    parser.add_argument("--commit", help="what rows say of the code where it is no checkout")


def keep(rows: Sequence[Row], options: argparse.Namespace, device: torch.device) -> None:
    """Append what a benchmark found, as :func:`add_arguments` lets its user say."""
    append_rows(options.rows, rows, Machine.here(device, options.commit))


def _values(row: Kept) -> dict[str, Any]:
    """The fields that say something, with as many digits as a measurement has."""
    found = {name: value for name, value in asdict(row).items() if value not in (None, "")}
    return {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in found.items()}


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None

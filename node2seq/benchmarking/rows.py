"""Rows: a case, what was measured of it, and on what machine; a JSON line each, and as a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from node2seq.environment import device_name, package_versions, source_commit
from node2seq.errors import Node2SeqError
from node2seq.storage import JsonLines, read_lines

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
class BenchmarkRow:
    """One case and what was found.

    Args:
        bench: Which benchmark.
        graph: The graph's name.
        nodes: Its nodes.
        edges: Its directed edges, self loops not counted.
        case: What was measured: a layer, an operation or a network.
        variant: How, where there are several ways: ``"plan anew"``, ``"captured"`` …
        kernel_size: Taps of the convolution.
        readout: Its readout.
        backend: Which backend ran.
        p20_ms: A fifth of the repeats were faster.
        p50_ms: The median.
        p80_ms: A fifth of the repeats were slower.
        base: What ``ratio`` and ``peak_ratio`` are to; measured in the same run.
        ratio: Median to median of the base.
        compiled_ratio: Median to median of the base under ``torch.compile``, measured in the same run.
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
    compiled_ratio: float | None = None
    peak_bytes: int | None = None
    peak_ratio: float | None = None
    bound_share: float | None = None
    result: str | None = None

    def beside(self, base: BenchmarkRow, compiled: BenchmarkRow | None = None) -> BenchmarkRow:
        """The same row with its ratios to ``base`` and to ``compiled``, where both have a figure."""
        ratio = _ratio(self.p50_ms, base.p50_ms)
        return replace(
            self,
            base=base.case if ratio else None,
            ratio=ratio,
            compiled_ratio=None if compiled is None else _ratio(self.p50_ms, compiled.p50_ms),
            peak_ratio=_ratio(self.peak_bytes, base.peak_bytes),
        )

    def title(self) -> str:
        """The case in words."""
        words = [self.case, self.readout, f"k={self.kernel_size}" if self.kernel_size else None]
        return ", ".join(filter(None, [" ".join(filter(None, words)), self.variant]))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What rows were measured on: the device's name, threads, versions and the commit of the code."""

    device: str
    threads: int | None = None
    versions: dict[str, str]
    commit: str | None = None

    @classmethod
    def here(cls, device: torch.device, commit: str | None = None) -> Machine:
        """This machine; ``commit`` is for code that is not a checkout."""
        versions = {name: v for name, v in package_versions(PACKAGES).items() if v is not None}
        name = re.sub(r"\((R|TM)\)", "", device_name(device))
        threads = None if device.type == "cuda" else torch.get_num_threads()
        return cls(device=name, threads=threads, versions=versions, commit=commit or source_commit())


@dataclass(frozen=True, kw_only=True)
class StoredRow(Machine, BenchmarkRow):
    """A row of a file: what was measured, on what, and when."""

    date: str


def device_title(made_on: Machine) -> str:
    """The device, and the threads of a processor."""
    count = made_on.threads
    return made_on.device + ("" if count is None else f", {count} thread{'s' if count > 1 else ''}")


def append_rows(path: Path, rows: Iterable[BenchmarkRow], machine: Machine) -> None:
    """Add rows to a file: all of them, or none if the process is killed meanwhile."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    JsonLines(path).append(_values(StoredRow(**vars(row), **vars(machine), date=date)) for row in rows)


def read_rows(path: Path) -> list[StoredRow]:
    """The newest row of each case, in the order in which cases first came; none where there is no file."""
    if not path.exists():
        return []
    newest: dict[tuple[Any, ...], StoredRow] = {}
    for number, found in enumerate(read_lines(path), start=1):
        try:
            row = StoredRow(**found)
        except TypeError as error:
            raise Node2SeqError(
                f"{path}, line {number}", f"it is not a row ({error})", "Restore it from a copy"
            ) from error
        identity = tuple(getattr(row, name) for name in IDENTITY)
        if identity not in newest or newest[identity].date <= row.date:
            newest[identity] = row
    return list(newest.values())


def table_of(
    rows: Sequence[BenchmarkRow], leading: Mapping[str, Callable[[Any], str]] | None = None
) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of a table of rows; columns that would be empty are left out.

    Args:
        rows: One line each.
        leading: Further columns before the others.
    """
    base = next((row.base for row in rows if row.base), None)
    columns: list[tuple[str, Callable[[Any], str]]] = [
        *(leading or {}).items(),
        ("", BenchmarkRow.title),
        ("backend", lambda row: row.backend or ""),
        ("ms", time_text),
        (f"× {base}", lambda row: number_text(row.ratio, ".2f")),
        (f"× compiled {base}", lambda row: number_text(row.compiled_ratio, ".2f")),
        ("memory", lambda row: size_text(row.peak_bytes)),
        (f"× {base}", lambda row: number_text(row.peak_ratio, ".2f")),
        ("of the gather bound", lambda row: number_text(row.bound_share, ".0%")),
    ]
    lines = [[show(row) for _, show in columns] for row in rows]
    shown = [i for i, _ in enumerate(columns) if any(line[i] for line in lines)]
    return [columns[i][0] for i in shown], [[line[i] for i in shown] for line in lines]


def time_text(row: BenchmarkRow) -> str:
    """The median with the 20th and the 80th percentile, or the result that is no time."""
    if row.p50_ms is None:
        return row.result or ""
    median, low, high = (_three_digits(value) for value in (row.p50_ms, row.p20_ms, row.p80_ms))
    return f"{median} ({low} to {high})" if low else median


def size_text(size: int | None) -> str:
    """Bytes as MiB or GiB."""
    if size is None:
        return ""
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:.2f} {name}" if size < 10 * unit else f"{size / unit:.1f} {name}"


def number_text(value: float | None, form: str) -> str:
    """A number in a format, or nothing for none."""
    return "" if value is None else format(value, form)


def _three_digits(value: float | None) -> str:
    return number_text(value, ",.0f" if value is not None and value >= 1000 else "#.3g").rstrip(".")


def _values(row: StoredRow) -> dict[str, Any]:
    """The fields that say something, with as many digits as a measurement has."""
    found = {name: value for name, value in asdict(row).items() if value not in (None, "")}
    return {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in found.items()}


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None

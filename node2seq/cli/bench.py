"""``node2seq bench``: how fast the layer is on this machine, and which backend it takes."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from node2seq.benchmarking.layers import CHANNELS
from node2seq.benchmarking.rows import Machine, Row, append_rows, device_title
from node2seq.benchmarking.short import Short, short_benchmark
from node2seq.cli.commands import BenchFlags
from node2seq.cli.output import step_teller
from node2seq.environment import pick_device
from node2seq.errors import Node2SeqError


def bench(flags: BenchFlags) -> None:
    """Time the layer, show a table and write the rows."""
    file = flags.json_file
    if file is not None and not file.absolute().parent.is_dir():
        raise Node2SeqError(str(file), "its folder does not exist", "Create it first")
    place = pick_device(flags.device)
    machine = Machine.here(place)
    found = short_benchmark(place, step_teller(quiet=False))
    if file is not None:
        file.unlink(missing_ok=True)
        append_rows(file, found.rows, machine)
    _show(found, machine)


def _show(found: Short, machine: Machine) -> None:
    # A file or a pipe has no width of its own.
    console = Console() if sys.stdout.isatty() else Console(width=110)
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    console.print(f"{device_title(machine)}; {versions}", highlight=False, soft_wrap=True)
    console.print(
        f"forward + backward, {CHANNELS} → {CHANNELS} channels, float32; every backend agrees with the "
        "reference",
        highlight=False,
        soft_wrap=True,
    )
    for name, pick in found.picks.items():
        rows = [row for row in found.rows if row.graph == name]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=name, title_justify="left")
        for heading in ("", "backend", "ms", "20 to 80 %", "× GATConv", "MiB", "× GATConv"):
            table.add_column(heading, justify="left" if heading in ("", "backend") else "right")
        for row in rows:
            table.add_row(*_cells(row))
        console.print(table)
        console.print(f"auto takes [bold]{pick}[/bold] here", highlight=False)


def _cells(row: Row) -> list[str]:
    if row.p50_ms is None or row.p20_ms is None or row.p80_ms is None:
        return [row.title(), row.backend or "", row.result or "", "", "", "", ""]
    return [
        row.title(),
        row.backend or "",
        f"{row.p50_ms:.2f}",
        f"{row.p20_ms:.2f} to {row.p80_ms:.2f}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.1f}",
        "" if row.peak_ratio is None else f"{row.peak_ratio:.2f}",
    ]

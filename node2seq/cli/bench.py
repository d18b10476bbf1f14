"""``node2seq bench``: how fast the layer is on this machine, and which backend it takes."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from node2seq.benchmarking.layers import CHANNELS
from node2seq.benchmarking.rows import Machine, append_rows, device_title, table_of
from node2seq.benchmarking.short import ShortBenchmark, short_benchmark
from node2seq.cli.commands import step_teller
from node2seq.cli.flags import BenchFlags
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


def _show(found: ShortBenchmark, machine: Machine) -> None:
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
        header, lines = table_of(rows)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=name, title_justify="left")
        for heading in header:
            table.add_column(heading, justify="left" if heading in ("", "backend") else "right")
        for line in lines:
            table.add_row(*line)
        console.print(table)
        console.print(f"auto chooses [bold]{pick}[/bold] here", highlight=False)

"""``node2seq bench``: how fast the layer is on this machine, and which backend it takes."""

from __future__ import annotations

import sys
from typing import Any

from rich import box
from rich.console import Console

from node2seq.benchmarking.layers import CHANNELS
from node2seq.benchmarking.rows import Machine, append_rows, device_title, table_of
from node2seq.benchmarking.short import ShortBenchmark, short_benchmark
from node2seq.cli.commands import make_table, print_line, print_table, step_teller
from node2seq.cli.flags import BenchFlags
from node2seq.environment import pick_device


def bench(flags: BenchFlags) -> None:
    """Time the layer, show a table and write the rows."""
    file = flags.json_file
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
    print_line(console, f"{device_title(machine)}; {versions}")
    print_line(
        console,
        f"forward + backward, {CHANNELS} → {CHANNELS} channels, float32; every backend agrees with the "
        "reference",
    )
    style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "title_justify": "left"}
    for name, pick in found.picks.items():
        cells = table_of([row for row in found.rows if row.graph == name])
        print_table(console, make_table(*cells, words=("", "backend"), title=name, **style))
        console.print(f"auto chooses [bold]{pick}[/bold] here", highlight=False)

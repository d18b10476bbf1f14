"""Whether a Parquet file can be read at all, found out by a process that may die of it.

A damaged file can make polars allocate an absurd amount of memory, which aborts the process. So a child
process reads every file first; if the child dies, the file is damaged.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_PROBE = """
import json, sys
import polars as pl
for line in sys.stdin:
    path, columns = json.loads(line)
    try:
        if columns is None:
            pl.read_parquet_schema(path)
        else:
            pl.read_parquet(path, columns=columns)
        answer = "whole"
    except BaseException:
        answer = "damaged"
    print(answer, flush=True)
"""

_probes: list[subprocess.Popen[str]] = []


def is_damaged(content: Path | bytes, columns: Sequence[str] | None = None) -> bool:
    """Whether the columns of a Parquet file, or only its schema, cannot be read."""
    if isinstance(content, Path):
        return not _survives(content, columns)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "unpacked.parquet")
        path.write_bytes(content)
        return not _survives(path, columns)


def _survives(path: Path, columns: Sequence[str] | None) -> bool:
    probe = _probes[0] if _probes and _probes[0].poll() is None else _start_probe()
    assert probe.stdin is not None
    assert probe.stdout is not None
    try:
        probe.stdin.write(
            json.dumps([str(path.absolute()), None if columns is None else list(columns)]) + "\n"
        )
        probe.stdin.flush()
        answer = probe.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:  # the child was aborted
        stop_probe()
    return answer.strip() == "whole"


def _start_probe() -> subprocess.Popen[str]:
    stop_probe()
    pipe, nobody = subprocess.PIPE, subprocess.DEVNULL
    _probes.append(
        subprocess.Popen(
            [sys.executable, "-c", _PROBE],
            stdin=pipe,
            stdout=pipe,
            stderr=nobody,
            text=True,
            encoding="utf-8",
        )
    )
    return _probes[0]


@atexit.register
def stop_probe() -> None:
    """End the process that reads Parquet files first; the next file starts another one."""
    while _probes:
        probe = _probes.pop()
        probe.kill()
        probe.communicate()

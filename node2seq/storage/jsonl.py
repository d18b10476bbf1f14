"""Files of JSON lines: one value a line, only ever appended to, never half a line.

A process killed in the middle of a write leaves half a line at the end. Readers ignore it, and the next
append removes it.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from node2seq.storage.files import parse_json, read_errors, write_bytes, write_errors

_BLOCK = 4096


class Added(NamedTuple):
    """What :meth:`JsonLines.refresh` found: values, and whether they are the whole file from its start."""

    values: list[Any]
    from_start: bool


class JsonLines:
    """A file of JSON lines that others may append to meanwhile.

    Args:
        path: The file; it is created by the first append.
        ascii_only: Whether to write other characters as escapes.
    """

    def __init__(self, path: Path, *, ascii_only: bool = False) -> None:
        self.path, self._ascii_only = path, ascii_only
        self._offset = self._lines = 0
        self._inode: int | None = None

    def refresh(self) -> Added:
        """Read what was appended since the last call; a file that was replaced is read from its start."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return Added([], from_start=False)
        from_start = self._inode != status.st_ino or status.st_size < self._offset
        if from_start:
            self._offset, self._lines, self._inode = 0, 0, status.st_ino
        with read_errors(self.path), self.path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        values = []
        for line in whole.splitlines():
            self._lines += 1
            values.append(parse_json(self.path, line.decode(errors="replace"), f"line {self._lines} "))
        self._offset += len(whole)
        return Added(values, from_start)

    def append(self, values: Iterable[Any], *, durable: bool = True) -> None:
        """Add a line for each value: all of them, or none if the write fails.

        Args:
            values: What to add.
            durable: Whether to have them on the disk before returning.
        """
        content = self._encode(values)
        with write_errors(self.path):
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                end = _cut_half_line(handle)
                try:
                    if os.write(handle, content) != len(content):
                        raise OSError(errno.ENOSPC, "not written whole")
                    if durable:
                        os.fsync(handle)
                except BaseException:
                    os.ftruncate(handle, end)
                    raise
            finally:
                os.close(handle)

    def replace(self, values: Iterable[Any]) -> None:
        """Replace the whole file."""
        write_bytes(self.path, self._encode(values))

    def _encode(self, values: Iterable[Any]) -> bytes:
        return "".join(json.dumps(value, ensure_ascii=self._ascii_only) + "\n" for value in values).encode()


def read_lines(path: Path) -> list[Any]:
    """Read a file of JSON lines that has to be there."""
    with read_errors(path):
        path.stat()
    return JsonLines(path).refresh().values


def append_line(path: Path, value: Any) -> None:
    """Add one value to a file of JSON lines, without waiting for the disk."""
    JsonLines(path, ascii_only=True).append([value], durable=False)


def _cut_half_line(handle: int) -> int:
    """Remove what follows the last line end, and return where the file ends."""
    end = whole = os.lseek(handle, 0, os.SEEK_END)
    while whole:
        start = max(whole - _BLOCK, 0)
        os.lseek(handle, start, os.SEEK_SET)
        found = os.read(handle, whole - start).rfind(b"\n")
        if found >= 0:
            whole = start + found + 1
            break
        whole = start
    if whole != end:
        os.ftruncate(handle, whole)
    return whole

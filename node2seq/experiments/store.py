"""The rows of all runs, one line of JSON each, added by any number of processes, never half a line.

``runs.jsonl`` is only ever appended to, one whole line per write, under a lock. What a process killed in the
middle of a write left behind is cut off before the next line is added. A training is claimed by a lock on one
byte of ``.claims``, which the operating system takes back when the process ends.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.experiments.cells import Key
from node2seq.storage import bytelock
from node2seq.storage.files import make_folder, write_bytes, write_errors

Row = dict[str, Any]

# Byte 0 of the claims file is the lock for writing; the others are claims, one per key. Should two keys ever
# share a byte, one waits for the other.
_WRITING = 0
_CLAIM_BYTES = 2**30


class Store:
    """The rows in a folder.

    Args:
        folder: Made when the first row is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "runs.jsonl"
        self.retired_path = self.folder / "retired.jsonl"
        self.rows: dict[Key, Row] = {}
        self._read = 0
        self._file = None
        self._claims: int | None = None

    def refresh(self) -> list[Row]:
        """Read what was added since the last time, and return it."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return []
        if self._file != status.st_ino or status.st_size < self._read:
            self.rows, self._read, self._file = {}, 0, status.st_ino
        if status.st_size == self._read:
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        new = []
        for line in whole.splitlines():
            row = self._parse(line)
            if self.rows.setdefault(Key.of(row), row) is not row:
                raise Node2SeqError(
                    str(self.path), f"the run {Key.of(row)} stands in it twice", "Remove one of the lines"
                )
            new.append(row)
        self._read += len(whole)
        return new

    def append(self, row: Row) -> bool:
        """Add a row, and have it on the disk before returning; False if its key is there already."""
        line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
        with self._writing(), write_errors(self.path):
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                _cut_half_line(handle)
                self.refresh()
                if Key.of(row) in self.rows:
                    return False
                before = os.fstat(handle).st_size
                if os.write(handle, line) != len(line):
                    os.ftruncate(handle, before)
                    raise OSError("the line was not written whole")
                os.fsync(handle)
            finally:
                os.close(handle)
        return True

    @contextmanager
    def claim(self, key: Key) -> Iterator[bool]:
        """Whether a training is ours: no other process works on it, and none has finished it."""
        handle, byte = self._claims_file(), _byte_of(key)
        if not bytelock.acquire(handle, byte, wait=False):
            yield False
            return
        try:
            self.refresh()
            yield key not in self.rows
        finally:
            bytelock.release(handle, byte)

    def retire(self, keys: Iterable[Key]) -> int:
        """Move rows to ``retired.jsonl``, so that they can be made anew and it stays known that they were."""
        with self._writing():
            self.refresh()
            leaving = [self.rows[key] for key in keys if key in self.rows]
            if not leaving:
                return 0
            gone = {Key.of(row) for row in leaving}
            old = self.retired()
            # First added there, then taken away here: a process killed in between loses nothing.
            write_bytes(self.retired_path, _lines([*old, *(row for row in leaving if row not in old)]))
            write_bytes(self.path, _lines(row for key, row in self.rows.items() if key not in gone))
            self.refresh()
        return len(leaving)

    def retired(self) -> list[Row]:
        """The rows that were made with recipes of the past."""
        if not self.retired_path.exists():
            return []
        return [self._parse(line) for line in self.retired_path.read_bytes().splitlines()]

    def close(self) -> None:
        """Give all claims free."""
        if self._claims is not None:
            os.close(self._claims)
            self._claims = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        handle = self._claims_file()
        bytelock.acquire(handle, _WRITING, wait=True)
        try:
            yield
        finally:
            bytelock.release(handle, _WRITING)

    def _claims_file(self) -> int:
        if self._claims is None:
            make_folder(self.folder)
            path = self.folder / ".claims"
            with write_errors(path):
                self._claims = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        return self._claims

    def _parse(self, line: bytes) -> Row:
        try:
            row = json.loads(line)
            Key.of(row)
        except (ValueError, KeyError, TypeError) as error:
            raise Node2SeqError(
                f"{self.path}: {line[:60].decode(errors='replace')} …",
                f"it is not a row ({error!r})",
                "The file was edited: restore it",
            ) from error
        return row


def _byte_of(key: Key) -> int:
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return 1 + int.from_bytes(digest[:8], "little") % _CLAIM_BYTES


def _lines(rows: Iterable[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _cut_half_line(handle: int) -> None:
    """Remove what stands behind the last line end. Only with the lock for writing held."""
    end = os.fstat(handle).st_size
    whole = end
    while whole:
        start = max(whole - 4096, 0)
        os.lseek(handle, start, os.SEEK_SET)
        found = os.read(handle, whole - start).rfind(b"\n")
        if found >= 0:
            whole = start + found + 1
            break
        whole = start
    if whole != end:
        os.ftruncate(handle, whole)

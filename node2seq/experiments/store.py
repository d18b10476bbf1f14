"""The rows of all trainings, one line of JSON each, appended by any number of processes.

``runs.jsonl`` grows by one whole line per write, under a lock. A training is claimed by a lock file in
``.claims``; the operating system releases it when its process ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.experiments.cells import Key
from node2seq.storage.files import make_folder
from node2seq.storage.jsonl import JsonLines
from node2seq.storage.lock import hold

Row = dict[str, Any]


class Store:
    """The rows in a folder.

    Args:
        folder: Created when the first row is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "runs.jsonl"
        self.retired_path = self.folder / "retired.jsonl"
        self.rows: dict[Key, Row] = {}
        self._file = JsonLines(self.path)
        self._claims = self.folder / ".claims"

    def refresh(self) -> list[Row]:
        """Read what was added since the last time, and return it."""
        added, from_start = self._file.refresh()
        if from_start:
            self.rows = {}
        for row in added:
            key = self._key(row)
            if self.rows.setdefault(key, row) is not row:
                raise Node2SeqError(
                    str(self.path), f"the run {key} stands in it twice", "Remove one of the lines"
                )
        return added

    def append(self, row: Row) -> bool:
        """Add a row, and have it on the disk before returning; False if its key is there already."""
        with self._writing():
            self.refresh()
            if Key.of(row) in self.rows:
                return False
            self._file.append([row])
        return True

    @contextmanager
    def claim(self, key: Key) -> Iterator[bool]:
        """Whether a training is ours: no other process works on it, and none has finished it."""
        path = self._lock_file(hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32])
        # Removing the file lets two processes claim one training in a rare race: `append` keeps one row.
        with hold(path, remove=True) as ours:
            if ours:
                self.refresh()
            yield ours and key not in self.rows

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
            JsonLines(self.retired_path).append([row for row in leaving if row not in old])
            self._file.replace(row for key, row in self.rows.items() if key not in gone)
            self.refresh()
        return len(leaving)

    def retired(self) -> list[Row]:
        """The rows that were made with recipes of the past."""
        rows = JsonLines(self.retired_path).refresh().values
        for row in rows:
            self._key(row)
        return rows

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with hold(self._lock_file("writing"), wait=True):
            yield

    def _lock_file(self, name: str) -> Path:
        if self._claims.is_file():  # of versions that claimed bytes of one file
            with suppress(OSError):  # another process was faster
                self._claims.unlink()
        make_folder(self._claims)
        return self._claims / name

    def _key(self, row: Row) -> Key:
        try:
            return Key.of(row)
        except (KeyError, TypeError) as error:
            raise Node2SeqError(
                f"{self.path}: {json.dumps(row)[:60]} …",
                f"it is not a row ({error!r})",
                "The file was edited: restore it",
            ) from error

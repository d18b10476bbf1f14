"""Rows: one training of the tables, what came out of it and what it was made with; and the store of all rows.

``runs.jsonl`` grows by one whole line per write, under a lock, by any number of processes. A training is
claimed by a lock file in ``.claims``; the operating system releases it when its process ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.experiments.cells import Key
from node2seq.recipes import Recipe
from node2seq.storage import JsonLines, hold, make_folder
from node2seq.train.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """A line of ``runs.jsonl``.

    Args:
        key: Which training.
        val: Validation accuracy at the chosen epoch.
        test: Test accuracy at that epoch.
        test_nodes: How many test nodes there are.
        test_rest: The accuracy over all nodes that are neither trained nor validated on, on fixed splits.
        swapped: The share of entries that are non-local nodes, where it was measured.
        epoch: The chosen epoch.
        epochs: How many epochs were trained.
        recipe: What it was trained with, as :func:`recipe_to_json` writes it.
        seconds: Its share of the time that the runs of its program took.
        together: The seeds of that program; None in rows made before runs were trained together.
        device: The name of the GPU or the processor.
        versions: Versions of Python and packages.
        commit: The commit of the code, where it is known.
        call: The name of the call of ``reproduce`` that made it.
        jobs: How many processes that call had.
        at: Seconds from the start of the call.
    """

    key: Key
    val: float
    test: float
    test_nodes: int
    test_rest: float | None = None
    swapped: float | None = None
    epoch: int
    epochs: int
    recipe: Mapping[str, Any]
    seconds: float
    together: Sequence[int] | None = None
    device: str
    versions: Mapping[str, str]
    commit: str | None
    call: str
    jobs: int
    at: float

    @property
    def trained_with(self) -> Recipe:
        """The recipe; settings that came later have their defaults."""
        return Recipe(
            options=self.recipe["options"],
            settings=TrainSettings(**self.recipe["settings"]),
            row_normalize=self.recipe["row_normalize"],
        )

    def is_of(self, recipe: Recipe) -> bool:
        """Whether it was trained as ``recipe`` says."""
        return self.trained_with == replace(recipe, options=dict(recipe.options), source="")

    def to_json(self) -> dict[str, Any]:
        """The row as a JSON object; :meth:`from_json` reads it."""
        values = self.key._asdict() | {name: getattr(self, name) for name in _ORDER}
        if self.together is None:  # the order of the rows that do not have it
            values["recipe"] = values.pop("recipe")
            values |= {name: values.pop(name) for name in _PROVENANCE}
        return {name: value for name, value in values.items() if value is not None or name == "commit"}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ResultRow:
        """Read a row; a TypeError or KeyError says what is missing or too much."""
        key = Key(*(values[name] for name in Key._fields))
        return cls(key=key, **{name: value for name, value in values.items() if name not in Key._fields})


_PROVENANCE = ("device", "versions", "commit", "call", "jobs", "at")
_ORDER = (
    *(
        "val",
        "test",
        "test_nodes",
        "test_rest",
        "swapped",
        "epoch",
        "epochs",
        "recipe",
        "seconds",
        "together",
    ),
    *_PROVENANCE,
)


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    """What a row says of its recipe: all that is needed to train it again."""
    return {
        "options": dict(recipe.options),
        "settings": asdict(recipe.settings),
        "row_normalize": recipe.row_normalize,
    }


class RowStore:
    """The rows in a folder, as of the last :meth:`refresh`.

    Args:
        folder: Created when the first row is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "runs.jsonl"
        self.retired_path = self.folder / "retired.jsonl"
        self.rows: dict[Key, ResultRow] = {}
        self._file = JsonLines(self.path)
        self._claims = self.folder / ".claims"
        self.refresh()

    def refresh(self) -> list[ResultRow]:
        """Read the rows that were added since the last time, and return them."""
        added, from_start = self._file.refresh()
        if from_start:
            self.rows = {}
        rows = [_parse(self.path, values) for values in added]
        for row in rows:
            if self.rows.setdefault(row.key, row) is not row:
                raise Node2SeqError(
                    str(self.path), f"the run {row.key} stands in it twice", "Remove one of the lines"
                )
        return rows

    def append(self, row: ResultRow) -> bool:
        """Add a row, and have it on the disk before returning; False if its key is there already."""
        with self._writing():
            self.refresh()
            if row.key in self.rows:
                return False
            self._file.append([row.to_json()])
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
        """Move rows to ``retired.jsonl``: they can be made again, and it stays known that they were made."""
        with self._writing():
            self.refresh()
            leaving = [self.rows[key] for key in keys if key in self.rows]
            if not leaving:
                return 0
            gone = {row.key for row in leaving}
            old = self.retired()
            # First added there, then removed here: a process killed in between loses nothing.
            JsonLines(self.retired_path).append(row.to_json() for row in leaving if row not in old)
            self._file.replace(row.to_json() for key, row in self.rows.items() if key not in gone)
            self.refresh()
        return len(leaving)

    def retired(self) -> list[ResultRow]:
        """The rows that were made with earlier recipes, in the order in which they were retired."""
        return [_parse(self.retired_path, values) for values in JsonLines(self.retired_path).refresh().values]

    def made_twice(self) -> list[ResultRow]:
        """The rows of ``repeats.jsonl``: trainings of other rows made again, to see how far they differ."""
        path = self.folder / "repeats.jsonl"
        return [_parse(path, values) for values in JsonLines(path).refresh().values]

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


def _parse(path: Path, values: Any) -> ResultRow:
    try:
        return ResultRow.from_json(values)
    except (KeyError, TypeError) as error:
        raise Node2SeqError(
            f"{path}: {json.dumps(values)[:60]} …",
            f"it is not a row ({error!r})",
            "The file was edited: restore it",
        ) from error

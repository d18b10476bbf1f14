"""The rows of the search, and the chosen recipes. Final runs have rows as ``reproduce`` makes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from node2seq.errors import Node2SeqError
from node2seq.search.space import Settings
from node2seq.storage import JsonLines, hold, make_folder, write_bytes
from node2seq.train.settings import Recipe, TrainSettings

#: The files of a protocol: what is declared, the rows of the search, what was chosen, the final rows.
DECLARATION, SEARCH, CHOSEN, RUNS = "declaration.json", "search.jsonl", "chosen.jsonl", "runs.jsonl"


class SearchKey(NamedTuple):
    """One setting of a cell in one round."""

    model: str
    variant: str
    column: str
    rung: int
    setting: int


@dataclass(frozen=True, kw_only=True)
class SearchRow:
    """A line of ``search.jsonl``. It holds no figure of a test node: none was measured.

    Args:
        key: What was trained.
        settings: The values that were drawn for it.
        seeds: The splits of the round.
        validation: The accuracy on validation nodes by cross-fitting for each seed; None: it diverged.
        epoch: The chosen epoch for each.
        epochs: How many were trained.
        seconds: Its share of the time that the runs of its program took.
        together: How many runs the program had.
        device: The name of the GPU or the processor.
        versions: Versions of Python and packages.
        commit: The commit of the code.
        call: Which call made it.
        at: Seconds from the start of the call.
    """

    key: SearchKey
    settings: Settings
    seeds: Sequence[int]
    validation: Sequence[float | None]
    epoch: Sequence[int | None]
    epochs: Sequence[int | None]
    seconds: float
    together: int
    device: str
    versions: Mapping[str, str]
    commit: str | None
    call: str
    at: float

    def to_json(self) -> dict[str, Any]:
        """The row as a JSON object; :meth:`from_json` reads it."""
        values = asdict(self)
        del values["key"]
        return self.key._asdict() | values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SearchRow:
        """Read a row; a TypeError or KeyError says what is missing or too much."""
        key = SearchKey(*(values[name] for name in SearchKey._fields))
        rest = {name: value for name, value in values.items() if name not in SearchKey._fields}
        return cls(key=key, **rest)


class SearchStore:
    """The rows of the search in a folder, as of the last :meth:`refresh`; several processes may add to it.

    Args:
        folder: Created when the first row is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.rows: dict[SearchKey, SearchRow] = {}
        self._file = JsonLines(self.folder / SEARCH)
        self.refresh()

    def refresh(self) -> None:
        """Read the rows that were added since the last time."""
        for values in self._file.refresh().values:
            try:
                row = SearchRow.from_json(values)
            except (KeyError, TypeError) as error:
                raise Node2SeqError(
                    f"{self.folder / SEARCH}: {json.dumps(values)[:60]} …",
                    f"it is not a row ({error!r})",
                    "The file was edited: restore it",
                ) from error
            self.rows.setdefault(row.key, row)

    def append(self, rows: Iterable[SearchRow]) -> None:
        """Add rows, but for those that are there."""
        with hold(_claims(self.folder) / "writing", wait=True):
            self.refresh()
            self._file.append([row.to_json() for row in rows if row.key not in self.rows])
        self.refresh()

    def figures(self, key: SearchKey) -> list[float]:
        """The accuracies of a setting on validation nodes up to this round; none of one that failed."""
        found: list[float] = []
        for rung in range(1, key.rung + 1):
            values = self.rows[key._replace(rung=rung)].validation
            found += [value for value in values if value is not None]
            if None in values:
                return []
        return found

    def ranked(self, keys: Iterable[SearchKey]) -> list[SearchKey]:
        """Settings by their mean accuracy, the best first; of equals the one that was drawn first."""
        means = {key: fmean(self.figures(key) or [float("-inf")]) for key in keys}
        return sorted(means, key=lambda key: (-means[key], key.setting))


@contextmanager
def claim(folder: Path, name: str) -> Iterator[bool]:
    """Whether a piece of work is ours: no other process has claimed it."""
    place = _claims(folder) / hashlib.sha256(name.encode()).hexdigest()[:32]
    with hold(place, remove=True) as ours:
        yield ours


def _claims(folder: Path) -> Path:
    make_folder(folder / ".claims")
    return folder / ".claims"


@dataclass(frozen=True)
class Choice:
    """The chosen recipe of a cell, as a line of ``chosen.jsonl``.

    Args:
        model: The line.
        variant: The line.
        column: The column.
        setting: Which of the settings that were drawn.
        validation: Its mean accuracy on validation nodes, by cross-fitting.
        recipe: How it is trained.
    """

    model: str
    variant: str
    column: str
    setting: int
    validation: float
    recipe: Mapping[str, Any]

    @property
    def trained_with(self) -> Recipe:
        """The recipe."""
        own = self.recipe
        return Recipe(own["options"], TrainSettings(**own["settings"]), own["row_normalize"])


def read_choices(folder: Path) -> dict[tuple[str, str, str], Choice]:
    """The chosen recipes by model, variant and column; nothing where none was chosen."""
    choices = [Choice(**values) for values in JsonLines(folder / CHOSEN).refresh().values]
    return {(choice.model, choice.variant, choice.column): choice for choice in choices}


def write_choices(folder: Path, choices: Iterable[Choice]) -> None:
    """Write the chosen recipes, one line each."""
    lines = [json.dumps(asdict(choice), ensure_ascii=False) + "\n" for choice in choices]
    write_bytes(folder / CHOSEN, "".join(lines).encode())

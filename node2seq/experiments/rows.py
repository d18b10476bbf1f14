"""Rows, as JSON lines: what came out of trainings and what they were made with; and the stores of all rows.

``runs.jsonl`` holds the rows of reported runs, ``search.jsonl`` those of a search, ``chosen.jsonl`` what it
chose. A file grows by whole lines, under a lock, by any number of processes. A training is claimed by a lock
file in ``.claims``; the operating system releases it when its process ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import Cell, Key
from node2seq.recipes import Recipe
from node2seq.search.space import Settings
from node2seq.storage import JsonLines, hold, make_folder
from node2seq.train.settings import TrainSettings

#: The files of a protocol: what is declared, the rows of the search, what was chosen, the final rows.
DECLARATION, SEARCH, CHOSEN, RUNS = "declaration.json", "search.jsonl", "chosen.jsonl", "runs.jsonl"


@dataclass(frozen=True, kw_only=True)
class KeyedRow:
    """A row that its key tells from all others, with what it was made by.

    Args:
        key: What was trained; in JSON, its parts come first.
        seconds: Its share of the time that the runs of its program took.
        device: The name of the GPU or the processor.
        versions: Versions of Python and packages.
        commit: The commit of the code, where it is known.
        call: The name of the call that made it.
        at: Seconds from the start of the call.
    """

    key_type: ClassVar[Any]
    order: ClassVar[tuple[str, ...]]
    """Of the other values in JSON."""

    key: Any
    seconds: float
    device: str
    versions: Mapping[str, str]
    commit: str | None
    call: str
    at: float

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read a row; a TypeError or KeyError says what is missing or too much."""
        parts = cls.key_type._fields
        rest = {name: value for name, value in values.items() if name not in parts}
        return cls(key=cls.key_type(*(values[name] for name in parts)), **rest)

    def to_json(self) -> dict[str, Any]:
        """The row as a JSON object; :meth:`from_json` reads it."""
        return self.key._asdict() | {name: getattr(self, name) for name in self.order}


_PROVENANCE = ("device", "versions", "commit", "call", "jobs", "at")
_FIGURES = ("val", "test", "test_nodes", "test_rest", "swapped", "epoch", "epochs")


@dataclass(frozen=True, kw_only=True)
class ResultRow(KeyedRow):
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
        together: The seeds of its program; None in rows made before runs were trained together.
        jobs: How many processes the call had.
    """

    key_type = Key
    order = (*_FIGURES, "recipe", "seconds", "together", *_PROVENANCE)

    key: Key
    val: float
    test: float
    test_nodes: int
    test_rest: float | None = None
    swapped: float | None = None
    epoch: int
    epochs: int
    recipe: Mapping[str, Any]
    together: Sequence[int] | None = None
    jobs: int

    @property
    def trained(self) -> list[int]:
        """The epochs of its training."""
        return [self.epochs]

    @property
    def trained_with(self) -> Recipe:
        """The recipe; settings that came later have their defaults."""
        return recipe_from_json(self.recipe)

    def is_of(self, recipe: Recipe) -> bool:
        """Whether it was trained as ``recipe`` says."""
        return self.trained_with == replace(recipe, options=dict(recipe.options), source="")

    def to_json(self) -> dict[str, Any]:  # noqa: D102
        values = super().to_json()
        if self.together is None:  # the order of the rows that do not have it
            values |= {name: values.pop(name) for name in ("recipe", *_PROVENANCE)}
        return {name: value for name, value in values.items() if value is not None or name == "commit"}


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    """What a row says of its recipe: all that is needed to train it again."""
    return {
        "options": dict(recipe.options),
        "settings": asdict(recipe.settings),
        "row_normalize": recipe.row_normalize,
    }


def recipe_from_json(values: Mapping[str, Any]) -> Recipe:
    """The recipe of a row; settings that came later have their defaults."""
    return Recipe(values["options"], TrainSettings(**values["settings"]), values["row_normalize"])


def recipe_text(recipe: Recipe) -> str:
    """All options of a recipe, and the training settings that differ from the defaults."""
    default = TrainSettings()
    parts = [f"{name} {value}" for name, value in recipe.options.items()]
    parts += [
        f"{name} {value}"
        for name, value in vars(recipe.settings).items()
        if name in ("epochs", "lr", "weight_decay") or value != getattr(default, name)
    ]
    return ", ".join([*parts, *(["features divided by their sum"] if recipe.row_normalize else [])])


class SearchKey(NamedTuple):
    """One setting of a cell in one round."""

    model: str
    variant: str
    column: str
    rung: int
    setting: int


@dataclass(frozen=True, kw_only=True)
class SearchRow(KeyedRow):
    """A line of ``search.jsonl``. It holds no figure of a test node: none was measured.

    Args:
        key: What was trained.
        settings: The values that were drawn for it.
        seeds: The splits of the round.
        validation: The accuracy on validation nodes by cross-fitting for each seed; None: it diverged.
        epoch: The chosen epoch for each.
        epochs: How many were trained.
        together: How many runs the program had.
    """

    key_type = SearchKey
    order = (
        *("settings", "seeds", "validation", "epoch", "epochs"),
        *("seconds", "together", "device", "versions", "commit", "call", "at"),
    )

    key: SearchKey
    settings: Settings
    seeds: Sequence[int]
    validation: Sequence[float | None]
    epoch: Sequence[int | None]
    epochs: Sequence[int | None]
    together: int

    @property
    def trained(self) -> list[int]:
        """The epochs of each of its trainings; 0 for one that diverged."""
        return [epochs or 0 for epochs in self.epochs]


R = TypeVar("R", bound=KeyedRow)


class Store(Generic[R]):
    """The rows of a file, as of the last :meth:`refresh`; several processes may add to it.

    Args:
        folder: Created when the first row is written.
    """

    kind: type[R]
    file: ClassVar[str]

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / self.file
        self.rows: dict[Any, R] = {}
        self._file = JsonLines(self.path)
        self._claims = self.folder / ".claims"
        self.refresh()

    def refresh(self) -> list[R]:
        """Read the rows that were added since the last time, and return them."""
        added, from_start = self._file.refresh()
        if from_start:
            self.rows = {}
        rows = [self._parse(self.path, values) for values in added]
        for row in rows:
            if self.rows.setdefault(row.key, row) is not row:
                raise Node2SeqError(
                    str(self.path), f"it contains the run {row.key} twice", "Remove one of the lines"
                )
        return rows

    def append(self, *rows: R) -> list[R]:
        """Add rows but for those whose keys are there already, all at once, and return them.

        They are on the disk before it returns.
        """
        with self._writing():
            self.refresh()
            new = [row for row in rows if row.key not in self.rows]
            if new:
                self._file.append([row.to_json() for row in new])
        return new

    @contextmanager
    def claim(self, *keys: Any) -> Iterator[list[Any]]:
        """The first of these trainings that are ours: no other process has claimed or finished them.

        It ends at one that another process has, so that of two processes with the same list one has it all.
        """
        with ExitStack() as locks:
            # Removing the file lets two processes claim one training in a rare race: `append` keeps one row.
            ours = list(
                takewhile(lambda key: locks.enter_context(hold(self._claim_file(key), remove=True)), keys)
            )
            if ours:
                self.refresh()
            yield [key for key in ours if key not in self.rows]

    def _claim_file(self, key: Any) -> Path:
        return self._lock_file(hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32])

    def _writing(self) -> AbstractContextManager[bool]:
        return hold(self._lock_file("writing"), wait=True)

    def _lock_file(self, name: str) -> Path:
        if self._claims.is_file():  # of versions that claimed bytes of one file
            with suppress(OSError):  # another process was faster
                self._claims.unlink()
        make_folder(self._claims)
        return self._claims / name

    def _parse(self, path: Path, values: Any) -> R:
        try:
            return self.kind.from_json(values)
        except (KeyError, TypeError) as error:
            raise Node2SeqError(
                f"{path}: {json.dumps(values)[:60]} …",
                f"it is not a row ({error!r})",
                "The file was edited: restore it",
            ) from error


class RowStore(Store[ResultRow]):
    """The rows of reported runs, and those that were retired."""

    kind, file = ResultRow, RUNS

    @property
    def retired_path(self) -> Path:
        """The file of the rows that were made with earlier recipes."""
        return self.folder / "retired.jsonl"

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
        return self._beside(self.retired_path)

    def made_twice(self) -> list[ResultRow]:
        """The rows of ``repeats.jsonl``: trainings of other rows made again, to see how far they differ."""
        return self._beside(self.folder / "repeats.jsonl")

    def _beside(self, path: Path) -> list[ResultRow]:
        return [self._parse(path, values) for values in JsonLines(path).refresh().values]


class SearchStore(Store[SearchRow]):
    """The rows of a search."""

    kind, file = SearchRow, SEARCH

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
        return recipe_from_json(self.recipe)


def read_choices(folder: Path) -> dict[Cell, Choice]:
    """The chosen recipes by cell; nothing where none was chosen."""
    choices = [Choice(**values) for values in JsonLines(folder / CHOSEN).refresh().values]
    return {Cell(choice.model, choice.column, choice.variant): choice for choice in choices}


def write_choices(folder: Path, choices: Iterable[Choice]) -> None:
    """Write the chosen recipes, one line each."""
    JsonLines(folder / CHOSEN).replace(asdict(choice) for choice in choices)

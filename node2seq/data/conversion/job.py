"""A conversion: what is asked for, the tables as they were opened, what earlier steps found, the journal."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from node2seq.data.conversion.columns import widths_of
from node2seq.data.conversion.engine import (
    INTEGERS,
    Engine,
    Report,
    Table,
    chunks_of,
    literal,
    quoted_name,
)
from node2seq.data.reading import edge_ends
from node2seq.data.schema import check_roles, feature_columns
from node2seq.data.splits import CLASSIFICATION, REGRESSION
from node2seq.data.store import JOURNAL
from node2seq.data.tabular import check_delimiter, find_column, pl, weight_column
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice
from node2seq.storage import make_folder, read_json, remove_leftovers, write_json

#: The folder inside a store that holds what is kept while it is made.
WORK = "work"
_FORMAT = 1
#: The types of features.
DTYPES = {"float16": "<f2", "float32": "<f4"}
# DuckDB's share of the memory: what it reads and writes, and this process, come on top of its own limit.
_SHARE = 0.6
# Row groups of a Parquet file that are larger than this are not read as a whole; the file is copied first.
_LARGE_GROUP = 2**28
T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """What to convert, and how.

    Args:
        edges: A file of edges, or a folder of such files.
        nodes: A file of nodes, or a folder of such files; they keep their order.
        label: The column of ``nodes`` to predict.
        source: Column of the edges' sources; found by its usual names if not given, as ``target`` and ``id``.
        target: Column of the edges' targets.
        id: Column of the nodes' ids.
        split: Column of the nodes with ``train``, ``val``, ``test`` or nothing.
        directed: Keep the direction of the edges.
        fill: What replaces missing numbers: ``"mean"`` or a number.
        features: The feature columns; all but id, label and split if not given.
        categorical: Columns that hold categories although they look like numbers.
        ignore: Columns to leave out.
        task: ``"classification"`` or ``"regression"``; as the label column looks if not given.
        delimiter: What separates the cells of CSV files.
        raw: Leave numbers as they are, instead of standardising them.
        dtype: ``"float16"`` or ``"float32"``, of the features; that of the files if not given.
    """

    edges: str
    nodes: str
    label: str | None = None
    source: str | None = None
    target: str | None = None
    id: str | None = None
    split: str | None = None
    directed: bool = False
    fill: str | float | None = None
    features: Sequence[str] = ()
    categorical: Sequence[str] = ()
    ignore: Sequence[str] = ()
    task: str | None = None
    delimiter: str | None = None
    raw: bool = False
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            check_choice("dtype", self.dtype, DTYPES)
        if self.task is not None:
            check_choice("task", self.task, (CLASSIFICATION, REGRESSION))


@dataclass
class Job:
    """What the steps of a conversion share, and its journal.

    Args:
        request: What to convert.
        folder: The store.
        memory: Bytes that it may take.
        done: What the steps so far found, by their names.
        notes: What the user should know.
    """

    request: Request
    folder: Path
    memory: int
    done: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look at the files and at the names of their columns, before anything is written."""
        request = self.request
        with self.engine() as engine:
            self.nodes = engine.open(Path(request.nodes), request.delimiter)
            self.edges = engine.open(Path(request.edges), request.delimiter)
            check_delimiter(request.delimiter, [self.nodes.separator, self.edges.separator])
            self.copies = self.nodes.kind != "Parquet" or _has_large_groups(engine, self.nodes)
        named = self.edges.named
        self.source, self.target = edge_ends(named, request.source, request.target, self.notes)
        if (weight := weight_column(named)) is not None:
            self.notes.append(f"column {weight!r} of {named.title} is ignored: a store keeps no edge weights")
        named = self.nodes.named
        self.id = find_column(named, "id", request.id)
        self.roles = check_roles(named, ("id", self.id), ("label", request.label), ("split", request.split))
        chosen = (request.features or None, request.categorical, request.ignore)
        self.columns = feature_columns(named, self.roles, *chosen)
        if not self.columns:
            raise Node2SeqError(
                named.title,
                "it has no feature columns, and features of the structure need the whole graph in memory",
                "Give at least one column of features, or train from the files without converting them",
            )
        self.widths = _widths(self.nodes, self.columns)
        is_half = _is_half(self.nodes, self.columns)
        self.half = is_half if request.dtype is None else request.dtype == "float16"

    @property
    def work(self) -> Path:
        """What is kept while the store is made."""
        return self.folder / WORK

    @property
    def num_numbers(self) -> int:
        """About how many features a node has: categories are not known yet."""
        return sum(self.widths.get(name, 1) for name in self.columns)

    def engine(self) -> closing[Engine]:
        """DuckDB for one step: what it took is given back in the end."""
        return closing(Engine(int(_SHARE * self.memory), self.work / "spill"))

    @property
    def table(self) -> Table:
        """The nodes as all steps after the first read them."""
        if not self.copies:
            return self.nodes
        return Table(self.nodes.title, (self.work / "nodes.parquet",), "Parquet", self.nodes.types)

    def id_of(self, table: Table, name: str) -> str:
        """A column of ids in SQL: whole numbers if they are in both tables, otherwise compared as text."""
        ends = {self.edges.types[self.source], self.edges.types[self.target]}
        is_number = {*ends, self.nodes.types[self.id]} <= INTEGERS
        return f"{quoted_name(name)}::BIGINT" if is_number else table.text_of(name)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the content of the store, ready for JSON."""
        request = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self.request).items()
        }
        for name, table in (("edges", self.edges), ("nodes", self.nodes)):
            request[name] = [[file.name, file.stat().st_size] for file in table.files]
        return request

    @property
    def _times(self) -> list[int]:
        return [file.stat().st_mtime_ns for table in (self.edges, self.nodes) for file in table.files]

    def resume(self) -> None:
        """Take up what an earlier process has done; of files that were corrected since, nothing."""
        path, identity = self.folder / JOURNAL, self.identity
        journal = read_json(path) if path.is_file() else {"format": _FORMAT, "request": identity}
        is_same = _without_sizes(journal["request"]) == _without_sizes(identity)
        if journal.get("format") != _FORMAT or not is_same:
            raise Node2SeqError(
                str(self.folder),
                "a conversion of other files or with other options was begun there",
                "Give the same files and options, or another folder, or remove this one",
            )
        if journal["request"] == identity and journal.get("times") == self._times:
            self.done, self.notes = journal["done"], journal["notes"]

    def begin(self) -> None:
        """Remove what cannot be used."""
        if not self.done:
            shutil.rmtree(self.work, ignore_errors=True)
            make_folder(self.work)
            self.write_journal()
        for folder in (self.folder, self.work):
            remove_leftovers(folder)

    def write_journal(self) -> None:
        """Keep what the steps so far found."""
        known = {"format": _FORMAT, "request": self.identity, "times": self._times}
        write_json(self.folder / JOURNAL, {**known, "done": self.done, "notes": self.notes})

    def clean(self) -> None:
        """Remove what is not of the store itself."""
        shutil.rmtree(self.work, ignore_errors=True)
        (self.folder / JOURNAL).unlink(missing_ok=True)
        remove_leftovers(self.folder)


def _without_sizes(request: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, whatever the files hold."""
    return {**request, **{part: [name for name, _ in request[part]] for part in ("edges", "nodes")}}


def reported(chunks: Iterable[T], total: int, report: Report) -> Iterator[T]:
    """The same chunks; tells how many rows are done."""
    seen = 0
    for chunk in chunks:
        yield chunk
        seen += len(chunk)  # pyright: ignore[reportArgumentType]
        report(seen / max(total, 1))


def _has_large_groups(engine: Engine, table: Table) -> bool:
    files = ", ".join(literal(str(file)) for file in table.files)
    most = engine.rows(f"SELECT max(row_group_bytes) FROM parquet_metadata([{files}])", table.title)[0][0]
    return most is not None and int(most) > _LARGE_GROUP


def _widths(table: Table, columns: Sequence[str]) -> dict[str, int]:
    """The columns that hold lists of numbers; those of text files hold none."""
    first = next(chunks_of(table.files, columns, 100), None) if table.kind == "Parquet" else None
    return {} if first is None else widths_of(first, table.title)


def _is_half(table: Table, columns: Sequence[str]) -> bool:
    """Whether all feature columns of Parquet files hold numbers of 16 bits."""
    if table.kind != "Parquet":
        return False
    schema = pl.read_parquet_schema(table.files[0])
    kinds = [schema[name] for name in columns]
    inner = [kind.inner if isinstance(kind, pl.Array | pl.List) else kind for kind in kinds]
    return all(kind == pl.Float16 for kind in inner)

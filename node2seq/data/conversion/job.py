"""A conversion: what is asked for, the tables as they were opened, and what earlier steps found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from node2seq.data.conversion.columns import widths_of
from node2seq.data.conversion.engine import Engine, Report, Table, chunks_of, literal
from node2seq.data.schema import check_roles, edge_ends, feature_columns
from node2seq.data.splits import CLASSIFICATION, REGRESSION
from node2seq.data.tabular import find_column, pl, weight_column
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice

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
    """What the steps of a conversion share.

    Args:
        request: What to convert.
        folder: The store.
        work: What is kept while it is made.
        memory: Bytes that it may take.
        done: What the steps so far found, by their names.
        notes: What the user should know.
    """

    request: Request
    folder: Path
    work: Path
    memory: int
    done: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        with self.engine() as engine:
            self._open(engine)

    def _open(self, engine: Engine) -> None:
        """Look at the files and at the names of their columns, before anything is written."""
        request = self.request
        self.nodes = engine.open(Path(request.nodes), request.delimiter)
        self.edges = engine.open(Path(request.edges), request.delimiter)
        named = self.edges.named
        self.source, self.target = edge_ends(named, request.source, request.target)
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
        self.copies = self.nodes.kind != "Parquet" or _has_large_groups(engine, self.nodes)
        self.widths = _widths(self.nodes, self.columns)
        self.half = request.dtype == "float16"
        if request.dtype is None:
            self.half = _is_half(self.nodes, self.columns)

    @property
    def num_numbers(self) -> int:
        """About how many features a node has: categories are not known yet."""
        return sum(self.widths.get(name, 1) for name in self.columns)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """DuckDB for one step: what it took is given back in the end."""
        engine = Engine(int(_SHARE * self.memory), self.work / "spill")
        try:
            yield engine
        finally:
            engine.close()

    @property
    def table(self) -> Table:
        """The nodes as all steps after the first read them."""
        if not self.copies:
            return self.nodes
        return Table(self.nodes.title, (self.work / "nodes.parquet",), "Parquet", self.nodes.types)

    @property
    def joins_numbers(self) -> bool:
        """Whether ids are whole numbers in both tables; otherwise they are compared as text."""
        ends = self.edges.is_integer(self.source) and self.edges.is_integer(self.target)
        return ends and self.nodes.is_integer(self.id)


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

"""DuckDB: joins and sorts of tables that are larger than memory, with a limit and a folder to spill to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from node2seq.data.tabular import LazyTable, pl, table_format, text_columns, unread
from node2seq.environment import repeating
from node2seq.errors import Node2SeqError
from node2seq.storage import DiskFullError, replacing_path

Report = Callable[[float], None]
# Rows of a part that is worked on at once.
CHUNK = 2**18
_POLL_SECONDS = 0.25
_FULL = re.compile("no space left|disk.*full|file too large|max_temp_directory_size|quota exceeded", re.I)
#: Types of whole numbers of up to 64 bits.
INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_SIZES = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.I)


def parse_size(text: str) -> int:
    """Bytes from ``4GB``, ``500 MB`` or ``2GiB``."""
    match = _SIZE.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise Node2SeqError(f"memory {text!r}", "it is no amount of memory", "Give for instance 4GB or 500MB")
    unit = _SIZES[match[2].lower()]
    return int(float(match[1]) * (1024 ** (len(str(unit)) // 3) if match[3] else unit))


@dataclass(frozen=True)
class Table:
    """A table in one file, or in several of one kind that are read one after the other.

    Args:
        title: What it is called in messages.
        files: The files in their order.
        kind: ``"CSV"``, ``"TSV"`` or ``"Parquet"``.
        types: The type of each column as DuckDB names it.
        separator: What separates the cells of text files.
    """

    title: str
    files: tuple[Path, ...]
    kind: str
    types: dict[str, str]
    separator: str | None = None

    @property
    def named(self) -> LazyTable:
        """The names of its columns, for the functions that look for one; it cannot be read."""
        return LazyTable(self.title, list(self.types), unread)

    @property
    def sql(self) -> str:
        """What stands behind FROM."""
        files = ", ".join(literal(str(path)) for path in self.files)
        if self.kind == "Parquet":
            return f"read_parquet([{files}])"
        names = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in self.types)
        # The first line names the columns; nothing is guessed, since 007 is another id than 7.
        return (
            f"read_csv([{files}], delim={literal(self.separator or ',')}, header=true, quote='\"', "
            f"escape='\"', auto_detect=false, columns={{{names}}}, max_line_size=16777216)"
        )

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.files)

    @cached_property
    def rows(self) -> int:
        """How many rows it has; of text, an estimate by its first lines."""
        if self.kind == "Parquet":
            return sum(int(pl.scan_parquet(file).select(pl.len()).collect().item()) for file in self.files)
        with self.files[0].open("rb") as file:
            start = file.read(2**16)
        return max(int(self.size / (len(start) / max(start.count(b"\n"), 1))), 1)

    def text_of(self, name: str) -> str:
        """A column as text in SQL: without blanks around it, NULL where it is empty, 7 and not 7.0."""
        column, kind = quoted_name(name), self.types[name]
        if kind in ("FLOAT", "DOUBLE"):
            whole = f"{column} = floor({column}) AND abs({column}) < 1e18"
            text = f"CASE WHEN {whole} THEN {column}::BIGINT::VARCHAR ELSE {column}::VARCHAR END"
            return f"CASE WHEN isnan({column}) THEN NULL ELSE {text} END"
        text = column if kind == "VARCHAR" else f"{column}::VARCHAR"
        return f"nullif(trim({text}, ' ' || chr(9) || chr(13)), '')"


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """The name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


class Engine:
    """A connection to DuckDB that keeps to a limit of memory.

    Args:
        memory: Bytes that it may take.
        spill: Where it puts what does not fit.
    """

    def __init__(self, memory: int, spill: Path) -> None:
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise Node2SeqError(
                "converting a graph", "it needs duckdb", "Run `pip install 'node2seq[large]'`"
            ) from error
        self._error: type[Exception] = duckdb.Error
        self._spill = spill
        config: dict[str, Any] = {"memory_limit": f"{memory // 10**6}MB", "temp_directory": str(spill)}
        self._connection = duckdb.connect(config=config)
        for setting in ("enable_progress_bar = true", "enable_progress_bar_print = false"):
            self._connection.execute(f"SET {setting}")

    def close(self) -> None:
        """End it; files that it spilled to are removed."""
        self._connection.close()

    def open(self, path: Path, delimiter: str | None = None) -> Table:
        """Look at a file, or at a folder of files of one kind."""
        files = _files(path)
        kinds = {table_format(file) for file in files}
        if len(kinds) > 1 or not kinds <= {"CSV", "TSV", "Parquet"}:
            found = ", ".join(sorted(kinds))
            raise Node2SeqError(str(path), f"it holds {found}", "Give CSV, TSV or Parquet files of one kind")
        (kind,) = kinds
        if kind == "Parquet":
            table = Table(str(path), files, kind, {})
            rows = self.rows(f"DESCRIBE SELECT * FROM {table.sql}", table.title)
            return replace(table, types={str(row[0]): str(row[1]) for row in rows})
        names, separator = text_columns(files[0], delimiter)
        return Table(str(path), files, kind, dict.fromkeys(names, "VARCHAR"), separator)

    def rows(self, query: str, title: str = "the files") -> list[tuple[Any, ...]]:
        """The rows of a small result."""
        with self._errors(title):
            return self._connection.execute(query).fetchall()

    def copy(
        self, query: str, path: Path, report: Report, *, title: str, options: str = "", ordered: bool = False
    ) -> int:
        """Write the rows of a query to a Parquet file, whole or not at all; returns how many there are.

        Args:
            query: What to write.
            path: The file.
            report: Called with the share that is done, now and then.
            title: What is read, for messages.
            options: Of the file, after the format.
            ordered: Whether rows stay in the order of the files; it takes more memory.
        """
        self._connection.execute(f"SET preserve_insertion_order = {str(ordered).lower()}")
        form = f"FORMAT parquet{options and ', ' + options}"
        with replacing_path(path) as temporary, self._errors(title), self._reporting(report):
            done = self._connection.execute(
                f"COPY ({query}) TO {literal(str(temporary))} ({form})"
            ).fetchone()
        return 0 if done is None else int(done[0])

    def _reporting(self, report: Report) -> AbstractContextManager[None]:
        """Tell how far the query is while it runs."""

        def look() -> float:
            report(max(self._connection.query_progress(), 0.0) / 100)
            return _POLL_SECONDS

        return repeating(look, _POLL_SECONDS)

    @contextmanager
    def _errors(self, title: str) -> Iterator[None]:
        """Turn what DuckDB says into a sentence with a cure."""
        try:
            yield
        except self._error as error:
            text = str(error).strip()
            if type(error).__name__ == "InterruptException":
                raise KeyboardInterrupt from error
            if _FULL.search(text):
                raise DiskFullError(
                    str(self._spill.parent), "the disk is full",
                    "Free some space, then run the same command again: it resumes where it stopped",
                ) from error  # fmt: skip
            if type(error).__name__ == "OutOfMemoryException":
                raise Node2SeqError(
                    title, "the memory that it may take is not enough", "Give more, such as --memory 4GB"
                ) from error
            raise Node2SeqError(
                title, f"it cannot be read ({_in_short(text)})", "Correct the file, or save it again"
            ) from error


def _in_short(text: str) -> str:
    """What DuckDB says of a file, without its advice: the line and what is wrong there."""
    lines = [line.strip().rstrip(".") for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith(("Original Line:", "LINE "))]
    end = next((place for place, line in enumerate(told) if line.startswith("Possible ")), len(told))
    return "; ".join(told[: min(end, 2)]).removeprefix("Invalid Input Error: ")


def _files(path: Path) -> tuple[Path, ...]:
    if not path.is_dir():
        return (path,)
    found = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith((".", "_")))
    if not found:
        raise Node2SeqError(str(path), "there are no files in this folder", "Give files of a table")
    return tuple(found)


def chunks_of(files: Sequence[Path], columns: Sequence[str], rows: int = CHUNK) -> Iterator[pl.DataFrame]:
    """The rows of Parquet files in their order, in chunks."""
    for file in files:
        table, start = pl.scan_parquet(file).select(columns), 0
        while (part := table.slice(start, rows).collect()).height:
            yield part
            start += part.height
            if part.height < rows:
                break

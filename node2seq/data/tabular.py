"""A user's file as a table of columns: CSV, TSV, Parquet or NPZ, also gzipped. Nothing is unpickled.

Text is read as text. Whether a column holds numbers is decided later, when its role (source, target, id, …)
is known; roles are found by the columns' names.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from node2seq.data.parquet import is_damaged
from node2seq.environment import LazyModule
from node2seq.errors import Node2SeqError
from node2seq.storage import read_errors

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_FORMATS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".tab": "TSV",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".npz": "NPZ",
}
_SEPARATORS = {"CSV": ",", "TSV": "\t"}
_SAVE_AS = "Save it as CSV, TSV, Parquet or NPZ, and let its name say which"
# Messages use the first name. Names are compared without case, "_", "-", " " and ".".
_USUAL_NAMES = {
    "source": ("source", "src", "from", "sourceid", "fromid", "sourcenode", "sourcenodeid", "u", "node1"),
    "target": ("target", "dst", "to", "dest", "targetid", "toid", "targetnode", "targetnodeid", "v", "node2"),
    "id": ("id", "nodeid", "node", "key", "uid"),
    "weight": ("weight", "weights", "w", "edgeweight"),
}
_FLAGS = {"features": "feature"}
_VALUES_SHOWN = 3
#: What a missing cell may hold, in lower case.
MISSING = ["", "na", "n/a", "nan", "null", "none", "-"]


@dataclass(frozen=True)
class LazyTable:
    """A table that knows its column names and reads columns on demand.

    ``title`` names it in messages; ``read`` takes the names of the wanted columns. ``separator`` is what
    separates the cells of a text file.
    """

    title: str
    names: list[str]
    read: Callable[[Sequence[str]], pl.DataFrame]
    separator: str | None = None


def open_table(path: str | os.PathLike[str], delimiter: str | None = None) -> LazyTable:
    """Open a file and read the names of its columns, so that a wrong file fails early."""
    path = Path(path)
    title = str(path)
    kind, start, is_packed = _begin(path)
    with read_errors(path), _unpacking(title):
        content = gzip.decompress(path.read_bytes()) if is_packed else path
        if kind in _SEPARATORS:
            return _open_text(title, content, start, kind, delimiter)
        if kind == "Parquet":
            return _open_parquet(title, content)
        return _open_npz(title, content)


def _begin(path: Path) -> tuple[str, bytes, bool]:
    """The format of a file, its first bytes, the whole header line among them, and whether it is gzipped."""
    title, kind = str(path), table_format(path)
    with read_errors(path), path.open("rb") as file, _unpacking(title):
        is_packed = file.read(2) == _GZIP
        file.seek(0)
        with gzip.open(file) if is_packed else file as plain:
            start = plain.read(2**16) + plain.readline(2**24)
    if not start:
        raise Node2SeqError(title, "the file is empty", "Give a file with a header line and at least one row")
    found = "Parquet" if start[:4] == _PARQUET else "NPZ" if start[:4] == _ZIP else None
    if found is not None and found != kind:
        name = {"Parquet": "Parquet", "NPZ": "zip or NPZ"}[found]
        raise Node2SeqError(
            title, f"its name says {kind}, but it holds {name} data", "Give the file the ending of its format"
        )
    if found is None and kind not in _SEPARATORS:
        raise Node2SeqError(title, f"its name says {kind}, but it holds something else", _SAVE_AS)
    return kind, start, is_packed


def table_format(path: Path) -> str:
    """The format of a file by its name: CSV, TSV, Parquet or NPZ."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".gzip"):
        suffixes.pop()
    kind = _FORMATS.get(suffixes[-1] if suffixes else "")
    if str(path) == "-" or path.is_fifo() or path.is_char_device() or path.is_socket():
        reason = "standard input and pipes are not read, since a graph is read more than once"
        raise Node2SeqError(str(path), reason, "Save it as a file, and give its name")
    if not path.exists():
        raise Node2SeqError(str(path), "there is no such file", "Check the path")
    if path.is_dir():
        raise Node2SeqError(str(path), "it is a folder, not a file", "Give a file inside it")
    if kind is None:
        ending = f"'{path.suffix}'" if path.suffix else "no ending"
        raise Node2SeqError(str(path), f"its name has {ending}, which is not a supported format", _SAVE_AS)
    return kind


@contextmanager
def _unpacking(title: str) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise _damaged(title, "gzip") from None


def _damaged(title: str, kind: str) -> Node2SeqError:
    return Node2SeqError(title, f"its {kind} data is truncated or damaged", "Make or download the file again")


def _open_text(
    title: str, content: Path | bytes, start: bytes, kind: str, delimiter: str | None
) -> LazyTable:
    names, separator = _text_columns(title, start, kind, delimiter)
    content = _without_empty_end(content)

    def read(columns: Sequence[str]) -> pl.DataFrame:
        try:
            return pl.read_csv(content, separator=separator, columns=list(columns), infer_schema=False)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise _text_error(title, content, separator, str(error)) from None

    return LazyTable(title, names, read, separator)


def _without_empty_end(content: Path | bytes) -> Path | bytes:
    """A text file, in memory if empty lines have to be cut off its end: each would be a row."""
    if isinstance(content, Path):
        with content.open("rb") as file:
            file.seek(-min(content.stat().st_size, 3), os.SEEK_END)
            end = file.read()
        if not end.endswith((b"\n\n", b"\n\r\n")):
            return content
        content = content.read_bytes()
    return content.rstrip(b"\r\n") + b"\n"


def check_delimiter(delimiter: str | None, separators: Iterable[str | None]) -> None:
    """Refuse a delimiter that separates the cells of none of the files.

    Args:
        delimiter: The one that was asked for, if any.
        separators: What separates the cells of each file; None if it is no text.
    """
    found = [separator for separator in separators if separator is not None]
    if delimiter is None or delimiter in found:
        return
    reason = "none of the files is text"
    if found:
        reason = f"the cells are separated by {' and '.join(map(repr, dict.fromkeys(found)))}"
    raise Node2SeqError(f"delimiter {delimiter!r}", reason, "Leave it out: it is detected in each file")


def unread(_: Sequence[str]) -> pl.DataFrame:
    """Stands for reading a table of which only the names are known."""
    raise NotImplementedError


def text_columns(path: Path, delimiter: str | None = None) -> tuple[list[str], str]:
    """The names of a text file's columns, and what separates its cells; nothing else of it is read."""
    kind, start, _ = _begin(path)
    return _text_columns(str(path), start, kind, delimiter)


def _text_columns(title: str, start: bytes, kind: str, delimiter: str | None) -> tuple[list[str], str]:
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Node2SeqError(title, "it is UTF-16 text", "Save it as UTF-8")
    if b"\x00" in start:
        raise Node2SeqError(title, "it holds binary data, not text", _SAVE_AS)
    separator = _SEPARATORS[kind] if delimiter is None else delimiter
    if len(separator.encode()) != 1 or separator in '"\r\n':
        raise Node2SeqError(
            f"delimiter {separator!r}",
            "it must be a single character",
            "Give for instance ';' or ',', or leave it out: it is detected in each file",
        )
    names = _header(title, start, separator)
    if len(names) == 1:
        # The two files of a graph may be separated by different characters, whatever their names say.
        separator = next((other for other in (";", "\t", "|", ",") if other in names[0]), separator)
        names = _header(title, start, separator)
    return names, separator


def _header(title: str, start: bytes, separator: str) -> list[str]:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    line = text.split(b"\n", 1)[0].rstrip(b"\r")
    if b"\r" in line:
        reason = "its lines end in a carriage return alone, as on old Macs"
        raise Node2SeqError(title, reason, "Save it with the line ends of Windows or Unix")
    try:
        header = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(title, line[error.start]) from None
    if not header.strip():
        raise Node2SeqError(title, "it has no header line", "Name the columns in its first line")
    try:
        names = next(csv.reader([header], delimiter=separator))
    except csv.Error as error:
        reason = f"its header line cannot be read ({error})"
        raise Node2SeqError(title, reason, "Correct the first line") from None
    _check_names(title, names)
    return names


def _check_names(title: str, names: list[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise Node2SeqError(title, f"column {twice[0]!r} occurs more than once", "Give each its own name")


def _not_utf8(title: str, byte: int) -> Node2SeqError:
    return Node2SeqError(title, f"it is not UTF-8 text: it holds the byte 0x{byte:02x}", "Save it as UTF-8")


def _text_error(title: str, content: Path | bytes, separator: str, message: str) -> Node2SeqError:
    """Find out why a text file could not be read. Reading it again is slow, but only happens on errors."""
    text = content if isinstance(content, bytes) else content.read_bytes()
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        return _not_utf8(title, text[error.start])
    if "more fields" in message:
        return Node2SeqError(
            title,
            f"{_first_wide_row(text, separator)} has more cells than the header line",
            'Correct the row, or quote cells: "a, b"',
        )
    return Node2SeqError(title, "its rows cannot be read", "Look for an unclosed quote, or another delimiter")


def _first_wide_row(text: bytes, separator: str) -> str:
    """Which row has more cells than the header line."""
    rows = csv.reader(io.StringIO(text.decode("utf-8-sig"), newline=""), delimiter=separator)
    try:
        width = len(next(rows))
        return next(f"row {row}" for row, cells in enumerate(rows, start=1) if len(cells) > width)
    except (csv.Error, StopIteration):  # read otherwise here than by polars
        return "a row"


def _open_parquet(title: str, content: Path | bytes) -> LazyTable:
    @contextmanager
    def opened(columns: Sequence[str] | None = None) -> Iterator[Path | io.BytesIO]:
        if is_damaged(content, columns):
            raise _damaged(title, "Parquet")
        try:
            yield io.BytesIO(content) if isinstance(content, bytes) else content
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            raise _damaged(title, "Parquet") from None

    with opened() as source:
        names = list(pl.read_parquet_schema(source))

    def read(columns: Sequence[str]) -> pl.DataFrame:
        with opened(columns) as source:
            return pl.read_parquet(source, columns=list(columns))

    return LazyTable(title, names, read)


def _open_npz(title: str, content: Path | bytes) -> LazyTable:
    """Every 1-d array is a column; of a matrix ``x`` [N, C], the columns are x0, x1, …

    ``edge_index`` [2, E], as PyTorch Geometric keeps it, is read as the columns source and target.
    """
    try:
        # Opened here and not by numpy, which would leave a damaged file open.
        opened = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        with opened, np.load(opened, allow_pickle=False) as archive:
            arrays: dict[str, np.ndarray] = {name: archive[name] for name in archive.files}
    except Exception as error:
        # A damaged archive makes numpy raise whatever the damaged spot leads to; it all means the same.
        if isinstance(error, ValueError) and "pickle" in str(error):
            raise Node2SeqError(
                title, "it holds pickled Python objects, which are never opened", "Save plain arrays instead"
            ) from None
        raise _damaged(title, "NPZ") from None
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if name == "edge_index" and array.ndim == 2 and array.shape[0] == 2:
            columns |= {"source": array[0], "target": array[1]}
        elif array.ndim == 2:
            columns |= {f"{name}{number}": array[:, number] for number in range(array.shape[1])}
        elif array.ndim == 1:
            columns[name] = array
        else:
            raise Node2SeqError(
                title, f"array {name!r} has {array.ndim} dimensions", "Save columns [N] or matrices [N, C]"
            )
    return _table_of_columns(title, columns)


def table_of(frame: Any, title: str) -> LazyTable:
    """A polars or pandas DataFrame, or a mapping of names to columns, as a table."""
    if isinstance(frame, pl.DataFrame):
        return LazyTable(title, frame.columns, lambda names: frame.select(names))
    if hasattr(frame, "columns") and hasattr(frame, "to_dict"):  # pandas, without importing it
        names = [str(name) for name in frame.columns]
        _check_names(title, names)
        arrays = {name: frame.iloc[:, place].to_numpy() for place, name in enumerate(names)}
        return _table_of_columns(title, arrays)
    if isinstance(frame, Mapping):
        return _table_of_columns(title, {str(name): values for name, values in frame.items()})
    raise Node2SeqError(
        f"{title} of type {type(frame).__name__}", "no table", "Give a polars or pandas DataFrame or a dict"
    )


def _table_of_columns(title: str, columns: Mapping[str, Any]) -> LazyTable:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        short, long = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        raise Node2SeqError(
            title,
            f"{short!r} has {lengths[short]} entries, {long!r} has {lengths[long]}",
            "Give every column one entry per row",
        )

    def read(names: Sequence[str]) -> pl.DataFrame:
        # By name: in a list of columns, one without a name would get another.
        return pl.DataFrame({name: _series(name, columns[name]) for name in names})

    return LazyTable(title, list(columns), read)


def _series(name: str, values: Any) -> pl.Series:
    if isinstance(values, pl.Series):
        return values.alias(name)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        return pl.Series(name, np.ascontiguousarray(native))
    if not isinstance(values, np.ndarray):
        try:
            return pl.Series(name, list(values))
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            pass  # cells of several kinds
    # Python objects: ids beyond 64 bits, text, and nan or None where something is missing.
    cells = [None if value is None or value != value else str(value) for value in list(values)]
    return pl.Series(name, cells, dtype=pl.String)


def normalized_name(name: str) -> str:
    """The name in lower case and without separators, for comparison with the usual names."""
    return "".join(letter for letter in name.lower() if letter not in "_- .")


def find_column(table: LazyTable, role: str, given: str | None) -> str:
    """The column for ``role``: the given one, otherwise the one with a usual name for that role."""
    if given is not None and given in table.names:
        return given
    usual = usual_column(table, role) if given in (None, _USUAL_NAMES[role][0]) else None
    if usual is None:
        raise missing_column(table, role, given or _USUAL_NAMES[role][0])
    return usual


def usual_column(table: LazyTable, role: str) -> str | None:
    """The only column with the first usual name for ``role`` that there is, or None."""
    for usual in _USUAL_NAMES[role]:
        found = [name for name in table.names if normalized_name(name) == usual]
        if len(found) > 1:
            raise Node2SeqError(
                table.title,
                f"columns {quoted(found)} could each be the {role}",
                f"Say which with {role}=NAME (--{role} NAME)",
            )
        if found:
            return found[0]
    return None


def column_error(title: str, name: str, reason: str, cure: str) -> Node2SeqError:
    """The error for what a column of a table holds."""
    return Node2SeqError(title, f"column {name!r}: {reason}", cure)


def missing_column(table: LazyTable, role: str, name: str) -> Node2SeqError:
    """The error for a column that the table does not have; it lists the columns there are."""
    shown = quoted(table.names[:8]) + (f" and {len(table.names) - 8} more" if len(table.names) > 8 else "")
    known = {normalized_name(other): other for other in table.names}
    near = difflib.get_close_matches(normalized_name(name), known, n=1, cutoff=0.75)
    meant = f"; perhaps {known[near[0]]!r} was meant" if near else ""
    return Node2SeqError(
        table.title,
        f"it has no column {name!r}; its columns are {shown}",
        f"Name another one with {role}=NAME (--{_FLAGS.get(role, role.replace('_', '-'))} NAME){meant}",
    )


def weight_column(table: LazyTable) -> str | None:
    """The column that looks like edge weights, if there is one."""
    return next((name for name in table.names if normalized_name(name) in _USUAL_NAMES["weight"]), None)


def quoted(values: list[str]) -> str:
    """The values in quotes, separated by commas."""
    return ", ".join(repr(value) for value in values)


def first_few(values: list[str]) -> str:
    """The first few of many values, for a message."""
    shown = [value if len(value) <= 40 else value[:39] + "…" for value in values[:_VALUES_SHOWN]]
    return quoted(shown) + (" …" if len(values) > _VALUES_SHOWN else "")


def subject(values: list[str], one: str, many: str) -> str:
    """The start of a sentence: ``one`` filled with the only value, or ``many`` with the count and a few."""
    if len(values) == 1:
        return one.format(repr(values[0]))
    return many.format(len(values), first_few(values))


def check_cells(
    right: np.ndarray,
    title: str,
    name: str,
    cell: Callable[[int], object],
    reason: str,
    cure: str,
    before: int = 0,
) -> None:
    """Refuse a column with a wrong cell, and name the first.

    Args:
        right: Whether each cell is right.
        title: What the table is called.
        name: The column.
        cell: What to say of the cell in a row.
        reason: What is wrong with it.
        cure: What to do.
        before: How many rows of the table come before these.
    """
    if not right.all():
        row = int(right.argmin())
        raise column_error(title, name, f"{cell(row)} in row {before + row + 1} {reason}", cure)


def given_text(column: pl.Series, title: str) -> pl.Series:
    """The cells as text, with nulls for those that hold a word for a missing cell."""
    text = as_text(column, title)
    return text.set(text.str.to_lowercase().is_in(MISSING), None)


def as_text(series: pl.Series, title: str) -> pl.Series:
    """Convert cells to text, strip blanks and turn empty cells into nulls.

    Whole numbers read the same in every format: a float column of whole numbers, which other tools make of
    integers with gaps, gives 7, not 7.0.
    """
    kind = series.dtype
    if kind == pl.String:
        # Most ids have no blanks, and checking is cheaper than copying them all.
        if not series.str.contains(r"^\s|\s$|^$").any():
            return series
        stripped = series.str.strip_chars()
        return stripped.set(stripped == "", None)
    if kind.is_float():
        series = series.fill_nan(None)
        if not bool((series.is_infinite() | (series != series.round())).any()):
            series = series.cast(pl.Int128)
        return series.cast(pl.String)
    if kind.is_integer() or kind.is_decimal() or kind in (pl.Boolean, pl.Categorical, pl.Enum, pl.Null):
        return series.cast(pl.String)
    cure = "Leave it out, or save text"
    if isinstance(kind, pl.List | pl.Array):
        cure = "Leave it out, save a column for each number, or read it with `node2seq data convert`"
    raise Node2SeqError(title, f"column {series.name!r} holds {kind}, neither text nor numbers", cure)

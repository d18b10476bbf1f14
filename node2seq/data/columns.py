"""Find the column of a table for each role (source, target, id, …) and read its cells as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node2seq.data.tabular import LazyTable
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import polars as pl

# Messages use the first name. Names are compared without case, "_", "-", " " and ".".
_USUAL_NAMES = {
    "source": ("source", "src", "from", "sourceid", "fromid", "sourcenode", "sourcenodeid", "u", "node1"),
    "target": ("target", "dst", "to", "dest", "targetid", "toid", "targetnode", "targetnodeid", "v", "node2"),
    "id": ("id", "nodeid", "node", "key", "uid"),
    "weight": ("weight", "weights", "w", "edgeweight"),
}
_FLAGS = {"features": "feature"}
_VALUES_SHOWN = 3


def normalized_name(name: str) -> str:
    """The name in lower case and without separators, for comparison with the usual names."""
    return "".join(letter for letter in name.lower() if letter not in "_- .")


def find_column(table: LazyTable, role: str, given: str | None) -> str:
    """The column for ``role``: the given one, otherwise the one with a usual name for that role."""
    if given is not None and given in table.names:
        return given
    if given is None or given == _USUAL_NAMES[role][0]:
        for usual in _USUAL_NAMES[role]:
            found = [name for name in table.names if normalized_name(name) == usual]
            if len(found) == 1:
                return found[0]
            if found:
                raise Node2SeqError(
                    table.title,
                    f"columns {quoted(found)} could each be the {role}",
                    f"Say which with {role}=NAME (--{role} NAME)",
                )
    raise missing_column(table, role, given or _USUAL_NAMES[role][0])


def missing_column(table: LazyTable, role: str, name: str) -> Node2SeqError:
    """The error for a column that the table does not have; it lists the columns there are."""
    shown = quoted(table.names[:8]) + (f" and {len(table.names) - 8} more" if len(table.names) > 8 else "")
    return Node2SeqError(
        table.title,
        f"no column {name!r} for the {role}; its columns are {shown}",
        f"Say which it is with {role}=NAME (--{_FLAGS.get(role, role)} NAME)",
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


def as_text(series: pl.Series, title: str) -> pl.Series:
    """Convert cells to text, strip blanks and turn empty cells into nulls.

    Whole numbers read the same in every format: a float column of whole numbers, which other tools make of
    integers with gaps, gives 7, not 7.0.
    """
    import polars as pl

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
    raise Node2SeqError(
        title, f"column {series.name!r} holds {kind}, neither text nor numbers", "Leave it out, or save text"
    )

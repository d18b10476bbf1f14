"""Which column of a table plays which part, and what its cells say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node2seq.data.tables import Table
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import polars as pl

# The first name is the one that messages speak of. Compared without regard to case and to "_", "-", " ", ".".
_USUAL_NAMES = {
    "source": ("source", "src", "from", "sourceid", "fromid", "sourcenode", "sourcenodeid", "u", "node1"),
    "target": ("target", "dst", "to", "dest", "targetid", "toid", "targetnode", "targetnodeid", "v", "node2"),
    "id": ("id", "nodeid", "node", "key", "uid"),
    "weight": ("weight", "weights", "w", "edgeweight"),
}
_FLAGS = {"features": "feature"}
_CELLS_NAMED = 3


def plain(name: str) -> str:
    """A column's name as it is compared with the usual ones."""
    return "".join(letter for letter in name.lower() if letter not in "_- .")


def find_column(table: Table, part: str, given: str | None) -> str:
    """The column that plays ``part``: the given one, else the one that bears a usual name of that part."""
    if given is not None and given in table.names:
        return given
    if given is None or given == _USUAL_NAMES[part][0]:
        for usual in _USUAL_NAMES[part]:
            found = [name for name in table.names if plain(name) == usual]
            if len(found) == 1:
                return found[0]
            if found:
                raise Node2SeqError(
                    table.title,
                    f"columns {quoted(found)} could each be the {part}",
                    f"Say which with {part}=NAME (--{part} NAME)",
                )
    raise absent(table, part, given or _USUAL_NAMES[part][0])


def absent(table: Table, part: str, name: str) -> Node2SeqError:
    """No column plays the part: say which there are."""
    shown = quoted(table.names[:8]) + (f" and {len(table.names) - 8} more" if len(table.names) > 8 else "")
    return Node2SeqError(
        table.title,
        f"no column {name!r} for the {part}; its columns are {shown}",
        f"Say which it is with {part}=NAME (--{_FLAGS.get(part, part)} NAME)",
    )


def weight_column(table: Table) -> str | None:
    """A column that looks like the edges' weight."""
    return next((name for name in table.names if plain(name) in _USUAL_NAMES["weight"]), None)


def quoted(values: list[str]) -> str:
    """The values as a list in a sentence."""
    return ", ".join(repr(value) for value in values)


def some(values: list[str]) -> str:
    """The first few of many values, for a message."""
    shown = [value if len(value) <= 40 else value[:39] + "…" for value in values[:_CELLS_NAMED]]
    return quoted(shown) + (" …" if len(values) > _CELLS_NAMED else "")


def as_text(series: pl.Series, title: str) -> pl.Series:
    """Cells as text without blanks around them; empty ones are null. Whole numbers read alike in every
    format.

    A float column of whole numbers, which is what other tools make of integers with gaps, reads 7, not 7.0.
    """
    import polars as pl

    kind = series.dtype
    if kind == pl.String:
        # Most ids carry no blanks, and looking is cheaper than writing every one anew.
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

"""A column of dates, timestamps or numbers → numbers that can be compared and sorted, and what they decide.

They decide the order of a node's edges, the split of the nodes, and which edges are too new. A date,
``2024-03-31``, and a timestamp, ``2024-03-31T17:05:09.25+02:00``, become seconds since 1970 in UTC. A number
stays what it is: a year, a count, Unix seconds or milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from node2seq.data.graph import carried_by
from node2seq.data.splits import PARTS, split_in_order
from node2seq.data.tabular import check_cells, column_error, first_few, given_text, pl
from node2seq.environment import LazyModule
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import Data
else:
    torch = LazyModule("torch")

Kind = Literal["date", "number"]
_ISO = (
    r"^(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:[.,](?P<part>\d{1,9}))?)?"
    r" ?(?P<zone>[Zz]|UTC|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?$"
)
# 31.03.2024 and 31/3/2024, perhaps with a time.
_DAY_FIRST = r"^(?P<day>\d{1,2})[./](?P<month>\d{1,2})[./](?P<year>\d{4})"
_DAY_FIRST += r"(?P<time>[Tt ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)?$"
_CURE = "Write 2024-03-31, 2024-03-31T17:05:09 or a number"
# Unix times between 1973 and 2286 in seconds, milli-, micro- and nanoseconds: each has its own size.
_UNITS = {1.0: (1e8, 1e10), 1e3: (1e11, 1e13), 1e6: (1e14, 1e16), 1e9: (1e17, 1e19)}


@dataclass(frozen=True)
class Times:
    """The times of a column.

    Args:
        values: [rows] float64; seconds since 1970 for dates; NaN where a cell is missing.
        kind: ``"date"`` (or timestamps) or ``"number"``.
        notes: For the user.
    """

    values: np.ndarray
    kind: Kind
    notes: list[str] = field(default_factory=list)

    @property
    def missing(self) -> np.ndarray:
        """Whether a cell is missing, [rows]."""
        return np.isnan(self.values)


def holds_dates(column: pl.Series) -> bool:
    """Whether at least half of the cells that are not missing are dates or timestamps."""
    if column.dtype in (pl.Date, pl.Datetime):
        return True
    if column.dtype != pl.String:
        return False
    text = given_text(column, column.name).drop_nulls()
    return bool(len(text)) and 2 * int(text.str.contains(_ISO).sum()) >= len(text)


def with_days_first(text: pl.Series) -> pl.Series:
    """The cells with 31.03.2024 and 31/3/2024 written as 2024-03-31; the others are null."""
    parts = text.str.extract_groups(_DAY_FIRST).struct.unnest()
    days = parts["year"] + "-" + parts["month"].str.zfill(2) + "-" + parts["day"].str.zfill(2)
    is_date = days.str.to_date("%Y-%m-%d", strict=False).is_not_null()
    return (days + parts["time"].fill_null("")).set(~is_date.fill_null(value=False), None).alias(text.name)


def tells_days_first(text: pl.Series) -> str | None:
    """The first cell that is a date only if its day comes first, such as 31.03.2024."""
    days = text.str.extract(_DAY_FIRST, 1).cast(pl.Int64, strict=False)
    telling = text.filter(((days > 12) & with_days_first(text).is_not_null()).fill_null(value=False))
    return telling[0] if len(telling) else None


def read_times(column: pl.Series, title: str, kind: Kind | None = None, *, complete: bool = False) -> Times:
    """Read a column of dates, of timestamps or of numbers; a cell that is none of them is an error.

    Args:
        column: Its cells: text, numbers, or dates as data frames and Parquet files hold them.
        title: What the table is called in an error.
        kind: What the column held in training.
        complete: Whether a missing cell is an error too.
    """
    if column.dtype in (pl.Date, pl.Datetime):
        found = Times(_seconds(column), "date")
    elif column.dtype.is_numeric():
        found = Times(column.cast(pl.Float64).fill_null(np.nan).to_numpy().copy(), "number")
    else:
        found = _read_text(given_text(column, title), title)
    finite = ~np.isinf(found.values)
    check_cells(finite, title, column.name, column.__getitem__, "is infinite", "Correct it")
    if kind is not None and kind != found.kind and not found.missing.all():
        raise column_error(title, column.name, f"it holds {found.kind}s", f"Give {kind}s, as in training")
    if complete and (missing := found.missing).any():
        count, row = int(missing.sum()), int(missing.argmax()) + 1
        cells = "1 time is" if count == 1 else f"{count} times are"
        reason = f"{cells} missing, the first in row {row}"
        raise column_error(title, column.name, reason, "Complete the rows, or remove them")
    return found


def on_one_scale(one: Times, other: Times) -> tuple[np.ndarray, np.ndarray] | None:
    """The values of two columns so that they can be compared, or None if they cannot.

    Numbers beside dates are Unix times. Of two columns of numbers, each of the size of Unix times, one may be
    in seconds and the other in milliseconds.
    """
    units = [1.0 if times.kind == "date" else _unix_unit(times.values) for times in (one, other)]
    if None not in units:
        return one.values / units[0], other.values / units[1]
    return (one.values, other.values) if one.kind == other.kind else None


def _unix_unit(values: np.ndarray) -> float | None:
    """How many units of Unix times make a second, or None if the numbers are of another size."""
    known = values[~np.isnan(values)]
    if not known.size:
        return 1.0
    least, most = known.min(), known.max()
    return next((unit for unit, (low, high) in _UNITS.items() if low <= least and most < high), None)


def _read_text(text: pl.Series, title: str) -> Times:
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() == text.null_count():
        return Times(numbers.fill_null(np.nan).to_numpy().copy(), "number")
    parts = text.str.extract_groups(_ISO).struct.unnest()
    seconds = _seconds(parts["date"].str.to_date("%Y-%m-%d", strict=False))
    for name, size in (("hour", 3600.0), ("minute", 60.0), ("second", 1.0)):
        seconds += size * parts[name].cast(pl.Float64).fill_null(0.0).to_numpy()
    seconds += (("0." + parts["part"]).cast(pl.Float64)).fill_null(0.0).to_numpy()
    seconds -= _offset(parts["zone"])
    wrong = text.is_not_null().to_numpy() & np.isnan(seconds)
    if wrong.any():
        raise _bad_cell(text, title, wrong, numbers.is_not_null().to_numpy())
    return Times(seconds, "date", _zone_notes(text.name, parts))


def _seconds(dates: pl.Series) -> np.ndarray:
    """Dates or timestamps as seconds since 1970, NaN where one is missing."""
    micro = dates.cast(pl.Datetime("us")).dt.epoch("us") if dates.dtype == pl.Date else dates.dt.epoch("us")
    return micro.cast(pl.Float64).fill_null(np.nan).to_numpy() / 1e6


def _offset(zones: pl.Series) -> np.ndarray:
    """Seconds by which each zone is ahead of UTC; 0 where there is none."""
    digits = zones.str.extract(r"([+-]\d{2})").cast(pl.Float64).fill_null(0.0).to_numpy()
    minutes = zones.str.extract(r"[+-]\d{2}:?(\d{2})").cast(pl.Float64).fill_null(0.0).to_numpy()
    behind = zones.str.starts_with("-").fill_null(value=False).to_numpy()
    return 3600.0 * digits + 60.0 * np.where(behind, -minutes, minutes)


def _zone_notes(name: str, parts: pl.DataFrame) -> list[str]:
    """A note where only some timestamps have a zone."""
    timed = parts["hour"].is_not_null()
    without = int((timed & parts["zone"].is_null()).sum())
    if without in (0, int(timed.sum())):
        return []
    return [
        f"column {name!r}: {without} of {int(timed.sum())} timestamps have no time zone; they count as UTC"
    ]


def _bad_cell(text: pl.Series, title: str, no_date: np.ndarray, is_number: np.ndarray) -> Node2SeqError:
    """The error for the first cell that does not fit: to most others, or to anything."""
    neither = no_date & ~is_number
    numbers, dates = int(is_number.sum()), len(text) - text.null_count() - int(no_date.sum())
    if neither.any():
        row = int(neither.argmax())
        reason = f"{first_few([text[row]])} in row {row + 1} is neither a date nor a number"
        return column_error(title, text.name, reason, _CURE)
    odd = is_number if dates >= numbers else ~no_date & text.is_not_null().to_numpy()
    row = int(odd.argmax())
    words = ("a number", "dates") if dates >= numbers else ("a date", "numbers")
    reason = f"{text[row]!r} in row {row + 1} is {words[0]}, but other cells are {words[1]}"
    return column_error(title, text.name, reason, "Write them all alike")


def tied_edges(edge_index: Tensor, order: Tensor) -> int:
    """How many edges have the same number as another edge that ends at the same node."""
    by_node = np.lexsort((order.numpy(), edge_index[1].numpy()))
    target, numbers = edge_index[1].numpy()[by_node], order.numpy()[by_node]
    same = (target[1:] == target[:-1]) & (numbers[1:] == numbers[:-1])
    return int(np.count_nonzero(np.append(False, same) | np.append(same, False))) if target.size else 0


def split_by_time(times: Times, labelled: np.ndarray, title: str, name: str) -> dict[str, np.ndarray]:
    """The train, val and test masks: the labelled nodes by their time, 60/20/20, equal times together.

    Args:
        times: Of the nodes.
        labelled: Which of them have a label; the others are in no part.
        title: What their table is called in an error.
        name: The column.
    """
    if (without := times.missing & labelled).any():
        count, row = int(without.sum()), int(without.argmax()) + 1
        nodes = "1 labelled node has" if count == 1 else f"{count} labelled nodes have"
        reason = f"{nodes} no time, the first in row {row}"
        raise column_error(title, name, reason, "Give the time, or clear the label")
    masks = split_in_order(np.where(labelled, times.values, np.nan))
    if masks is None:
        count = np.unique(times.values[labelled]).size
        raise Node2SeqError(
            title,
            f"column {name!r}: the labelled nodes have {count} different time{'s' if count > 1 else ''}, and "
            "train, val and test need three at least",
            "Name another column, or give a split column (--split COLUMN)",
        )
    return dict(zip(PARTS, masks, strict=True))


def describe_order(data: Data, name: str | None, notes: list[str], warnings: list[str]) -> None:
    """Say how many edges the order leaves open."""
    assert data.edge_index is not None
    if data.num_edges and bool((data.edge_order == data.edge_order[0]).all()):
        warnings.append(f"all edges have the same {name!r}: it gives no order")
    elif tied := tied_edges(data.edge_index, data.edge_order):
        notes.append(
            f"{tied} of {data.num_edges} edges have the same {name!r} as another edge of their node; "
            "the neighbours' own scores decide among them, then their ids"
        )


def check_future(
    data: Data, kind: Kind, times: Times, notes: list[str], warnings: list[str], *, drop: bool
) -> None:
    """Drop the edges that are newer than the node at which they end, or warn of them.

    An unlabelled node without a time is to be predicted now: no edge is newer.

    Args:
        data: The graph, with ``edge_order``.
        kind: Whether that holds dates or numbers.
        times: The nodes' times.
        notes: Gets what was dropped.
        warnings: Gets what may leak.
        drop: Whether to drop them.
    """
    assert data.edge_index is not None
    both = on_one_scale(Times(data.edge_order.numpy(), kind), times)
    if both is None:
        words = "the edges' times and the nodes' cannot be compared: dates and numbers that are no Unix times"
        if drop:
            raise Node2SeqError("no_future_edges", words, "Write both as dates")
        notes.append(f"{words}; whether edges are newer than their nodes is not known")
        return
    newer = both[0] > both[1][data.edge_index[1].numpy()]
    if not (count := int(newer.sum())):
        return
    which = f"{count} of {data.num_edges} edges are newer than the node that they inform"
    if drop:
        kept = torch.from_numpy(~newer)
        for name, values in carried_by(data).items():
            data[name] = values[kept]
        data.edge_index = data.edge_index[:, kept]
        notes.append(f"{which}: dropped")
    else:
        warnings.append(f"{which}, which may leak the future; --no-future-edges drops them")

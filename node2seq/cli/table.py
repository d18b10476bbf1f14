"""Tables for a terminal. Imports no torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich.table import Table

# So much of a name is shown in a table; names that begin alike may differ at the end.
_WIDEST_NAME = 32


def shortened(name: str, widest: int = _WIDEST_NAME) -> str:
    """A name of a class or a node without its middle, if it is long."""
    if len(name) <= widest:
        return name
    end = widest // 2
    return f"{name[: widest - end - 1]}…{name[-end:]}"


def make_table(
    header: Sequence[str],
    lines: Iterable[Sequence[str]],
    *,
    words: Collection[str] = (),
    unbroken: Collection[str] = (),
    **style: Any,
) -> Table:
    """A table of figures, which are aligned to the right.

    Args:
        header: The titles of the columns.
        lines: The cells.
        words: The columns that hold words instead.
        unbroken: The columns whose cells are not broken where space is short.
        **style: See :class:`rich.table.Table`.
    """
    table = Table(**style)
    for name in header:
        side, longest = "left" if name in words else "right", max(map(len, name.split()), default=0)
        table.add_column(name, justify=side, no_wrap=name in unbroken, min_width=longest)
    for line in lines:
        table.add_row(*line)
    return table

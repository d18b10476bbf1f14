"""Final rows → samples by line and column, ranks, and families of paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from node2seq.experiments.cells import Cell
from node2seq.experiments.declaration import Line, Protocol
from node2seq.experiments.paper import COLUMN_TITLES
from node2seq.experiments.rows import ResultRow
from node2seq.experiments.samples import LEVEL, Paired, Sample, holm, paired, samples_of
from node2seq.experiments.trainer import LARGEST_CLASS


@dataclass(frozen=True)
class Contrast:
    """A paired difference of a family, with its p-value adjusted for the others.

    Args:
        column: Where.
        title: What minus what.
        gap: The difference.
        adjusted: Its p-value by Holm's method.
    """

    column: str
    title: str
    gap: Paired
    adjusted: float

    @property
    def side(self) -> int:
        """1 or −1 if the difference is above or below zero beside all others of its family; else 0."""
        if self.adjusted >= LEVEL:
            return 0
        return 1 if self.gap.mean > 0 else -1


@dataclass(frozen=True)
class Standing:
    """Where a line stands in a column.

    Args:
        rank: From 1 on, by the mean.
        lines: Among how many.
        behind: Its difference to the first line; None if it is the first.
    """

    rank: int
    lines: int
    behind: Paired | None

    @property
    def is_level(self) -> bool:
        """Whether it is first, or zero is in the interval of its difference to the first."""
        return self.behind is None or self.behind.side == 0


class Evidence:
    """The final rows of a protocol.

    Args:
        protocol: The protocol.
        rows: Its final rows.
        earlier: Rows of ``reproduce``, to be shown beside.
    """

    def __init__(
        self, protocol: Protocol, rows: Iterable[ResultRow], earlier: Iterable[ResultRow] = ()
    ) -> None:
        self.protocol, self.rows = protocol, list(rows)
        self._samples, self._earlier = samples_of(self.rows), samples_of(earlier)
        swapped: dict[Cell, list[float]] = {}
        for row in self.rows:
            if row.swapped is not None:
                swapped.setdefault(row.key.cell, []).append(row.swapped)
        self._swapped = {cell: fmean(shares) for cell, shares in swapped.items()}

    @property
    def counted(self) -> list[str]:
        """The columns that count."""
        return [column for column in self.protocol.columns if column not in self.protocol.uncounted]

    def of(self, line: Line, column: str) -> Sample | None:
        """The runs of a line on a column."""
        return self._samples.get(Cell(line.model, column, line.variant))

    def study(self, column: str, name: str) -> Sample | None:
        """The runs of a study of Node2Seq (paper)."""
        return self._samples.get(Cell("node2seq", column, "paper", name))

    def swapped(self, column: str, name: str) -> float | None:
        """The mean share of non-local entries in the runs of a study."""
        return self._swapped.get(Cell("node2seq", column, "paper", name))

    def earlier(self, line: Line, column: str) -> Sample | None:
        """The rows of ``reproduce`` for the same line, where it has them."""
        return self._earlier.get(Cell(line.model, column, line.variant))

    def largest_class(self, column: str) -> Sample | None:
        """The share of the most frequent class of the training nodes."""
        model, variant = LARGEST_CLASS
        return self._samples.get(Cell(model, column, variant))

    def known(self, lines: Iterable[Line], column: str) -> dict[str, Sample]:
        """The runs on a column of those lines that have them, by label."""
        return {line.label: sample for line in lines if (sample := self.of(line, column)) is not None}

    def standing(self, label: str, lines: Sequence[Line], column: str) -> Standing | None:
        """Where a line stands among others in a column; None without rows."""
        known = self.known(lines, column)
        if label not in known:
            return None
        first = max(known, key=lambda other: known[other].mean)
        rank = 1 + sum(sample.mean > known[label].mean for sample in known.values())
        return Standing(rank, len(known), None if rank == 1 else paired(known[label], known[first]))

    def best(self, lines: Iterable[Line], column: str) -> tuple[str, Sample] | None:
        """The line with the highest mean in a column."""
        known = self.known(lines, column)
        return max(known.items(), key=lambda pair: pair[1].mean) if known else None


def line_named(protocol: Protocol, label: str) -> Line | None:
    """The line of a label."""
    return next((line for line in protocol.lines if line.label == label), None)


def family(pairs: Iterable[tuple[str, str, Sample | None, Sample | None]]) -> list[Contrast]:
    """Differences with p-values that are adjusted for all of them.

    Args:
        pairs: Column, title, first and second sample; those without rows are left out.
    """
    found: list[tuple[str, str, Paired]] = []
    for column, title, first, second in pairs:
        gap = paired(first, second) if first is not None and second is not None else None
        if gap is not None:
            found.append((column, title, gap))
    adjusted = holm([gap.p for _, _, gap in found])
    return [Contrast(*each, p) for each, p in zip(found, adjusted, strict=True)]


def column_title(column: str, further: Mapping[str, str]) -> str:
    """How the page writes a column."""
    if column in further:
        return f"{column_title(further[column], {})} without duplicates"
    return COLUMN_TITLES.get(column, column)

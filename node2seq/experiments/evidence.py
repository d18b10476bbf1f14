"""Final rows → samples by line and column, ranks, families of paired differences, and what they say.

The rows themselves choose the sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from node2seq.experiments.declaration import Line, Protocol, Study
from node2seq.experiments.graphs import UNIQUE
from node2seq.experiments.paper import COLUMN_TITLES, PRINTED, first_in_print, grouped
from node2seq.experiments.results_findings import verdict_of
from node2seq.experiments.rows import ResultRow
from node2seq.experiments.samples import LEVEL, Paired, Sample, holm, paired, samples_of, signed
from node2seq.experiments.trainer import LARGEST_CLASS

#: The share of the most frequent class of the training nodes, as a line.
LARGEST = Line("largest class", *LARGEST_CLASS, columns=(), searched=False)
# Up to this number, differences are listed one by one; of more, the columns and the range.
_TOLD = 3
# Shares of swapped entries between which a threshold selects.
_SELECTS = (0.02, 0.98)


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


class Evidence:
    """The final rows of a protocol.

    ``counted`` are the columns that count, ``swapped`` is the mean share of non-local entries by cell.

    Args:
        protocol: The protocol.
        rows: Its final rows.
        earlier: Rows of ``reproduce``, to be shown beside.
    """

    def __init__(
        self, protocol: Protocol, rows: Iterable[ResultRow], earlier: Iterable[ResultRow] = ()
    ) -> None:
        self.protocol, self.rows = protocol, list(rows)
        self.counted = [column for column in protocol.columns if column not in protocol.uncounted]
        self.earlier, self._samples = samples_of(earlier), samples_of(self.rows)
        swapped = grouped((r for r in self.rows if r.swapped is not None), lambda row: row.key.cell)
        self.swapped = {cell: fmean(row.swapped or 0.0 for row in own) for cell, own in swapped.items()}

    def of(self, what: Line | Study, column: str) -> Sample | None:
        """The runs of a line, or of a study of Node2Seq (paper), on a column."""
        return self._samples.get(what.cell(column))

    def known(self, lines: Iterable[Line], column: str) -> dict[str, Sample]:
        """The runs on a column of those lines that have them, by label."""
        return {line.label: sample for line in lines if (sample := self.of(line, column)) is not None}

    def standing(self, label: str, lines: Sequence[Line], column: str) -> tuple[int, bool] | None:
        """The rank of a line among others in a column, by the mean; None without rows.

        Also, whether it is first or zero is in the interval of its difference to the first.
        """
        known = self.known(lines, column)
        if label not in known:
            return None
        rank = 1 + sum(sample.mean > known[label].mean for sample in known.values())
        behind = paired(known[label], max(known.values(), key=lambda sample: sample.mean))
        return rank, rank == 1 or behind is None or behind.side == 0

    def best(self, lines: Iterable[Line], column: str) -> tuple[str, Sample] | None:
        """The line with the highest mean in a column."""
        known = self.known(lines, column)
        return max(known.items(), key=lambda pair: pair[1].mean) if known else None


def family(pairs: Iterable[tuple[str, str, Sample | None, Sample | None]]) -> list[Contrast]:
    """Differences with p-values that are adjusted for all of them.

    Args:
        pairs: Column, title, first and second sample; those without rows are left out.
    """
    found = [
        (column, title, gap)
        for column, title, first, second in pairs
        if (gap := paired(first, second)) is not None
    ]
    adjusted = holm([gap.p for _, _, gap in found])
    return [Contrast(*each, p) for each, p in zip(found, adjusted, strict=True)]


def column_title(column: str) -> str:
    """How the page writes a column."""
    source = column.removesuffix(UNIQUE)
    return COLUMN_TITLES.get(source, source) + ("" if source == column else " without duplicates")


def plain_lines(lines: Sequence[Line]) -> list[Line]:
    """The lines of the network and the training of their papers."""
    return [line for line in lines if line.variant == "paper"]


def is_ours(line: Line) -> bool:
    """Whether a line is a network with the Node2Seq layer."""
    return line.model in ("node2seq", "residual-node2seq")


def conclusions(evidence: Evidence) -> list[str]:
    """The sentences that the page opens with."""
    lines = evidence.protocol.lines
    plain = plain_lines(lines)
    best = best_contrasts(evidence, evidence.protocol.ours, plain, evidence.counted)
    told = [
        _claim_of_paper(evidence, plain),
        sentence("taking Node2Seq as in the paper instead of the best other such line of each column", best),
    ]
    told += [_standing(evidence, line, lines) for line in lines if is_ours(line) and line.variant != "paper"]
    told += [_against_printed(evidence), _plus(evidence), _without_graph(evidence), _of_largest(evidence)]
    return [text for text in (*told, _missing(evidence)) if text]


def _missing(evidence: Evidence) -> str:
    """What a started protocol still owes."""
    protocol, seeds = evidence.protocol, len(evidence.protocol.final_seeds)
    if not evidence.rows:
        return ""
    lines = [*protocol.lines, replace(LARGEST, columns=protocol.columns)]
    further = protocol.further.items()
    cells = {
        "columns": [line.cell(column) for line in lines for column in line.columns],
        "columns without duplicates": [
            line.cell(column) for column, source in further for line in lines if source in line.columns
        ],
    }
    for study in protocol.studies:
        cells.setdefault(f"studies ({study.table})", []).extend(map(study.cell, study.columns))
    made = Counter(row.key.cell for row in evidence.rows)
    gaps = {what: sum(seeds - made[cell] for cell in own) for what, own in cells.items()}
    told = [f"{count:,} rows of the {what}" for what, count in gaps.items() if count]
    return f"Not measured yet, so the protocol is not finished: {', '.join(told)}." if told else ""


def sentence(subject: str, contrasts: Sequence[Contrast]) -> str:
    """What a family of differences says of a subject, after Holm's correction."""
    if not contrasts:
        return ""
    above = [each for each in contrasts if each.side > 0]
    below = [each for each in contrasts if each.side < 0]
    if not above and not below:
        return f"No difference from {subject}: none of {len(contrasts)} comparisons is settled."
    verdict = verdict_of(len(above), len(below), len(contrasts))
    counts = [
        f"{len(some)} {'is' if len(some) == 1 else 'are'} {side} zero ({_told(some)})"
        for some, side in ((above, "above"), (below, "below"))
        if some
    ]
    return f"{verdict} from {subject}: of {len(contrasts)} comparisons, {' and '.join(counts)}."


def study_sentences(evidence: Evidence, table: str) -> list[str]:
    """What the studies of a table say; nothing without rows."""
    studies = [study for study in evidence.protocol.studies if study.table == table]
    if table == "order":
        told = _order(evidence, studies)
    elif table == "non-local":
        told = _nonlocal(evidence, studies)
    elif table == "kernel":
        told = [sentence("a longer kernel than k = 1", _against(evidence, studies[0], studies[1:]))]
    else:
        contrasts = family(
            (
                column,
                "with − without",
                evidence.of(evidence.protocol.ours, column),
                evidence.of(study, column),
            )
            for study in studies
            for column in study.columns
        )
        told = [sentence("the layer's neighbours", contrasts)]
    return [text for text in told if text]


def _claim_of_paper(evidence: Evidence, plain: Sequence[Line]) -> str:
    text = _standing(evidence, evidence.protocol.ours, plain, "the lines as their papers describe them")
    printed = first_in_print(evidence.counted)
    return f"{text} By the paper's own figures it is first in {printed}." if text else ""


def _standing(evidence: Evidence, line: Line, lines: Sequence[Line], among: str = "all lines") -> str:
    places = {column: evidence.standing(line.label, lines, column) for column in evidence.counted}
    known = {column: place for column, place in places.items() if place is not None}
    if not known:
        return ""
    first = sum(rank == 1 for rank, _ in known.values())
    apart = [column_title(column) for column, (_, is_level) in known.items() if not is_level]
    missed = f"; it is behind on {', '.join(apart)}" if apart else ""
    return (
        f"{line.label}: among {among} it is first in {first} of {len(known)} columns that "
        f"count, and first or within its interval of the first in {len(known) - len(apart)}{missed}."
    )


def best_contrasts(
    evidence: Evidence, line: Line, lines: Sequence[Line], columns: Sequence[str]
) -> list[Contrast]:
    """A line minus the best of the others that are not ours, in each column."""
    others = [other for other in lines if not is_ours(other)]
    return family(
        (column, f"{line.label} − {best[0]}", evidence.of(line, column), best[1])
        for column in columns
        if (best := evidence.best(others, column)) is not None
    )


def _against_printed(evidence: Evidence) -> str:
    reached: dict[str, set[str]] = {}
    for line in evidence.protocol.lines:
        if is_ours(line):
            samples = {c: evidence.of(line, c) for c in evidence.protocol.columns if c in PRINTED}
            reached[line.label] = {
                column
                for column, sample in samples.items()
                if sample is not None and round(sample.mean, 1) >= PRINTED[column].mean
            }
    if not any(reached.values()):
        return ""
    counted = set(evidence.counted)
    counts = [f"{len(columns & counted)} as {label}" for label, columns in reached.items()]
    either = reached.get("Node2Seq, plus", set()) | reached.get("Node2Seq, ranks", set())
    apart = [
        f"On {column_title(column)}, which is not counted, it is reached by {'; '.join(by) or 'none'}."
        for column in evidence.protocol.uncounted
        for by in [[label for label, columns in reached.items() if column in columns]]
    ]
    text = (
        f"At or above the paper's Node2Seq figure, of {len(counted & PRINTED.keys())} columns that count: "
        f"{'; '.join(counts)}; {len(either & counted)} with plus or ranks."
    )
    return " ".join([text, *apart])


def _plus(evidence: Evidence) -> str:
    lines = evidence.protocol.lines
    plain = {line.model: line for line in plain_lines(lines)}
    contrasts = family(
        (column, line.label, evidence.of(line, column), evidence.of(plain[line.model], column))
        for line in lines
        if line.variant == "plus" and line.model in plain
        for column in line.columns
        if column in evidence.counted
    )
    if not contrasts:
        return ""
    above, below = (sum(each.side == side for each in contrasts) for side in (1, -1))
    means = [
        f"{label} {signed(sum(each.gap.mean for each in own) / len(own))}"
        for label, own in grouped(contrasts, lambda each: each.title).items()
    ]
    return (
        f"The options of plus, searched for each line at the same budget, gain in {above} cells and lose in "
        f"{below} of {len(contrasts)}. Mean gain over columns: {'; '.join(means)}."
    )


def _without_graph(evidence: Evidence) -> str:
    lines = evidence.protocol.lines
    blind = [line for line in lines if line.model == "mlp"]
    seeing = [line for line in lines if line.model != "mlp"]
    contrasts = family(
        (column, f"{best[0]} − {alone[0]}", best[1], alone[1])
        for column in evidence.protocol.columns
        if (alone := evidence.best(blind, column)) and (best := evidence.best(seeing, column))
    )
    level = [column_title(each.column) for each in contrasts if each.side <= 0]
    if not contrasts:
        return ""
    if not level:
        return "In every column some network that reads edges is above the MLP, which sees none."
    return f"No network that reads edges is above the MLP, which sees none, on {', '.join(level)}."


def _of_largest(evidence: Evidence) -> str:
    contrasts = family(
        (column, line.label, evidence.of(line, column), evidence.of(LARGEST, column))
        for line in evidence.protocol.lines
        for column in line.columns
    )
    low = [f"{each.title} on {column_title(each.column)}" for each in contrasts if each.side <= 0]
    if not contrasts:
        return ""
    if not low:
        return "Every line is above the share of the largest class in every column."
    return f"Not above the share of the largest class: {'; '.join(low)}."


def _order(evidence: Evidence, studies: Sequence[Study]) -> list[str]:
    by_label = {study.label: study for study in studies}
    readouts = dict.fromkeys(label.partition(",")[0] for label in by_label)
    learned = {readout: by_label[f"{readout}, by attention"] for readout in readouts}
    told = []
    for readout, own in learned.items():
        others = [by_label[f"{readout}, {title}"] for title in ("by degree", "at random")]
        subject = f"sorting by attention rather than by degree or at random, readout {readout}"
        told.append(sentence(subject, _against(evidence, own, others, flip=True)))
    if len(learned) == 3:
        *windows, ranks = learned.values()
        told.append(sentence("ranks in place of windows", _against(evidence, ranks, windows, flip=True)))
    return told


def _nonlocal(evidence: Evidence, studies: Sequence[Study]) -> list[str]:
    local, *others = studies
    contrasts = _against(evidence, local, others)
    told = [sentence("non-local neighbours", contrasts)]
    selecting = [
        each
        for study in others
        for each in contrasts
        if each.title.startswith(f"{study.label} −")
        if _SELECTS[0] <= evidence.swapped.get(study.cell(each.column), 0.0) <= _SELECTS[1]
    ]
    if contrasts:
        most = f"{100 * _SELECTS[0]:.0f} to {100 * _SELECTS[1]:.0f} %"
        told.append(
            f"In {len(selecting)} of {len(contrasts)} cells the threshold selects: {most} of the entries are "
            "non-local. " + (sentence("non-local neighbours there", selecting))
        )
    return told


def _against(
    evidence: Evidence, base: Study, others: Sequence[Study], *, flip: bool = False
) -> list[Contrast]:
    """Other studies minus one, or the reverse, in the columns of each."""
    pairs = [
        ((base, study) if flip else (study, base), column) for study in others for column in study.columns
    ]
    return family(
        (column, f"{one.label} − {other.label}", evidence.of(one, column), evidence.of(other, column))
        for (one, other), column in pairs
    )


def _told(contrasts: Sequence[Contrast]) -> str:
    if len(contrasts) <= _TOLD:
        return "; ".join(
            f"{column_title(each.column)}, {each.title}: {signed(each.gap.mean)}" for each in contrasts
        )
    columns = dict.fromkeys(column_title(each.column) for each in contrasts)
    means = sorted(each.gap.mean for each in contrasts)
    return f"{', '.join(columns)}; {signed(means[0])} to {signed(means[-1])}"

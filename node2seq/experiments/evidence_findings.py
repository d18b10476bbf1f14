"""What the rows of a protocol say, in sentences that the rows themselves choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from node2seq.experiments.cells import Cell
from node2seq.experiments.declaration import Line, Study
from node2seq.experiments.evidence import Contrast, Evidence, column_title, family, line_named
from node2seq.experiments.paper import PRINTED, first_in_print
from node2seq.experiments.results_findings import verdict_of
from node2seq.experiments.results_tables import signed
from node2seq.experiments.trainer import LARGEST_CLASS

# So many differences are told one by one; of more, the columns and the span.
_TOLD = 3
# Shares of swapped entries between which a threshold selects.
_SELECTS = (0.02, 0.98)


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
    told = [_claim_of_paper(evidence, plain), _against_best(evidence, plain)]
    told += [_standing(evidence, line, lines) for line in lines if is_ours(line) and line.variant != "paper"]
    told += [_against_printed(evidence), _plus(evidence), _without_graph(evidence), _of_largest(evidence)]
    return [text for text in (*told, _missing(evidence)) if text]


def _missing(evidence: Evidence) -> str:
    """What a started protocol still owes."""
    protocol, seeds = evidence.protocol, evidence.protocol.final_seeds
    if not evidence.rows:
        return ""
    lines = [(line.model, line.variant, line.columns) for line in protocol.lines]
    lines.append((*LARGEST_CLASS, protocol.columns))
    cells = {"columns": [Cell(model, column, variant) for model, variant, own in lines for column in own]}
    cells["columns without duplicates"] = [
        Cell(model, column, variant)
        for column, source in protocol.further.items()
        for model, variant, own in lines
        if source in own
    ]
    for study in protocol.studies:
        own = [Cell("node2seq", column, "paper", study.name) for column in study.columns]
        cells.setdefault(f"studies ({study.table})", []).extend(own)
    made = Counter(row.key.cell for row in evidence.rows)
    gaps = {what: sum(len(seeds) - made[cell] for cell in own) for what, own in cells.items()}
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
    """What the studies of a table say."""
    studies = [study for study in evidence.protocol.studies if study.table == table]
    if table == "order":
        return _order(evidence, studies)
    if table == "non-local":
        return _nonlocal(evidence, studies)
    if table == "kernel":
        return [sentence("a longer kernel than k = 1", _against(evidence, studies[0], studies[1:]))]
    return [sentence("the layer's neighbours", _neighbours(evidence, studies))]


def _claim_of_paper(evidence: Evidence, plain: Sequence[Line]) -> str:
    ours = next((line for line in plain if is_ours(line)), None)
    if ours is None:
        return ""
    text = _standing(evidence, ours, plain, "the lines as their papers describe them")
    printed = first_in_print(evidence.counted)
    return f"{text} By the paper's own figures it is first in {printed}." if text else ""


def _standing(evidence: Evidence, line: Line, lines: Sequence[Line], among: str = "all lines") -> str:
    places = {column: evidence.standing(line.label, lines, column) for column in evidence.counted}
    known = {column: place for column, place in places.items() if place is not None}
    if not known:
        return ""
    first = sum(place.rank == 1 for place in known.values())
    level = sum(place.is_level for place in known.values())
    apart = [_title(evidence, column) for column, place in known.items() if not place.is_level]
    missed = f"; it is behind on {', '.join(apart)}" if apart else ""
    return (
        f"{line.label}: among {among} it is first in {first} of {len(known)} columns that "
        f"count, and first or within its interval of the first in {level}{missed}."
    )


def _against_best(evidence: Evidence, plain: Sequence[Line]) -> str:
    ours = next((line for line in plain if is_ours(line)), None)
    contrasts = best_contrasts(evidence, ours, plain, evidence.counted) if ours else []
    if not contrasts:
        return ""
    subject = "taking Node2Seq as in the paper instead of the best other such line of each column"
    return sentence(subject, contrasts)


def best_contrasts(
    evidence: Evidence, line: Line, lines: Sequence[Line], columns: Sequence[str]
) -> list[Contrast]:
    """A line minus the best of the others that are not ours, in each column."""
    others = [other for other in lines if not is_ours(other)]
    found = []
    for column in columns:
        best = evidence.best(others, column)
        if best is not None:
            found.append((column, f"{line.label} − {best[0]}", evidence.of(line, column), best[1]))
    return family(found)


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
        f"On {_title(evidence, column)}, which is not counted, it is reached by {'; '.join(by) or 'none'}."
        for column in evidence.protocol.uncounted
        for by in [[label for label, columns in reached.items() if column in columns]]
    ]
    text = (
        f"At or above the paper's Node2Seq figure, of {len(counted & PRINTED.keys())} columns that count: "
        f"{'; '.join(counts)}; {len(either & counted)} with plus or ranks."
    )
    return " ".join([text, *apart])


def _plus(evidence: Evidence) -> str:
    pairs = []
    for line in evidence.protocol.lines:
        plain = next((o for o in plain_lines(evidence.protocol.lines) if o.model == line.model), None)
        if line.variant == "plus" and plain is not None:
            pairs += [
                (column, line.label, evidence.of(line, column), evidence.of(plain, column))
                for column in line.columns
                if column in evidence.counted
            ]
    contrasts = family(pairs)
    if not contrasts:
        return ""
    above, below = (sum(each.side == side for each in contrasts) for side in (1, -1))
    by_line = dict.fromkeys(each.title for each in contrasts)
    means = []
    for label in by_line:
        gaps = [each.gap.mean for each in contrasts if each.title == label]
        means.append(f"{label} {signed(sum(gaps) / len(gaps))}")
    return (
        f"The options of plus, searched for each line at the same budget, gain in {above} cells and lose in "
        f"{below} of {len(contrasts)}. Mean gain over columns: {'; '.join(means)}."
    )


def _without_graph(evidence: Evidence) -> str:
    lines = evidence.protocol.lines
    blind = [line for line in lines if line.model == "mlp"]
    seeing = [line for line in lines if line.model != "mlp"]
    found = []
    for column in evidence.protocol.columns:
        alone, best = evidence.best(blind, column), evidence.best(seeing, column)
        if alone is not None and best is not None:
            found.append((column, f"{best[0]} − {alone[0]}", best[1], alone[1]))
    contrasts = family(found)
    level = [_title(evidence, each.column) for each in contrasts if each.side <= 0]
    if not contrasts:
        return ""
    if not level:
        return "In every column some network that reads edges is above the MLP, which sees none."
    return f"No network that reads edges is above the MLP, which sees none, on {', '.join(level)}."


def _of_largest(evidence: Evidence) -> str:
    pairs = [
        (column, line.label, evidence.of(line, column), evidence.largest_class(column))
        for line in evidence.protocol.lines
        for column in line.columns
    ]
    contrasts = family(pairs)
    low = [f"{each.title} on {_title(evidence, each.column)}" for each in contrasts if each.side <= 0]
    if not contrasts:
        return ""
    if not low:
        return "Every line is above the share of the largest class in every column."
    return f"Not above the share of the largest class: {'; '.join(low)}."


def _order(evidence: Evidence, studies: Sequence[Study]) -> list[str]:
    by_label = {study.label: study for study in studies}
    told = []
    readouts = list(dict.fromkeys(label.partition(",")[0] for label in by_label))
    for readout in readouts:
        learned = by_label[f"{readout}, by attention"]
        others = [by_label[f"{readout}, {title}"] for title in ("by degree", "at random")]
        contrasts = _against(evidence, learned, others, flip=True)
        subject = f"sorting by attention rather than by degree or at random, readout {readout}"
        told.append(sentence(subject, contrasts))
    pairs = [by_label[f"{readout}, by attention"] for readout in readouts]
    if len(pairs) == 3:
        *windows, ranks = pairs
        told.append(sentence("ranks in place of windows", _against(evidence, ranks, windows, flip=True)))
    return [text for text in told if text]


def _nonlocal(evidence: Evidence, studies: Sequence[Study]) -> list[str]:
    local, *others = studies
    contrasts = _against(evidence, local, others)
    told = [sentence("non-local neighbours", contrasts)]
    selecting = [
        each
        for study in others
        for each in contrasts
        if each.title.startswith(f"{study.label} −")
        if _SELECTS[0] <= (evidence.swapped(each.column, study.name) or 0.0) <= _SELECTS[1]
    ]
    if contrasts:
        most = f"{100 * _SELECTS[0]:.0f} to {100 * _SELECTS[1]:.0f} %"
        told.append(
            f"In {len(selecting)} of {len(contrasts)} cells the threshold selects: {most} of the entries are "
            "non-local. " + (sentence("non-local neighbours there", selecting))
        )
    return [text for text in told if text]


def _neighbours(evidence: Evidence, studies: Sequence[Study]) -> list[Contrast]:
    main = line_named(evidence.protocol, "Node2Seq")
    assert main is not None
    return family(
        (column, "with − without", evidence.of(main, column), evidence.study(column, study.name))
        for study in studies
        for column in study.columns
    )


def _against(
    evidence: Evidence, base: Study, others: Sequence[Study], *, flip: bool = False
) -> list[Contrast]:
    """Other studies minus one, or the reverse, in the columns of each."""
    pairs = []
    for study in others:
        first, second = (base, study) if flip else (study, base)
        for column in study.columns:
            samples = (evidence.study(column, first.name), evidence.study(column, second.name))
            pairs.append((column, f"{first.label} − {second.label}", *samples))
    return family(pairs)


def _told(contrasts: Sequence[Contrast]) -> str:
    if len(contrasts) <= _TOLD:
        return "; ".join(
            f"{column_title(each.column, {})}, {each.title}: {signed(each.gap.mean)}" for each in contrasts
        )
    columns = dict.fromkeys(column_title(each.column, {}) for each in contrasts)
    means = sorted(each.gap.mean for each in contrasts)
    return f"{', '.join(columns)}; {signed(means[0])} to {signed(means[-1])}"


def _title(evidence: Evidence, column: str) -> str:
    return column_title(column, evidence.protocol.further)

"""What the rows say, in half a page: ranks and sentences, each chosen by the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from node2seq.data import COLUMNS
from node2seq.experiments.paper import (
    COLUMN_TITLES,
    PLUS_OPTIONS,
    PRINTED,
    TABLES,
    Cell,
    cell_of,
    first_in_print,
)
from node2seq.experiments.rows import ResultRow
from node2seq.experiments.samples import (
    VERDICTS,
    Difference,
    Effort,
    Sample,
    difference_text,
    paired_difference,
    signed,
)
from node2seq.options import listed
from node2seq.reporting.document import Block, Bullets, Grid, Heading, Paragraph

_OURS = "Node2Seq"
_HOW_TO_READ = (
    "Ranks are by mean test accuracy, among the models of the column's table. Intervals are the 95 % "
    "bootstrap intervals of paired differences, without correction for their number; one with an end that "
    "prints as 0.0 holds zero. A gain or loss is consistent if at least half of its intervals lie on that "
    "side of zero and none on the other."
)


def findings(
    rows: Sequence[ResultRow],
    samples: Mapping[Cell, Sample],
    makings: Mapping[Cell, Sequence[Sample]],
    efforts: Mapping[Cell, Effort],
) -> list[Block]:
    """The opening of the page; nothing without rows that two models of a table share.

    Args:
        rows: The rows that count.
        samples: The same by cell.
        makings: The rows of each cell by the time they were made.
        efforts: What the searches took.
    """
    standings = {
        "paper": [*_standings("2", samples), *_standings("3", samples)],
        "plus": [*_standings("plus-2", samples), *_standings("plus-3", samples)],
    }
    if not any(standings.values()):
        return []
    # Its lines stand from the shortest kernel to the longest.
    longer_first = [(longer.label, shorter.label) for shorter, longer in combinations(TABLES["6"].lines, 2)]
    told = [
        _rank_of_paper(standings["paper"]),
        _rank_of_plus(standings["plus"], samples),
        _order(samples),
        _effect("non-local neighbours (Table 4)", _differences("4", TABLES["4"].contrasts, samples)),
        _effect("a longer kernel (Table 6)", _differences("6", longer_first, samples)),
        _in_place_of_gcn(samples),
        _sources_of_plus(samples),
        _label_reuse(rows),
        _budgets(efforts),
        _searched_again(makings),
    ]
    return [
        Heading("What the rows say"),
        _ranks(standings),
        Bullets([text for text in told if text]),
        Paragraph(_HOW_TO_READ),
    ]


@dataclass(frozen=True)
class _Standing:
    """Where Node2Seq stands among the models of a column, and how far from the best of the others."""

    column: str
    rank: int
    models: int
    rival: str
    difference: Difference | None


def _standings(name: str, samples: Mapping[Cell, Sample]) -> list[_Standing]:
    table, found = TABLES[name], []
    for column in table.columns:
        cells = {line.label: Cell(line.model, column, line.variant) for line in table.lines}
        known = {label: samples[cell] for label, cell in cells.items() if cell in samples}
        ours = known.pop(_OURS, None)
        if ours is not None and known:
            rival = max(known, key=lambda label: known[label].mean)
            rank = 1 + sum(sample.mean > ours.mean for sample in known.values())
            difference = paired_difference(ours, known[rival])
            found.append(_Standing(column, rank, 1 + len(known), rival, difference))
    return found


def _ranks(standings: Mapping[str, Sequence[_Standing]]) -> Grid:
    columns = [
        name for name in COLUMN_TITLES if any(s.column == name for own in standings.values() for s in own)
    ]
    lines = []
    for variant, own in standings.items():
        if own:
            ranks = {place.column: f"{place.rank} of {place.models}" for place in own}
            gaps = {place.column: f"{place.rival}\n{difference_text(place.difference)}" for place in own}
            lines.append([f"rank of {_OURS}, {variant}", *(ranks.get(name, "–") for name in columns)])
            lines.append([f"minus the best other, {variant}", *(gaps.get(name, "–") for name in columns)])
    return Grid(["", *(COLUMN_TITLES[column] for column in columns)], lines)


def _rank_of_paper(standings: Sequence[_Standing]) -> str:
    if not standings:
        return ""
    printed = first_in_print({standing.column for standing in standings})
    return (
        f"{_OURS} as the paper describes it is {_first(standings)}; by the paper's own figures, in "
        f"{printed}. {_against_rivals(standings)}"
    )


def _rank_of_plus(standings: Sequence[_Standing], samples: Mapping[Cell, Sample]) -> str:
    if not standings:
        return ""
    parts = [f"With the options of plus it is {_first(standings)}. {_against_rivals(standings)}"]
    without_graph = [COLUMN_TITLES[standing.column] for standing in standings if standing.rival == "MLP"]
    if without_graph:
        parts.append(f"On {listed(without_graph)} that other is the MLP, which sees no neighbours.")
    pairs = [
        (sample, samples[as_paper])
        for cell, sample in samples.items()
        if cell == (cell.model, cell.column, "plus", "main") and cell.model != "node2seq"
        if (as_paper := cell._replace(variant="paper")) in samples
    ]
    if pairs:
        below = sum(round(plus.mean, 1) < round(paper.mean, 1) for plus, paper in pairs)
        parts.append(
            f"The baselines of plus take over training options that were chosen for {_OURS}: {below} of "
            f"{len(pairs)} have a lower mean with them than without."
        )
    return " ".join(parts)


def _first(standings: Sequence[_Standing]) -> str:
    first = sum(standing.rank == 1 for standing in standings)
    return f"first in {first} of {len(standings)} columns"


def _against_rivals(standings: Sequence[_Standing]) -> str:
    sides = [standing.difference.side for standing in standings if standing.difference]
    return (
        f"Its interval against the best of the others lies above zero in {sides.count(1)}, below it in "
        f"{sides.count(-1)}, and holds it in {sides.count(0)}."
    )


#: Paired differences by the column, with the pair where a table has several.
_Effects = Mapping[str, Difference]


def _differences(table: str, pairs: Sequence[tuple[str, str]], samples: Mapping[Cell, Sample]) -> _Effects:
    shape = TABLES[table]
    lines = {line.label: line for line in shape.lines}
    found = {}
    for column in shape.columns:
        for first, second in pairs:
            cells = (cell_of(lines[label], column) for label in (first, second))
            one, other = (None if cell is None else samples.get(cell) for cell in cells)
            difference = paired_difference(one, other)
            if difference is not None:
                pair = f", {first} − {second}" if len(pairs) > 1 else ""
                found[f"{COLUMN_TITLES[column]}{pair}"] = difference
    return found


def verdict_of(above: int, below: int, comparisons: int) -> str:
    """The verdict on differences above and below zero; a gain or loss needs at least half of them."""
    if above and not below and 2 * above >= comparisons:
        return "A consistent gain"
    if below and not above and 2 * below >= comparisons:
        return "A consistent loss"
    return "No consistent difference"


def _effect(subject: str, effects: _Effects) -> str:
    if not effects:
        return ""
    texts = {name: f"{name} {difference_text(each).replace(chr(10), ' ')}" for name, each in effects.items()}
    above, below = ([texts[name] for name in effects if effects[name].side == side] for side in (1, -1))
    if not above and not below:
        return f"No difference from {subject}: all {len(effects)} intervals hold zero."
    verdict = verdict_of(len(above), len(below), len(effects))
    holding = len(effects) - len(above) - len(below)
    counts = [f"{holding} {'holds' if holding == 1 else 'hold'} zero"] if holding else []
    counts += [
        f"{len(some)} {'lies' if len(some) == 1 else 'lie'} {side} zero ({'; '.join(some)})"
        for some, side in ((above, "above"), (below, "below"))
        if some
    ]
    return f"{verdict} from {subject}: of {len(effects)} intervals, {listed(counts)}."


def _order(samples: Mapping[Cell, Sample]) -> str:
    learned, *others = TABLES["order"].lines
    effects = _differences("order", [(learned.label, line.label) for line in others], samples)
    text = _effect("sorting neighbours by attention rather than by degree or at random", effects)
    mean = next(line for line in TABLES["readout"].lines if line.label == "mean")
    columns = [column for column in TABLES["order"].columns if Cell("node2seq", column) in samples]
    # A study that changes nothing is the main one: so its recipe reads out by the mean already.
    by_mean = [column for column in columns if cell_of(mean, column) == Cell("node2seq", column)]
    if text and by_mean:
        text += (
            f" In {len(by_mean)} of {len(columns)} columns the readout is the mean, through which the order "
            "acts at the ends of a sequence alone."
        )
    return text


def _in_place_of_gcn(samples: Mapping[Cell, Sample]) -> str:
    effects = _differences("5", TABLES["5"].contrasts, samples)
    text = _effect("the layer in place of a GCN layer (Table 5)", effects)
    gains = {title for title, difference in effects.items() if difference.side > 0}
    weak = sum(
        title in gains
        and (plain := samples.get(Cell("gcn", column))) is not None
        and samples[Cell("gcn*", column)].mean < plain.mean
        for column, title in COLUMN_TITLES.items()
    )
    if weak:
        text += (
            f" Where it gains, the network with the GCN layer is itself below the plain GCN in {weak} of "
            f"{len(gains)}."
        )
    return text


def _sources_of_plus(samples: Mapping[Cell, Sample]) -> str:
    by_option = {
        option: [
            difference
            for name in ("ablation-2", "ablation-3")
            for difference in _differences(name, [("with all", f"without {option}")], samples).values()
        ]
        for option in PLUS_OPTIONS
    }
    by_option = {option: effects for option, effects in by_option.items() if effects}
    if not by_option:
        return ""
    steady = {
        option: effects
        for option, effects in by_option.items()
        if len(effects) > 1 and all(difference.side > 0 for difference in effects)
    }
    rest = [each for option, effects in by_option.items() if option not in steady for each in effects]
    if steady:
        named = [f"{option} ({_span(effects)})" for option, effects in steady.items()]
        text = f"Taken out one at a time, the options of plus that help wherever used are {listed(named)}."
    else:
        text = "Taken out one at a time, no option of plus helps wherever it is used."
    if rest:
        above = [difference.mean for difference in rest if difference.side > 0]
        below = sum(difference.side < 0 for difference in rest)
        most = f" (by {signed(max(above))} at most)" if above else ""
        text += (
            f" Of the {len(rest)} intervals of the {'other ' if steady else ''}options, {len(above)} lie "
            f"above zero{most} and {below} below."
        )
    return text


def _span(effects: Sequence[Difference]) -> str:
    means = sorted(difference.mean for difference in effects)
    return f"{len(effects)} columns, {signed(means[0])} to {signed(means[-1])}"


def _label_reuse(rows: Sequence[ResultRow]) -> str:
    columns = {row.key.column for row in rows}
    fixed = [title for name, title in COLUMN_TITLES.items() if name in columns and _is_fixed(name)]
    drawn = len(columns) - len(fixed)
    seeds = [row.key.seed for row in rows if not _is_fixed(row.key.column)]
    parts = []
    if drawn:
        parts.append(
            f"Settings for the {drawn} columns with random splits were searched on other splits of the same "
            f"graphs, so test nodes of seeds {min(seeds)}–{max(seeds)} lent their labels to the choice. This "
            "is common practice, but the figures may be too high for nodes that had no part in it."
        )
    if fixed:
        parts.append(f"On the fixed splits ({listed(fixed)}) no search used a test label.")
    return " ".join(parts)


def _is_fixed(column: str) -> bool:
    return COLUMNS[column].rule == "fixed"


def _budgets(efforts: Mapping[Cell, Effort]) -> str:
    tried = [(cell.model, effort.settings) for cell, effort in efforts.items() if cell.variant == "paper"]
    ours = [settings for model, settings in tried if model == "node2seq"]
    others = [settings for model, settings in tried if model != "node2seq"]
    if not ours or not others:
        return ""
    if len({*ours, *others}) == 1:
        return f"The searches are of equal size: {ours[0]} settings for each model and column."
    return (
        f"The searches are not of equal size: {min(ours)} to {max(ours)} settings a column for {_OURS}, "
        f"{min(others)} to {max(others)} for a baseline, in the columns whose trials are kept."
    )


def _searched_again(makings: Mapping[Cell, Sequence[Sample]]) -> str:
    anew = [times for times in makings.values() if len(times) > 1]
    if not anew:
        return "The test rows of every cell were made once."
    text = (
        f"Recipes changed after their test rows had been seen: the rows of {len(anew)} of {len(makings)} "
        f"cells were made more than once, up to {max(map(len, anew))} times."
    )
    short: list[bool] = []
    others: list[bool] = []
    for column, printed in PRINTED.items():
        if times := makings.get(Cell("node2seq", column)):
            met = times[0].against(printed.mean) == VERDICTS[0]
            (others if met else short).append(len(times) > 1)
    if not any(short):
        return text
    followed = sum(short) * len(others) > sum(others) * len(short)
    lead = "Cells that fell short were searched again: of" if followed or not others else "Of"
    return (
        f"{text} {lead} {_OURS}'s {len(short) + len(others)} cells (paper), {sum(short)} of the {len(short)} "
        f"that fell short of the paper at first were given new settings, and {sum(others)} of the "
        f"{len(others)} others."
    )

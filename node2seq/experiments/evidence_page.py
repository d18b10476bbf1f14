"""The page of a protocol, from its rows and nothing else: the same ones give the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from node2seq.experiments.declaration import Line, Protocol, Study
from node2seq.experiments.evidence import (
    LARGEST,
    Contrast,
    Evidence,
    best_contrasts,
    column_title,
    conclusions,
    family,
    is_ours,
    plain_lines,
    study_sentences,
)
from node2seq.experiments.graphs import UNIQUE_NODES
from node2seq.experiments.paper import PRINTED, Cell
from node2seq.experiments.rows import Choice, RowStore, SearchStore, read_choices, recipe_text
from node2seq.experiments.samples import Sample, costs_of, difference_text
from node2seq.reporting.charts import Dots, dot_chart
from node2seq.reporting.document import Block, Bullets, Chart, Grid, Heading, Paragraph, titled, to_markdown
from node2seq.storage import make_folder, write_bytes

PAGE, FOREST = "evidence.md", "evidence.svg"

_STUDY_TITLES = {
    "order": "The order of neighbours, by readout",
    "non-local": "Non-local neighbours, and the share of entries that they are",
    "kernel": "The length of the kernel",
    "neighbours": "The layer without its neighbours",
}
_HOW_TO_READ = (
    "Ranks are by mean test accuracy. Intervals are 95 % t-intervals of paired differences, seed by seed. A "
    "difference is settled if its p-value is below 0.05 after Holm's correction for all comparisons of its "
    "sentence or table. Runs on random splits of one graph share nodes, so they say how a model does on this "
    "graph, not on others. Cornell is shown and not counted: its features and labels are those of Texas."
)
_EARLIER = (
    "Below it, where there are some, the mean of the earlier rows with seeds 0–19, whose settings were "
    "searched with unequal effort (see results.md)."
)
_DUPLICATES = (
    "Many nodes of Chameleon and Squirrel have the same neighbours and the same label as another node, often "
    "a training node. Here only the first of such nodes is kept. Neighbours are compared without the "
    f"direction of the edges, which leaves {UNIQUE_NODES['chameleon']:,} nodes of Chameleon and "
    f"{UNIQUE_NODES['squirrel']:,} of Squirrel. The published filtered sets (Platonov et al., 2023) hold "
    "other nodes, so figures on them cannot be compared with these. The recipes are those chosen on the "
    "whole graphs; these columns count for nothing above."
)
_CHOSEN_BY = (
    "The setting with the best mean over all its splits is taken, the first drawn of equals. No cell is "
    "searched twice."
)
_CHOICE = (
    "Settings are judged by their accuracy on validation nodes, by cross-fitting: each tenth of the nodes is "
    "judged at the epoch that the others choose. No test node was measured.",
    "Training ranges and the stopping rule are the same for all lines of a column, but for the learning rate "
    "of SGC. Earlier searches were known when they were written down. Own features apart, consistent views, "
    "smoothed predictions (Table 2), averaged weights and smoothed labels are open to every line of plus; "
    "the MLP has no neighbours for the first and the third.",
    "The default network has no search: its recipe follows from the sizes of the graph, by the rule of "
    "any-graph.md as it was at the commit of its rows, which was chosen on these graphs among others. The "
    "rule for few labels has changed since.",
    "On columns with random splits, test nodes of the final rows are training and validation nodes of the "
    "search: their labels had a part in the choice, for every searched line. On the fixed splits no search "
    "used a test label; there a seed draws the initial weights.",
)


def render(protocol: Protocol, folder: Path, results: Path, docs: Path) -> list[Path]:
    """Write the page and its chart, and return their paths.

    Args:
        protocol: The protocol.
        folder: The folder of its rows.
        results: The folder of the rows of ``reproduce``, shown beside.
        docs: The folder to write to.
    """
    evidence = Evidence(protocol, RowStore(folder).rows.values(), RowStore(results).rows.values())
    chart = forest(evidence)
    blocks = build(evidence, SearchStore(folder), read_choices(folder).values(), chart)
    make_folder(docs)
    written = {PAGE: to_markdown(blocks)} | ({FOREST: chart} if chart else {})
    for name, text in written.items():
        write_bytes(docs / name, text.encode())
    return [docs / name for name in written]


def build(evidence: Evidence, search: SearchStore, choices: Iterable[Choice], chart: str = "") -> list[Block]:
    """The whole page."""
    protocol = evidence.protocol
    told = conclusions(evidence)
    for table in dict.fromkeys(study.table for study in protocol.studies):
        told += study_sentences(evidence, table)
    blocks: list[Block] = [
        Heading("Evidence: all models at equal budgets", 1),
        Paragraph(
            f"Rendered from {len(evidence.rows)} final rows and {len(search.rows)} rows of a search by "
            "`node2seq protocol render`. What is compared and how was committed before the first row was "
            "made: `results/protocol/declaration.json`."
        ),
        Heading("What the rows say"),
        Bullets(told or ["There are no rows yet."]),
        Paragraph(_HOW_TO_READ),
    ]
    blocks += _ranks(evidence)
    if chart:
        title = "Networks with the Node2Seq layer minus the best other line of each column"
        blocks += [Heading(title, 3), Chart(chart, title, FOREST)]
    blocks += _against_printed(evidence)
    blocks += _accuracies(evidence)
    for table in _STUDY_TITLES:
        blocks += _study_table(evidence, table)
    blocks += _without_duplicates(evidence)
    blocks += _budgets(protocol, search)
    blocks += _costs(evidence, search)
    blocks += _pairwise(evidence)
    blocks += _recipes(protocol, choices)
    return blocks


def forest(evidence: Evidence) -> str:
    """A chart of the differences to the best other line with their intervals; nothing without rows."""
    protocol, series, shown = evidence.protocol, [], []
    for line in protocol.lines:
        if is_ours(line):
            lines = plain_lines(protocol.lines) if line.variant == "paper" else protocol.lines
            contrasts = best_contrasts(evidence, line, lines, protocol.columns)
            gaps = {column_title(each.column): each.gap for each in contrasts}
            if gaps:
                means = {title: gap.mean for title, gap in gaps.items()}
                series.append(Dots(line.label, means, {title: gap.margin for title, gap in gaps.items()}))
                shown += [title for title in gaps if title not in shown]
    if not series:
        return ""
    return dot_chart("Points above the best other line", shown, series, "points, with 95 % t-intervals")


def _line(title: str, evidence: Evidence, what: Line | Study, columns: Iterable[str]) -> list[str]:
    """A line of a table: the figure of each column."""
    return [title, *(_figure(evidence.of(what, column)) for column in columns)]


def _ranks(evidence: Evidence) -> list[Block]:
    protocol = evidence.protocol
    columns = protocol.columns
    lines = []
    for line in protocol.lines:
        places = [evidence.standing(line.label, protocol.lines, column) for column in columns]
        if any(places):
            lines.append([line.label, *("" if place is None else f"{place[0]}" for place in places)])
    if lines:
        among = [f"{len(evidence.known(protocol.lines, column))}" for column in columns]
        largest = _line("share of the largest class, %", evidence, LARGEST, columns)
        lines += [["of so many lines", *among], largest]
    return titled("Rank of each line in each column", ["", *map(column_title, columns)], lines, level=3)


def _against_printed(evidence: Evidence) -> list[Block]:
    ours = [line for line in evidence.protocol.lines if is_ours(line)]
    lines = []
    for column in evidence.protocol.columns:
        samples = [evidence.of(line, column) for line in ours]
        if column in PRINTED and any(samples):
            printed = PRINTED[column].mean
            texts = [_figure(s) + ("" if s is None else f"\n{s.against(printed)}") for s in samples]
            lines.append([column_title(column), f"{printed:.1f}", *texts])
    header = ["", "the paper prints", *(line.label for line in ours)]
    return titled("Node2Seq against the paper's Node2Seq", header, lines)


def _accuracies(evidence: Evidence) -> list[Block]:
    blocks: list[Block] = [
        Heading("Test accuracy"),
        Paragraph(
            f"In percent, mean ± sample standard deviation over {len(evidence.protocol.final_seeds)} runs on "
            f"the reserved seeds. {_EARLIER}"
        ),
    ]
    plain = plain_lines(evidence.protocol.lines)
    rest = [line for line in evidence.protocol.lines if line not in plain]
    for title, lines in (("As the papers describe them", plain), ("With options beyond the papers", rest)):
        columns = [c for c in evidence.protocol.columns if evidence.known(lines, c)]
        if columns:
            texts = [[line.label, *(_with_earlier(evidence, line, c) for c in columns)] for line in lines]
            texts.append(_line("largest class", evidence, LARGEST, columns))
            blocks += [Heading(title, 3), Grid(["", *map(column_title, columns)], texts)]
    return blocks if len(blocks) > 2 else []


def _with_earlier(evidence: Evidence, line: Line, column: str) -> str:
    if column not in line.columns:
        return ""
    earlier = evidence.earlier.get(line.cell(column))
    beside = "" if earlier is None else f"\nearlier {earlier.mean:.1f}"
    return _figure(evidence.of(line, column)) + beside


def _figure(sample: Sample | None) -> str:
    return "–" if sample is None else str(sample)


def _study_table(evidence: Evidence, table: str) -> list[Block]:
    studies = [study for study in evidence.protocol.studies if study.table == table]
    columns = list(dict.fromkeys(column for study in studies for column in study.columns))
    lines = [[study.label, *(_studied(evidence, study, column) for column in columns)] for study in studies]
    if not any(text != "–" for line in lines for text in line[1:]):
        return []
    chosen = _line("as chosen", evidence, evidence.protocol.ours, columns)
    return [
        Heading(_STUDY_TITLES[table]),
        Grid(["", *map(column_title, columns)], [chosen, *lines]),
        Bullets(study_sentences(evidence, table)),
    ]


def _studied(evidence: Evidence, study: Study, column: str) -> str:
    share = evidence.swapped.get(study.cell(column))
    extra = "" if share is None else f"\n{100 * share:.0f} % non-local"
    return _figure(evidence.of(study, column)) + extra


def _without_duplicates(evidence: Evidence) -> list[Block]:
    further = evidence.protocol.further
    columns = [column for own in further.items() for column in own[::-1]]
    texts = [
        _line(line.label, evidence, line, columns)
        for line in evidence.protocol.lines
        if any(evidence.of(line, column) for column in further)
    ]
    if texts:
        texts.append(_line("largest class", evidence, LARGEST, columns))
    return titled("Without duplicates", ["", *map(column_title, columns)], texts, _DUPLICATES)


def _budgets(protocol: Protocol, search: SearchStore) -> list[Block]:
    rounds = [
        f"round {number}: {rung.settings} settings on {len(rung.seeds)} further splits, seeds "
        f"{rung.seeds[0]}–{rung.seeds[-1]}"
        for number, rung in enumerate(protocol.rungs, 1)
    ]
    told = f"The same for every line and column: {'; '.join(rounds)}. {_CHOSEN_BY}"
    blocks: list[Block] = [Heading("How settings were chosen"), Bullets([told, *_CHOICE])]
    settings: Counter[Cell] = Counter()
    trainings: Counter[Cell] = Counter()
    for row in search.rows.values():
        cell = Cell(row.key.model, row.key.column, row.key.variant)
        settings[cell] += row.key.rung == 1
        trainings[cell] += len(row.seeds)
    texts = {line.cell(column): "–" for line, column in protocol.searched}
    texts |= {cell: f"{settings[cell]} / {count}" for cell, count in trainings.items()}
    if trainings:
        lines = [
            [line.label, *(texts.get(line.cell(column), "") for column in protocol.columns)]
            for line in protocol.lines
            if line.searched
        ]
        header = ["", *map(column_title, protocol.columns)]
        blocks += [Paragraph("Settings / trainings of each search:"), Grid(header, lines)]
    return blocks


def _costs(evidence: Evidence, search: SearchStore) -> list[Block]:
    stages = {
        "search": search.rows.values(),
        "final rows": [row for row in evidence.rows if row.key.study == "main"],
        "studies": [row for row in evidence.rows if row.key.study != "main"],
    }
    lines = [[title, *cost.cells()] for title, rows in stages.items() for cost in costs_of(rows)]
    header = ["", "device", "trainings", "epochs", "seconds of all processes", "wall time"]
    return titled("What it took", header, lines)


def _pairwise(evidence: Evidence) -> list[Block]:
    """Each of our lines minus every other one of its kind."""
    protocol, blocks = evidence.protocol, []
    for line in protocol.lines:
        if not is_ours(line):
            continue
        plain = line.variant == "paper"
        others = [o for o in protocol.lines if (o.variant == "paper") == plain and o is not line]
        contrasts = family(
            (column, other.label, evidence.of(line, column), evidence.of(other, column))
            for other in others
            for column in protocol.columns
        )
        if contrasts:
            found = {(each.title, each.column): each for each in contrasts}
            texts = [
                [other.label, *(_contrast(found.get((other.label, c))) for c in protocol.columns)]
                for other in others
            ]
            blocks += [
                Heading(f"{line.label} minus other lines", 3),
                Grid(["", *map(column_title, protocol.columns)], texts),
            ]
    told = "Differences in points with their t-intervals; * is settled after Holm's correction for the table."
    return [Heading("Appendix: paired differences"), Paragraph(told), *blocks] if blocks else []


def _contrast(contrast: Contrast | None) -> str:
    return "" if contrast is None else difference_text(contrast.gap, "*" if contrast.side else "")


def _recipes(protocol: Protocol, choices: Iterable[Choice]) -> list[Block]:
    labels = {(line.model, line.variant): line.label for line in protocol.lines}
    lines = [
        [
            labels[choice.model, choice.variant],
            column_title(choice.column),
            f"{100 * choice.validation:.1f}",
            recipe_text(choice.trained_with),
        ]
        for choice in choices
    ]
    return titled("Appendix: chosen recipes", ["line", "column", "validation", "recipe"], lines)

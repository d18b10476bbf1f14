"""The paper's tables with our figures: means, verdicts, box plots, paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node2seq.experiments.paper import COLUMN_TITLES, PRINTED, Cell, Figure, ResultTable
from node2seq.experiments.samples import VERDICTS, Cost, Difference, Paired, Sample, paired_difference
from node2seq.recipes import Recipe
from node2seq.reporting.charts import Box, box_plot
from node2seq.reporting.document import Block, Bullets, Chart, Grid, Heading, Paragraph
from node2seq.train.settings import TrainSettings

_PAIRED = (
    "Line minus column, or as named, seed by seed (the same seed is the same split), with the 95 % bootstrap "
    "interval of the mean. On the fixed splits a seed only shares the number of its initial weights."
)
_LGCN = (
    "LGCN's three layers are counted as the embedding, the learnable layers (one or two, by validation) and "
    "the classifier. LGCN alone is trained with Nadam, as its authors do."
)


@dataclass(frozen=True)
class Entry:
    """One cell of a table: our runs (or none), and what the paper prints for it (or nothing)."""

    label: str
    sample: Sample | None
    paper: Figure | None

    @property
    def box(self) -> Box:
        """The cell in a box plot."""
        runs = tuple(self.sample.tests.values()) if self.sample else ()
        return Box(self.label, runs, self.paper.mean if self.paper else None)


def against_the_paper(samples: dict[Cell, Sample]) -> list[Block]:
    """The goal: Node2Seq in the eleven columns of Tables 2 and 3, as both variants that count."""
    variants = ("paper", "plus")
    lines = []
    counts: dict[str, dict[str, int]] = {name: dict.fromkeys(VERDICTS, 0) for name in variants}
    for column, printed in PRINTED.items():
        line = [COLUMN_TITLES[column], f"{printed.mean:.1f}"]
        for variant in variants:
            sample = samples.get(Cell("node2seq", column, variant))
            if sample is not None:
                counts[variant][sample.against(printed.mean)] += 1
            line.append(figure(sample, printed, judged=True, brief=True))
        lines.append(line)
    told = [
        f"{variant}: "
        + ", ".join(f"{verdict} in {n}" for verdict, n in by_verdict.items())
        + f" of {len(lines)}"
        for variant, by_verdict in counts.items()
        if any(by_verdict.values())
    ]
    if not told:
        return []
    return [
        Heading("Node2Seq against the paper's Node2Seq"),
        Grid(["", "the paper prints", *(f"ours, {variant}" for variant in variants)], lines),
        Bullets(told),
    ]


def table_blocks(
    table: ResultTable, cells: list[list[Cell | None]], samples: dict[Cell, Sample]
) -> list[Block]:
    """A table, its box plots and its paired differences."""
    titles = [COLUMN_TITLES[column] for column in table.columns]
    # A line that has no cell at all takes an option out that no recipe uses.
    lines = [(line, row) for line, row in zip(table.lines, cells, strict=True) if line.figures or any(row)]
    entries = [
        [
            Entry(line.label, None if cell is None else samples.get(cell), line.figures.get(column))
            for column, cell in zip(table.columns, row, strict=True)
        ]
        for line, row in lines
    ]
    texts = [
        [
            line.label,
            *(
                ""
                if cell is None and not entry.paper
                else figure(entry.sample, entry.paper, line.model == "node2seq")
                for cell, entry in zip(row, own, strict=True)
            ),
        ]
        for (line, row), own in zip(lines, entries, strict=True)
    ]
    blocks: list[Block] = [Heading(table.title), Grid(["", *titles], texts)]
    if any(line.model == "lgcn" for line, _ in lines):
        blocks.append(Paragraph(_LGCN))
    if any(entry.sample for row in entries for entry in row):
        groups = [(title, [row[i].box for row in entries]) for i, title in enumerate(titles)]
        blocks.append(Chart(box_plot(table.title, groups, "the paper")))
        pairs = _contrasts(table, entries) if table.contrasts else _pairs(table.columns, entries)
        blocks += [Heading("Paired differences", 3), Paragraph(_PAIRED), *pairs] if pairs else []
    return blocks


def figure(sample: Sample | None, paper: Figure | None, judged: bool = False, brief: bool = False) -> str:
    """The text of a cell: ours, the paper's unless ``brief``, and whether ours is at or above it."""
    parts = ["–" if sample is None else f"{sample} (n = {sample.n})"]
    if paper is not None:
        if not brief:
            printed = f"paper {paper.mean:.1f}" + ("" if paper.sd is None else f" ± {paper.sd:.1f}")
            parts.append(printed + ("" if sample is None else f", {signed(sample.mean - paper.mean)}"))
        if judged and sample is not None:
            parts.append(sample.against(paper.mean))
    return "\n".join(parts)


def titled(
    title: str, header: Sequence[str], lines: Sequence[Sequence[str]], text: str = "", level: int = 2
) -> list[Block]:
    """A table with its heading and a paragraph; nothing where it has no lines."""
    if not lines:
        return []
    return [Heading(title, level), *([Paragraph(text)] if text else []), Grid(header, lines)]


def cost_cells(cost: Cost) -> list[str]:
    """The device, trainings, epochs, seconds of all processes and wall time."""
    seconds = (f"{spent:.0f} s" for spent in (cost.training_seconds, cost.wall_seconds))
    return [cost.device, f"{cost.runs}", f"{cost.epochs}", *seconds]


def recipe_text(recipe: Recipe) -> str:
    """All options of a recipe, and the training settings that tell it from others."""
    default = TrainSettings()
    parts = [f"{name} {value}" for name, value in recipe.options.items()]
    parts += [
        f"{name} {value}"
        for name, value in vars(recipe.settings).items()
        if name in ("epochs", "lr", "weight_decay") or value != getattr(default, name)
    ]
    return ", ".join([*parts, *(["features divided by their sum"] if recipe.row_normalize else [])])


def signed(value: float) -> str:
    """A difference in points, to one decimal, with its sign."""
    text = f"{value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def _pairs(columns: Sequence[str], entries: Sequence[Sequence[Entry]]) -> list[Block]:
    blocks: list[Block] = []
    for i, column in enumerate(columns):
        known = [(row[i].label, row[i].sample) for row in entries if row[i].sample]
        if len(known) < 2:
            continue
        lines = [
            [
                label,
                *(_difference(sample, other) for _, other in known[:place]),
                *[""] * (len(known) - 1 - place),
            ]
            for place, (label, sample) in enumerate(known)
            if place
        ]
        blocks += [Heading(COLUMN_TITLES[column], 4), Grid(["", *(label for label, _ in known[:-1])], lines)]
    return blocks


def _contrasts(table: ResultTable, entries: Sequence[Sequence[Entry]]) -> list[Block]:
    """The differences that a table is about, one line each."""
    by_label = {row[0].label: row for row in entries}
    lines = []
    for first, second in table.contrasts:
        if first in by_label and second in by_label:
            pairs = zip(by_label[first], by_label[second], strict=True)
            lines.append(
                [f"{first} − {second}", *(_difference(a.sample, b.sample, count=True) for a, b in pairs)]
            )
    lines = [line for line in lines if any(text != "–" for text in line[1:])]
    return [Grid(["", *(COLUMN_TITLES[column] for column in table.columns)], lines)] if lines else []


def _difference(first: Sample | None, second: Sample | None, count: bool = False) -> str:
    found = paired_difference(first, second)
    return difference_text(found, f" ({found.n} pairs)" if found and count else "")


def difference_text(difference: Difference | Paired | None, note: str = "") -> str:
    """A difference with a note, and its interval below it."""
    if difference is None:
        return "–"
    interval = f"[{signed(difference.low)}, {signed(difference.high)}]"
    return f"{signed(difference.mean)}{note}\n{interval}"

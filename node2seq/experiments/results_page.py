"""The results page, from rows and trials and nothing else: the same ones give the same bytes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from node2seq.data import DATASETS
from node2seq.experiments.paper import (
    COLUMN_TITLES,
    EDGE_NOTES,
    MODEL_TITLES,
    PRINTED,
    TABLE_1,
    TABLES,
    Cell,
    Figure,
    ResultTable,
    cell_of,
    cells_of,
    choose_cells,
)
from node2seq.experiments.results_findings import findings
from node2seq.experiments.rows import ResultRow, RowStore, recipe_text
from node2seq.experiments.samples import (
    VERDICTS,
    Effort,
    Sample,
    costs_of,
    difference_text,
    efforts_of,
    makings_of,
    paired_difference,
    samples_of,
    signed,
)
from node2seq.options import check_choice
from node2seq.recipes import RECIPES
from node2seq.reporting.charts import Box, box_plot
from node2seq.reporting.document import (
    Block,
    Bullets,
    Chart,
    Grid,
    Heading,
    Paragraph,
    titled,
    to_html,
    to_latex,
    to_markdown,
)
from node2seq.storage import make_folder, write_bytes

_INTRODUCTION = (
    "Test accuracy in percent: mean ± sample standard deviation over n runs, none dropped. Each run has a "
    "fresh split (but for the fixed ones) and fresh initial weights, both from its seed. The reported epoch "
    "is the one of best validation accuracy, ties by lower validation loss, then the first; the run's test "
    "nodes are measured at that epoch and choose nothing in the run. Below each figure are the paper's and "
    "the difference; below Node2Seq's also whether it is at or above the paper's as printed, within one "
    "standard error of our mean, or below."
)
_VARIANTS = (
    "Three variants, never mixed. Paper: the network and the plain training that the paper describes. Plus: "
    "with options of network and trainer that the paper does not have; its baselines are trained with the "
    "same training options. Directed: on graphs that keep their edges' direction, in- and out-neighbours are "
    "two sequences, weighed against each other, or one of them alone; it counts for no figure of the paper's."
)

_READ_FIRST = (
    "Read [evidence.md](evidence.md) first: all models at equal budgets, on seeds that no search has seen. "
    "The rows of this page came before it."
)
_PAIRED = (
    "Line minus column, or as named, seed by seed (the same seed is the same split), with the 95 % bootstrap "
    "interval of the mean. On the fixed splits a seed only shares the number of its initial weights."
)
_LGCN = (
    "LGCN's three layers are counted as the embedding, the learnable layers (one or two, by validation) and "
    "the classifier. LGCN alone is trained with Nadam, as its authors do."
)

#: How the page can be written.
FORMATS = {"md": to_markdown, "html": to_html, "tex": to_latex}


def render(results: str | Path, docs: str | Path, formats: Sequence[str] = ("md",)) -> list[Path]:
    """Write the results page, and return the paths of its files.

    Args:
        results: The folder of the rows.
        docs: The folder to write to.
        formats: Keys of :data:`FORMATS`; ``results.md`` and so on are written.
    """
    for name in formats:
        check_choice("format", name, FORMATS)
    store = RowStore(results)
    efforts = efforts_of(Path(results) / "trials.jsonl")
    blocks = build(list(store.rows.values()), store.retired(), efforts)
    if (Path(results) / "protocol/runs.jsonl").exists():
        blocks.insert(1, Paragraph(_READ_FIRST))
    make_folder(Path(docs))
    paths = []
    for name in formats:
        path = Path(docs) / f"results.{name}"
        write_bytes(path, FORMATS[name](blocks).encode())
        paths.append(path)
    return paths


def build(
    rows: Sequence[ResultRow],
    retired: Sequence[ResultRow] = (),
    efforts: Mapping[Cell, Effort] | None = None,
) -> list[Block]:
    """The whole page."""
    samples = samples_of(rows)
    makings = makings_of(rows, retired)
    blocks: list[Block] = [
        Heading("Results", 1),
        Paragraph(f"Rendered from {len(rows)} rows by `node2seq reproduce --render`."),
        *findings(rows, samples, makings, efforts or {}),
        Heading("How the figures were made"),
        Paragraph(_INTRODUCTION),
        Paragraph(_VARIANTS),
        *against_the_paper(samples),
        *_data_sets(),
    ]
    shown: set[Cell] = set()
    for name, table in TABLES.items():
        cells = [[cell_of(line, column) for column in table.columns] for line in table.lines]
        own = {cell for line in cells for cell in line if cell is not None}
        shown |= own
        if name.isdigit() or own & samples.keys():
            blocks += table_blocks(table, cells, samples)
    blocks += _second_test_figure(rows)
    others = [[*_names(cell), figure(sample, None)] for cell, sample in samples.items() if cell not in shown]
    blocks += titled("Other runs", ["column", "model", "variant and study", "test"], others)
    blocks += _costs(rows)
    blocks += _searches(efforts or {})
    blocks += _recipes(rows)
    blocks += _history(makings, samples)
    return blocks


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


def _data_sets() -> list[Block]:
    lines, defects = [], []
    for name, printed in TABLE_1.items():
        dataset = DATASETS[name]
        facts = dataset.facts
        ours = (facts.nodes, facts.edges, facts.features, facts.classes)
        figures = [f"{a}" if a == b else f"{a}\npaper {b}" for a, b in zip(ours, printed, strict=True)]
        lines.append([dataset.title, *figures, f"{facts.homophily:.2f}", EDGE_NOTES.get(name, "")])
        defects += [f"{dataset.title}: {defect}" for defect in dataset.defects]
    header = ["", "nodes", "edges", "features", "classes", "homophily", "what the paper's edges count"]
    return [
        Heading("Table 1: data sets"),
        Paragraph(
            "After our preparation: undirected, without self loops and duplicates, edges counted once; "
            "where the paper prints another number, it is given below ours."
        ),
        Grid(header, lines),
        Paragraph("Known defects:"),
        Bullets(defects),
    ]


def _second_test_figure(rows: Sequence[ResultRow]) -> list[Block]:
    rest, test = samples_of(rows, "test_rest"), samples_of(rows)
    lines = [[*_names(cell), figure(test[cell], None), figure(sample, None)] for cell, sample in rest.items()]
    told = (
        "The fixed splits come with 1000 test nodes; the paper's text takes all nodes that are neither "
        "trained nor validated on."
    )
    header = ["column", "model", "study", "1000 test nodes", "all the rest"]
    return titled("The second reading of the fixed splits", header, lines, told)


def _costs(rows: Sequence[ResultRow]) -> list[Block]:
    baselines = {
        f"Table {name}'s baselines": {cell for cell in cells_of(name) if cell.model != "node2seq"}
        for name in ("2", "3")
    }
    shown = {
        **baselines,
        "Tables 2 to 6, all models": set(choose_cells()),
        **{
            f"all of the variant {variant}": {row.key.cell for row in rows if row.key.variant == variant}
            for variant in RECIPES
            if variant != "paper"
        },
        "all rows": {row.key.cell for row in rows},
    }
    lines = []
    for title, cells in shown.items():
        for cost in costs_of(row for row in rows if row.key.cell in cells):
            device, *figures = cost.cells()
            lines.append([title, device, cost.jobs, cost.together, *figures])
    how = ("processes", "runs in one program")
    header = ["", "device", *how, "trainings", "epochs", "seconds of training", "wall time"]
    told = (
        "Seconds of training are summed over processes; those of a program are shared out among its "
        "runs. The wall time is summed over calls, from a call's start, start of its processes "
        "included, to the last of these rows."
    )
    return titled("What it took", header, lines, told)


def _recipes(rows: Sequence[ResultRow]) -> list[Block]:
    found: dict[tuple[str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: row.key):
        if row.key.study != "main":
            continue
        label = (f"{MODEL_TITLES[row.key.model]}, {row.key.variant}", recipe_text(row.trained_with))
        columns = found.setdefault(label, [])
        if COLUMN_TITLES[row.key.column] not in columns:
            columns.append(COLUMN_TITLES[row.key.column])
    lines = [[model, ", ".join(columns), text] for (model, text), columns in found.items()]
    return titled("Recipes of these rows", ["model", "columns", "recipe"], lines)


def _searches(efforts: Mapping[Cell, Effort]) -> list[Block]:
    """What the searches took, one line for each model and variant."""
    columns = [name for name in COLUMN_TITLES if any(cell.column == name for cell in efforts)]
    texts = {cell: f"{effort.settings}\n{effort.trainings}" for cell, effort in efforts.items()}
    lines = [
        [
            f"{MODEL_TITLES[model]}, {variant}",
            *(texts.get(Cell(model, column, variant), "") for column in columns),
        ]
        for variant, model in sorted({(cell.variant, cell.model) for cell in efforts})
    ]
    told = (
        "Settings tried, and below them trainings, of all rounds whose trials are kept in "
        "`results/trials.jsonl`. Where a cell is empty, the settings are published ones, were tried by "
        "hand, or are of the first round, whose trials were lost (see the log)."
    )
    header = ["", *(COLUMN_TITLES[column] for column in columns)]
    return titled("What the searches took", header, lines, told)


def _history(makings: Mapping[Cell, Sequence[Sample]], current: Container[Cell]) -> list[Block]:
    """The cells whose rows were made more than once, and those that are no longer on the page.

    Args:
        makings: See :func:`makings_of`.
        current: The cells that have rows which count.
    """
    if not makings:
        return []
    cells = sorted(makings)
    lines = [[*_names(cell), f"{len(makings[cell])}"] for cell in cells if len(makings[cell]) > 1]
    told = (
        "Once for every cell but these. A cell's rows are retired to `results/retired.jsonl` and made "
        "again when its recipe changes."
        if lines
        else "Once for every cell: no row was ever made again."
    )
    blocks: list[Block] = [Heading("How often test rows were made"), Paragraph(told)]
    if lines:
        blocks.append(Grid(["column", "model", "study", "times"], lines))
    times = {cell: "once" if len(makings[cell]) == 1 else f"{len(makings[cell])} times" for cell in cells}
    dropped = [f"{', '.join(_names(cell))}: {times[cell]}" for cell in cells if cell not in current]
    return [*blocks, Paragraph("Retired and not made again:"), Bullets(dropped)] if dropped else blocks


def _names(cell: Cell) -> list[str]:
    """The column, the model, and the study with the variant where it is not the paper's."""
    study = cell.study if cell.variant == "paper" else f"{cell.variant}, {cell.study}"
    return [COLUMN_TITLES[cell.column], MODEL_TITLES[cell.model], study]

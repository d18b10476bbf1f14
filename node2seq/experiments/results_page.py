"""The results page, from rows and trials and nothing else: the same ones give the same bytes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from node2seq.data import DATASETS
from node2seq.experiments.paper import (
    COLUMN_TITLES,
    EDGE_NOTES,
    MODEL_TITLES,
    TABLE_1,
    TABLES,
    Cell,
    cell_of,
    cells_of,
    choose_cells,
)
from node2seq.experiments.results_findings import findings
from node2seq.experiments.results_tables import (
    against_the_paper,
    cost_cells,
    figure,
    recipe_text,
    table_blocks,
    titled,
)
from node2seq.experiments.rows import ResultRow, RowStore
from node2seq.experiments.samples import Effort, Sample, costs_of, efforts_of, makings_of, samples_of
from node2seq.options import check_choice
from node2seq.recipes import RECIPES
from node2seq.reporting.document import (
    Block,
    Bullets,
    Grid,
    Heading,
    Paragraph,
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
            device, *figures = cost_cells(cost)
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

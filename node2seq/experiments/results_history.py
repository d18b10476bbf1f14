"""How the recipes came about: what the searches took, and how often the test rows of a cell were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from node2seq.errors import Node2SeqError
from node2seq.experiments.cells import Cell
from node2seq.experiments.paper import COLUMN_TITLES, MODEL_TITLES
from node2seq.experiments.results_tables import titled
from node2seq.experiments.rows import ResultRow
from node2seq.experiments.samples import Sample
from node2seq.recipes import Recipe
from node2seq.reporting.document import Block, Bullets, Grid, Heading, Paragraph
from node2seq.storage import JsonLines


class Searched(NamedTuple):
    """Whose settings were searched."""

    variant: str
    model: str
    column: str


class Effort(NamedTuple):
    """How many settings were tried, and in how many trainings."""

    settings: int
    trainings: int


def efforts_of(table: Path) -> dict[Searched, Effort]:
    """Count the trials of a table: a line that describes a search, then a line for each of its trials."""
    found: dict[Searched, Effort] = {}
    whose = None
    for line in JsonLines(table).refresh().values:
        if "variant" in line:
            whose = Searched(line["variant"], line["model"], line["column"])
            found.setdefault(whose, Effort(0, 0))
        elif whose is None:
            raise Node2SeqError(str(table), "a trial stands before its search", "Restore the file")
        else:
            settings, trainings = found[whose]
            found[whose] = Effort(settings + 1, trainings + line["splits"] + line.get("failed", 0))
    return found


def search_blocks(efforts: Mapping[Searched, Effort]) -> list[Block]:
    """A table of them, one line for each model and variant."""
    columns = [name for name in COLUMN_TITLES if any(whose.column == name for whose in efforts)]
    models = dict.fromkeys((whose.variant, whose.model) for whose in sorted(efforts))
    lines = [
        [
            f"{MODEL_TITLES[model]}, {variant}",
            *(_text(efforts.get(Searched(variant, model, column))) for column in columns),
        ]
        for variant, model in models
    ]
    told = (
        "Settings tried, and below them trainings, of all rounds whose trials are kept in "
        "`results/trials.jsonl`. Where a cell is empty, the settings are published ones, were tried by "
        "hand, or are of the first round, whose trials were lost (see the log)."
    )
    header = ["", *(COLUMN_TITLES[column] for column in columns)]
    return titled("What the searches took", header, lines, told)


def _text(effort: Effort | None) -> str:
    return "" if effort is None else f"{effort.settings}\n{effort.trainings}"


def makings_of(rows: Iterable[ResultRow], retired: Iterable[ResultRow]) -> dict[Cell, list[Sample]]:
    """The test accuracies of every cell by the time they were made, the first time first.

    A new time begins with another recipe, or with a seed that was trained before: so a recipe that comes back
    counts again, and a series that several calls made counts once.

    Args:
        rows: The rows that count, in any order.
        retired: The rows that were replaced, in the order in which they were retired.
    """
    found: dict[Cell, list[dict[int, float]]] = {}
    latest: dict[Cell, Recipe] = {}
    for row in [*retired, *sorted(rows, key=lambda row: row.key)]:
        key, recipe = row.key, row.trained_with
        times = found.setdefault(key.cell, [])
        if not times or latest[key.cell] != recipe or key.seed in times[-1]:
            times.append({})
        latest[key.cell] = recipe
        times[-1][key.seed] = 100 * row.test
    return {cell: [Sample(tests) for tests in times] for cell, times in found.items()}


def history_blocks(makings: Mapping[Cell, Sequence[Sample]], current: Iterable[Cell]) -> list[Block]:
    """The cells whose rows were made more than once, and those that are no longer on the page.

    Args:
        makings: See :func:`makings_of`.
        current: The cells that have rows which count.
    """
    if not makings:
        return []
    dropped = sorted(makings.keys() - set(current))
    lines = [
        [COLUMN_TITLES[cell.column], MODEL_TITLES[cell.model], study_name(cell), f"{len(times)}"]
        for cell, times in sorted(makings.items())
        if len(times) > 1
    ]
    blocks: list[Block] = [Heading("How often test rows were made")]
    if lines:
        told = (
            "Once for every cell but these. A cell's rows are retired to `results/retired.jsonl` and made "
            "again when its recipe changes."
        )
        blocks += [Paragraph(told), Grid(["column", "model", "study", "times"], lines)]
    else:
        blocks.append(Paragraph("Once for every cell: no row was ever made again."))
    if dropped:
        blocks += [
            Paragraph("Retired and not made again:"),
            Bullets(
                [
                    f"{COLUMN_TITLES[cell.column]}, {MODEL_TITLES[cell.model]}, {study_name(cell)}: "
                    f"{'once' if len(makings[cell]) == 1 else f'{len(makings[cell])} times'}"
                    for cell in dropped
                ]
            ),
        ]
    return blocks


def study_name(cell: Cell) -> str:
    """What a cell is of its model and column: the study, with the variant where it is not the paper's."""
    return cell.study if cell.variant == "paper" else f"{cell.variant}, {cell.study}"

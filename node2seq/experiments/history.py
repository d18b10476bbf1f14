"""How often the test rows of a cell were made: what the retired rows tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from node2seq.experiments.cells import Cell, Key, recipe_from_row
from node2seq.experiments.paper import COLUMN_TITLES, MODEL_TITLES
from node2seq.experiments.store import Row
from node2seq.experiments.summary import Sample
from node2seq.recipes import Recipe
from node2seq.reporting.document import Block, Bullets, Grid, Heading, Paragraph


def makings_of(rows: Iterable[Row], retired: Iterable[Row]) -> dict[Cell, list[Sample]]:
    """The test accuracies of every cell by the time they were made, the first time first.

    A new time begins with another recipe, or with a seed that was trained before: so a recipe that comes back
    counts again, and a series that several calls made counts once.

    Args:
        rows: The rows that count, in any order.
        retired: The rows that were replaced, in the order in which they were retired.
    """
    found: dict[Cell, list[dict[int, float]]] = {}
    latest: dict[Cell, Recipe] = {}
    for row in [*retired, *sorted(rows, key=Key.of)]:
        key, recipe = Key.of(row), recipe_from_row(row["recipe"])
        times = found.setdefault(key.cell, [])
        if not times or latest[key.cell] != recipe or key.seed in times[-1]:
            times.append({})
        latest[key.cell] = recipe
        times[-1][key.seed] = 100 * row["test"]
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
            "anew when its recipe changes."
        )
        blocks += [Paragraph(told), Grid(["column", "model", "study", "times"], lines)]
    else:
        blocks.append(Paragraph("Once for every cell: no row was ever made anew."))
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

"""What the searches for recipes took: the trials that are kept beside the rows, counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from node2seq.experiments.paper import COLUMN_TITLES, MODEL_TITLES
from node2seq.reporting.document import Block, Grid, Heading, Paragraph


class Searched(NamedTuple):
    """Whose settings were searched."""

    variant: str
    model: str
    column: str


class Effort(NamedTuple):
    """How many settings were tried, and in how many trainings."""

    settings: int
    trainings: int


def efforts_of(folder: Path) -> dict[Searched, Effort]:
    """Count the trials of ``folder``; its files are named after the variant first: ``plus_cora-r.jsonl``."""
    found: dict[Searched, Effort] = {}
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as lines:
            header = json.loads(next(lines))
            trials = [json.loads(line)["trial"] for line in lines]
        whose = Searched(path.name.partition("_")[0], header["model"], header["data"])
        before = found.get(whose, Effort(0, 0))
        found[whose] = Effort(before.settings + len(set(trials)), before.trainings + len(trials))
    return found


def search_blocks(efforts: Mapping[Searched, Effort]) -> list[Block]:
    """A table of them, one line for each model and variant."""
    if not efforts:
        return []
    columns = [name for name in COLUMN_TITLES if any(whose.column == name for whose in efforts)]
    models = dict.fromkeys((whose.variant, whose.model) for whose in sorted(efforts))
    lines = [
        [
            f"{MODEL_TITLES[model]}, {variant}",
            *(_text(efforts.get(Searched(variant, model, column))) for column in columns),
        ]
        for variant, model in models
    ]
    return [
        Heading("What the searches took"),
        Paragraph(
            "Settings tried, and below them trainings, of all rounds whose trials are kept in "
            "`results/search`. Where nothing stands, settings are published ones, were tried by hand, or are "
            "of the first round, whose trials were lost (see the log)."
        ),
        Grid(["", *(COLUMN_TITLES[column] for column in columns)], lines),
    ]


def _text(effort: Effort | None) -> str:
    return "" if effort is None else f"{effort.settings}\n{effort.trainings}"

"""What the searches for recipes took: the trials of ``trials.jsonl``, counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import COLUMN_TITLES, MODEL_TITLES
from node2seq.reporting.document import Block, Grid, Heading, Paragraph
from node2seq.storage.jsonl import JsonLines


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
            found[whose] = Effort(settings + 1, trainings + line["splits"])
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
            "`results/trials.jsonl`. Where nothing stands, settings are published ones, were tried by hand, "
            "or are of the first round, whose trials were lost (see the log)."
        ),
        Grid(["", *(COLUMN_TITLES[column] for column in columns)], lines),
    ]


def _text(effort: Effort | None) -> str:
    return "" if effort is None else f"{effort.settings}\n{effort.trainings}"

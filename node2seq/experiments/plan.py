"""The declaration → the settings that each cell is trained with; and the declaration as JSON."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from node2seq.experiments.declaration import Line, Protocol
from node2seq.experiments.rows import recipe_to_json
from node2seq.search.space import Settings, stratified
from node2seq.train.settings import Recipe


def draw_settings(protocol: Protocol, line: Line, column: str) -> list[Settings]:
    """The settings that are tried for a line on a column: few shapes, each with several free settings."""
    space = protocol.spaces[line.model, line.variant][column].space
    draw = random.Random(f"{protocol.name} {line.label} {column}")
    shapes = stratified(space.shape, protocol.shapes, draw)
    free = stratified(space.free, protocol.rungs[0].settings, draw)
    return [{**shapes[number % protocol.shapes], **each} for number, each in enumerate(free)]


def recipe_of_setting(protocol: Protocol, line: Line, column: str, settings: Mapping[str, Any]) -> Recipe:
    """How a cell is trained with some settings."""
    return protocol.spaces[line.model, line.variant][column].base.updated(**settings)


def searched_cells(protocol: Protocol) -> list[tuple[Line, str]]:
    """Every line and column whose settings are searched."""
    return [(line, column) for line in protocol.lines if line.searched for column in line.columns]


def declared(protocol: Protocol) -> dict[str, Any]:
    """The whole declaration as JSON values."""
    lines = {}
    for line in protocol.lines:
        spaces = protocol.spaces.get((line.model, line.variant), {})
        lines[line.label] = {
            "model": line.model,
            "variant": line.variant,
            "columns": {
                column: {
                    "fixed": recipe_to_json(spaces[column].base),
                    "searched": {name: repr(known) for name, known in spaces[column].space.ranges.items()},
                }
                if column in spaces
                else "by rule, no search"
                for column in line.columns
            },
        }
    return {
        "name": protocol.name,
        "rungs": [{"settings": rung.settings, "seeds": list(rung.seeds)} for rung in protocol.rungs],
        "shapes": protocol.shapes,
        "trainings of the search for each cell": protocol.trainings_per_cell,
        "chosen by": "the mean over the splits of all rungs of the cross-fitted validation accuracy",
        "stopping": "the epochs and the patience of each cell; no search is extended or repeated",
        "final seeds": list(protocol.final_seeds),
        "lines": lines,
        "studies": {
            study.name: {"changes": dict(study.changes), "columns": list(study.columns)}
            for study in protocol.studies
        },
        "columns with the recipes of others": dict(protocol.further),
        "columns that do not count": list(protocol.uncounted),
    }

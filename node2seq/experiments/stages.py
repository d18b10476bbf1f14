"""The stages: search, choose, measure, ablate. Interrupt any of them; the same call resumes.

All programs of a round are done before those of the next one begin, so an early end leaves whole rounds.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from node2seq.data import Split
from node2seq.environment import git, source_commit
from node2seq.errors import Node2SeqError
from node2seq.experiments.declaration import CellSpace, Line, Protocol
from node2seq.experiments.paper import Cell, Key, Run
from node2seq.experiments.rows import (
    CHOSEN,
    DECLARATION,
    Choice,
    RowStore,
    SearchKey,
    SearchStore,
    Store,
    read_choices,
    recipe_to_json,
    write_choices,
)
from node2seq.experiments.trainer import LARGEST_CLASS, Program
from node2seq.experiments.workers import Job, new_call, work_together
from node2seq.search.space import Settings, stratified
from node2seq.storage import make_folder, write_bytes
from node2seq.train.budget import Budget
from node2seq.train.many import Training, group_by_shape
from node2seq.train.settings import Recipe

Say = Callable[[str], None]

#: Those that train, in their order; ``choose`` comes after the first.
STAGES = ("search", "measure", "ablate")

_TELL_SECONDS = 10.0
# From the largest graph on: the longest programs start first, so that no process is left with one at the end.
_LARGEST = ("squirrel", "amazon-r", "squirrel-unique", "actor", "chameleon", "citeseer-r", "citeseer-f")
# How much longer a step of a model takes than one of a GCN, roughly.
_WEIGHTS = {"lgcn": 8.0, "gat": 5.0, "node2seq": 3.0, "residual-node2seq": 3.0, "cheby": 2.0, "mlp": 0.5}


def declared(protocol: Protocol) -> dict[str, Any]:
    """The whole declaration as JSON values."""
    lines = {}
    for line in protocol.lines:
        columns = {column: _declared_space(protocol.spaces.get(line.cell(column))) for column in line.columns}
        lines[line.label] = {"model": line.model, "variant": line.variant, "columns": columns}
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


def _declared_space(given: CellSpace | None) -> dict[str, Any] | str:
    if given is None:
        return "by rule, no search"
    searched = {name: repr(known) for name, known in given.space.ranges.items()}
    return {"fixed": recipe_to_json(given.base), "searched": searched}


def declare(protocol: Protocol, folder: Path) -> Path:
    """Write the declaration; one that is there already must be the same."""
    path, text = folder / DECLARATION, json.dumps(declared(protocol), indent=1, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise Node2SeqError(
            str(path), "another protocol was declared there", "Give a new protocol a folder of its own"
        )
    make_folder(folder)
    write_bytes(path, text.encode())
    return path


def run_stage(
    protocol: Protocol,
    stage: str,
    folder: Path,
    *,
    device: str = "auto",
    jobs: int = 1,
    graphs: Path | None = None,
    root: str | Path | None = None,
    commit: str | None = None,
    budget_seconds: float | None = None,
    say: Say = lambda _: None,
) -> int:
    """Train what has no row yet, and return how many rows are still missing.

    Args:
        protocol: The protocol.
        stage: One of :data:`STAGES`.
        folder: Where the rows are kept.
        device: ``auto``, ``cpu``, ``cuda`` …
        jobs: How many processes work at once; 1 works in this one.
        graphs: The file of the packed graphs; None: the data sets.
        root: The folder of the data sets; None for the usual places.
        commit: What the rows say of the code; found out if not given.
        budget_seconds: Stop after that time; unfinished programs leave nothing behind.
        say: Told now and then how far it is.
    """
    declare(protocol, folder)
    commit = commit or source_commit()
    check_commit(commit, folder / (DECLARATION if stage == "search" else CHOSEN))
    budget, programs = Budget(budget_seconds), partial(rounds, protocol, stage, folder)
    job = Job(
        programs,
        SearchStore if stage == "search" else RowStore,
        folder,
        device,
        root,
        new_call(budget, jobs, commit),
        budget,
        cure="The page has to say so: a started protocol is finished",
        graphs=graphs,
        note_swaps=True,
    )
    rows = sum(rung.settings for rung in protocol.rungs) * len(protocol.searched)
    if stage != "search":
        rows = sum(len(program.keys) for own in programs() for program in own)
    store, told = job.store(folder), time.monotonic()

    def tell(_: Sequence[object]) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            store.refresh()
            say(f"{stage}: {_count(stage, store)} of {rows} rows, {budget.spent:.0f} s")

    work_together(job, store, tell)
    store.refresh()
    done = _count(stage, store)
    say(f"{stage}: {done} of {rows} rows after {budget.spent:.0f} s")
    return rows - done


def _count(stage: str, store: Store[Any]) -> int:
    """How many rows a stage has: measurements and studies are in one file."""
    return sum(stage == "search" or (key.study == "main") == (stage == "measure") for key in store.rows)


def check_commit(commit: str | None, path: Path) -> None:
    """Refuse to make rows before what governs them is committed."""
    if commit is None or commit.endswith("+"):
        raise Node2SeqError(
            "code without a commit" if commit is None else f"changes since {commit[:7]}",
            "each row of the protocol names the commit that made it",
            "Run it in a checkout without changes, or give --commit",
        )
    if not path.exists():
        raise Node2SeqError(str(path), "there is no such file", "Run the stages before this one")
    if is_held(commit, path) is False:
        raise Node2SeqError(
            str(path), f"the commit {commit[:7]} does not hold it as it is", "Commit it, then make its rows"
        )


def is_held(commit: str, path: Path) -> bool | None:
    """Whether a commit holds a file with its content of now; None where there is no repository to ask."""
    if git(path.parent, "rev-parse", "--git-dir") is None:
        return None
    held = git(path.parent, "rev-parse", f"{commit}:./{path.name}")
    return held is not None and held == git(path.parent, "hash-object", path.name)


def rounds(
    protocol: Protocol, stage: str, folder: Path, _device: torch.device | None = None
) -> Iterator[list[Program]]:
    """The programs of a stage, round by round, whatever the device; each when the one before it is done."""
    if stage == "search":
        for rung in range(1, len(protocol.rungs) + 1):
            store = SearchStore(folder)
            yield _longest_first(
                program
                for line, column in protocol.searched
                for program in _search_programs(protocol, store, line, column, rung)
            )
        return
    choices = {cell: choice.trained_with for cell, choice in read_choices(folder).items()}
    for cells in _final_cells(protocol, choices) if stage == "measure" else [_study_cells(protocol, choices)]:
        yield _longest_first(
            Program(tuple(Run(Key(*cell, seed), recipe) for seed in protocol.final_seeds))
            for cell, recipe in cells.items()
        )


def rung_keys(protocol: Protocol, store: SearchStore, line: Line, column: str, rung: int) -> list[SearchKey]:
    """The settings of a cell in a round: all that were drawn, then the best of those before."""
    if rung == 1:
        numbers = range(protocol.rungs[0].settings)
    else:
        before = rung_keys(protocol, store, line, column, rung - 1)
        numbers = [key.setting for key in store.ranked(before)[: protocol.rungs[rung - 1].settings]]
    return [SearchKey(line.model, line.variant, column, rung, number) for number in numbers]


def choose(protocol: Protocol, folder: Path) -> Path:
    """Write the recipe of each cell; the search has to be finished."""
    store, choices = SearchStore(folder), []
    for line, column in protocol.searched:
        try:
            keys = rung_keys(protocol, store, line, column, len(protocol.rungs))
            best = store.ranked(keys)[0]
        except KeyError:
            raise Node2SeqError(
                f"{line.label} on {column}",
                "its search is not finished",
                "Run the stage `search` to resume it",
            ) from None
        figures = store.figures(best)
        recipe = protocol.spaces[line.cell(column)].base.updated(**store.rows[best].settings)
        mean = round(sum(figures) / max(len(figures), 1), 6)
        of = (line.model, line.variant, column, best.setting)
        choices.append(Choice(*of, mean, recipe_to_json(recipe)))
    write_choices(folder, choices)
    return folder / CHOSEN


def draw_settings(protocol: Protocol, line: Line, column: str) -> list[Settings]:
    """The settings that are tried for a line on a column: few shapes, each with several free settings."""
    space = protocol.spaces[line.cell(column)].space
    draw = random.Random(f"{protocol.name} {line.label} {column}")
    shapes = stratified(space.shape, protocol.shapes, draw)
    free = stratified(space.free, protocol.rungs[0].settings, draw)
    return [{**shapes[number % protocol.shapes], **each} for number, each in enumerate(free)]


def _search_programs(
    protocol: Protocol, store: SearchStore, line: Line, column: str, rung: int
) -> list[Program]:
    """A program for each shape among the settings of a cell in a round."""
    drawn = draw_settings(protocol, line, column)
    base = protocol.spaces[line.cell(column)].base
    keys = sorted(rung_keys(protocol, store, line, column, rung))
    none = torch.empty(0, dtype=torch.int64)
    nowhere = Split(none, none, none, "none", 0, none)  # shapes do not depend on it
    recipes = [base.updated(**drawn[key.setting]) for key in keys]
    shapes = group_by_shape([Training(line.model, recipe, nowhere, 0, cross_fit=True) for recipe in recipes])
    runs = [Run(key, recipe, drawn[key.setting]) for key, recipe in zip(keys, recipes, strict=True)]
    seeds = protocol.rungs[rung - 1].seeds
    return [Program(tuple(runs[place] for place in places), seeds) for places in shapes]


Choices = Mapping[Cell, Recipe]


def _final_cells(protocol: Protocol, choices: Choices) -> list[dict[Cell, Recipe | None]]:
    """The cells of all lines with their recipes (None: by rule), then those of the further columns."""
    found: list[dict[Cell, Recipe | None]] = []
    for columns in ({column: column for column in protocol.columns}, protocol.further):
        found.append(
            {
                line.cell(column): choices[line.cell(own)] if line.searched else None
                for line in protocol.lines
                for column, own in columns.items()
                if own in line.columns
            }
        )
    model, variant = LARGEST_CLASS
    columns = (*protocol.columns, *protocol.further)
    return [found[0] | {Cell(model, column, variant): None for column in columns}, found[1]]


def _study_cells(protocol: Protocol, choices: Choices) -> dict[Cell, Recipe | None]:
    return {
        study.cell(column): choices[protocol.ours.cell(column)].updated(**study.changes)
        for study in protocol.studies
        for column in study.columns
    }


def _longest_first(programs: Iterable[Program]) -> list[Program]:
    return sorted(programs, key=_cost, reverse=True)


def _cost(program: Program) -> float:
    """About how long a program takes beside others."""
    key, recipe = program.runs[0].key, program.runs[0].recipe
    runs = len(program.runs) * max(len(program.seeds), 1)
    place = _LARGEST.index(key.column) if key.column in _LARGEST else len(_LARGEST)
    weight = _WEIGHTS.get(key.model, 1.0) * (1 + len(_LARGEST) - place) * runs
    if recipe is not None:
        weight *= recipe.settings.views * (3.0 if recipe.options.get("hops", 1) > 1 else 1.0)
    return weight

"""The stages: search, choose, measure, ablate. Interrupt any of them; the same call resumes.

All programs of a round are done before those of the next one begin, so an early end leaves whole rounds.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from node2seq.data import Split
from node2seq.environment import pick_device, source_commit
from node2seq.errors import Node2SeqError
from node2seq.experiments.cell_trainer import ReproduceCall
from node2seq.experiments.commits import is_held
from node2seq.experiments.declaration import Line, Protocol
from node2seq.experiments.plan import declared, draw_settings, recipe_of_setting, searched_cells
from node2seq.experiments.protocol_trainer import LARGEST_CLASS, FinalProgram, SearchProgram
from node2seq.experiments.protocol_workers import Job, Program, work_together
from node2seq.experiments.rows import recipe_to_json
from node2seq.experiments.search_rows import (
    CHOSEN,
    DECLARATION,
    Choice,
    SearchKey,
    SearchStore,
    read_choices,
    write_choices,
)
from node2seq.storage import make_folder, write_bytes
from node2seq.train.budget import Budget
from node2seq.train.many import Training, group_by_shape

Say = Callable[[str], None]

#: Those that train, in their order; ``choose`` comes after the first.
STAGES = ("search", "measure", "ablate")


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
    pick_device(device)  # says at once what is wrong with it
    budget = Budget(budget_seconds)
    call = ReproduceCall(uuid.uuid4().hex[:12], budget.started, jobs, commit)
    job = Job(protocol, stage, folder, device, graphs, root, call, budget)
    rows = sum(rung.settings for rung in protocol.rungs) * len(searched_cells(protocol))
    if stage != "search":
        rows = sum(len(program.keys) for programs in rounds(job) for program in programs)
    return work_together(job, rounds, rows, say)


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


def rounds(job: Job) -> Iterator[list[Program]]:
    """The programs of a stage, round by round; each round is asked for when the one before it is done."""
    protocol, folder = job.protocol, job.folder
    if job.stage == "search":
        for rung in range(1, len(protocol.rungs) + 1):
            store = SearchStore(folder)
            yield [
                program
                for line, column in searched_cells(protocol)
                for program in _search_programs(protocol, store, line, column, rung)
            ]
    elif job.stage == "measure":
        yield [*_final_programs(protocol, folder), *_largest_class(protocol)]
        yield _final_programs(protocol, folder, further=True)
    else:
        yield _study_programs(protocol, folder)


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
    for line, column in searched_cells(protocol):
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
        recipe = recipe_of_setting(protocol, line, column, store.rows[best].settings)
        mean = round(sum(figures) / max(len(figures), 1), 6)
        of = (line.model, line.variant, column, best.setting)
        choices.append(Choice(*of, mean, recipe_to_json(recipe)))
    write_choices(folder, choices)
    return folder / CHOSEN


def _search_programs(
    protocol: Protocol, store: SearchStore, line: Line, column: str, rung: int
) -> list[Program]:
    """A program for each shape among the settings of a cell in a round."""
    drawn, seeds = draw_settings(protocol, line, column), protocol.rungs[rung - 1].seeds
    numbers = sorted(key.setting for key in rung_keys(protocol, store, line, column, rung))
    recipes = [recipe_of_setting(protocol, line, column, drawn[number]) for number in numbers]
    none = torch.empty(0, dtype=torch.int64)
    nowhere = Split(none, none, none, "none", 0, none)  # shapes do not depend on it
    shapes = group_by_shape([Training(line.model, recipe, nowhere, 0, cross_fit=True) for recipe in recipes])
    return [
        SearchProgram(
            line, column, rung, tuple((numbers[place], drawn[numbers[place]]) for place in places), seeds
        )
        for places in shapes
    ]


def _final_programs(protocol: Protocol, folder: Path, further: bool = False) -> list[Program]:
    choices, found = read_choices(folder), []
    for line in protocol.lines:
        pairs = {column: column for column in line.columns}
        if further:
            pairs = {extra: own for extra, own in protocol.further.items() if own in line.columns}
        for column, own in pairs.items():
            recipe = choices[line.model, line.variant, own].trained_with if line.searched else None
            of = (line.model, line.variant, column, "main")
            found.append(FinalProgram(*of, protocol.final_seeds, recipe))
    return found


def _largest_class(protocol: Protocol) -> list[Program]:
    columns = (*protocol.columns, *protocol.further)
    return [
        FinalProgram(*LARGEST_CLASS, column, "main", protocol.final_seeds, recipe=None) for column in columns
    ]


def _study_programs(protocol: Protocol, folder: Path) -> list[Program]:
    choices = read_choices(folder)
    return [
        FinalProgram(
            "node2seq",
            "paper",
            column,
            study.name,
            protocol.final_seeds,
            choices["node2seq", "paper", column].trained_with.updated(**study.changes),
        )
        for study in protocol.studies
        for column in study.columns
    ]

"""Many trainings by several processes on one store. Interrupt it at any time; the same call resumes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from node2seq.data import DATASETS, NAMES
from node2seq.environment import pick_device, source_commit
from node2seq.errors import Node2SeqError
from node2seq.experiments.cell_trainer import CellTrainer, ReproduceCall
from node2seq.experiments.cells import Cell, Key, Run, recipe_of
from node2seq.experiments.rows import ResultRow, RowStore
from node2seq.train.budget import Budget, OutOfTime

OnRows = Callable[[Sequence[ResultRow]], None]

_POLL_SECONDS = 0.2
_CPU_NODES = 1000
_CPU_TOGETHER = 5


@dataclass(frozen=True)
class ReproduceJob:
    """What the workers of one call do; the same for all of them.

    Args:
        runs: The trainings.
        folder: Where the rows are kept.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``; with ``cuda``, workers take turns with the GPUs.
        root: The folder of the data sets; None for the usual places.
        call: What the rows say of this call.
        budget: When to stop; unfinished trainings leave nothing behind.
    """

    runs: tuple[Run, ...]
    folder: str
    device: str
    root: str | Path | None
    call: ReproduceCall
    budget: Budget


def reproduce(
    runs: Sequence[Run],
    folder: str,
    *,
    device: str = "auto",
    jobs: int = 1,
    budget_seconds: float | None = None,
    root: str | Path | None = None,
    commit: str | None = None,
    on_rows: OnRows = lambda _: None,
) -> int:
    """Do the trainings that have no row yet, and return how many are still missing.

    Args:
        runs: The trainings.
        folder: Where the rows are kept.
        device: See :class:`ReproduceJob`.
        jobs: How many processes work at once; 1 works in this one.
        budget_seconds: Stop after that time.
        root: See :class:`ReproduceJob`.
        commit: What the rows say of the code; found out if not given.
        on_rows: Called with new rows as they arrive, whichever process made them.
    """
    if jobs < 1:
        raise Node2SeqError(f"jobs={jobs}", "at least one process has to work", "Give 1 or more")
    store = RowStore(folder)
    check_recipes(store, runs)
    todo = tuple(run for run in runs if run.key not in store.rows)
    if todo:
        pick_device(device)  # says at once what is wrong with it
        budget = Budget(budget_seconds)
        call = ReproduceCall(
            uuid.uuid4().hex[:12], budget.started, min(jobs, len(todo)), commit or source_commit()
        )
        job = ReproduceJob(todo, str(folder), device, root, call, budget)
        if call.jobs == 1:
            work(job, 0, on_row=lambda row: on_rows([row]))
        else:
            _work_together(job, store, on_rows)
    store.refresh()
    return sum(run.key not in store.rows for run in runs)


def check_recipes(store: RowStore, runs: Sequence[Run]) -> None:
    """Refuse to mix rows of the current recipes with rows of earlier ones."""
    stale = stale_keys(store, runs)
    if stale:
        raise Node2SeqError(
            f"{store.path}: {len(stale)} rows, the first of them {stale[0].cell}, seed {stale[0].seed}",
            "the recipe has changed since they were made, and no row is made twice",
            "Move them to retired.jsonl with --retire, and they are made again",
        )


def stale_keys(store: RowStore, runs: Sequence[Run]) -> list[Key]:
    """The keys of rows that were made with another recipe than the current one."""
    return [run.key for run in runs if run.key in store.rows and not store.rows[run.key].is_of(run.recipe)]


def orphaned_keys(store: RowStore, cells: Sequence[Cell]) -> list[Key]:
    """The keys of earlier rows beside ``cells`` that no run replaces: of options that a recipe lost since."""
    known, whose = set(cells), {(cell.model, cell.column, cell.variant) for cell in cells}
    return [
        key
        for key, row in store.rows.items()
        if key.cell not in known
        and (key.model, key.column, key.variant) in whose
        and not row.is_of(recipe_of(key.cell))
    ]


def work(job: ReproduceJob, number: int, on_row: Callable[[ResultRow], None] = lambda _: None) -> None:
    """Train what no other worker trains until nothing is left or the budget is spent.

    Args:
        job: What to do.
        number: Which of the workers this is.
        on_row: Called with each row that this worker has made.
    """
    device = _device_of(job.device, number)
    threads = torch.get_num_threads()
    store, trainer = RowStore(job.folder), CellTrainer(device, job.root, job.call)
    try:
        # Workers start at different places, so that they do not all ask for the same claims.
        groups = groups_of(job.runs, device)
        start = number * len(groups) // job.call.jobs
        todo = [*groups[start:], *groups[:start]]
        while todo := [group for group in todo if any(run.key not in store.rows for run in group)]:
            trained = [_train_unclaimed(group, store, trainer, job.budget, on_row) for group in todo]
            if not any(trained):  # others work on what is left; should one of them die, it is taken over
                time.sleep(_POLL_SECONDS)
    except OutOfTime:
        return
    finally:
        torch.set_num_threads(threads)


def _train_unclaimed(
    group: Sequence[Run],
    store: RowStore,
    trainer: CellTrainer,
    budget: Budget,
    on_row: Callable[[ResultRow], None],
) -> bool:
    """Train the runs of a group that no other worker has claimed; False if there is none."""
    budget.check()
    with ExitStack() as claims:
        ours = [run for run in group if claims.enter_context(store.claim(run.key))]
        if not ours:
            return False
        rows, failures = trainer.train(ours, on_epoch=budget.check)
        for row in rows:
            if store.append(row):
                on_row(row)
        for key, reason in failures.items():
            raise Node2SeqError(f"{key.cell}, seed {key.seed}", reason, "Change its recipe")
    return True


def together_on(device: torch.device, column: str) -> int | None:
    """How many runs of a cell to train as one program; None: all of them.

    A GPU is idle but for the many. On a processor only the smallest graphs leave most of the time to what
    surrounds the sums; elsewhere a row is rather kept as soon as it is made.
    """
    if device.type == "cuda":
        return None
    return _CPU_TOGETHER if DATASETS[NAMES[column].dataset].facts.nodes <= _CPU_NODES else 1


def groups_of(runs: Sequence[Run], device: torch.device) -> list[tuple[Run, ...]]:
    """The runs that are trained as one program, in the order they come in."""
    by_cell: dict[Cell, list[Run]] = {}
    for run in runs:
        by_cell.setdefault(run.key.cell, []).append(run)
    groups = []
    for cell, own in by_cell.items():
        size = together_on(device, cell.column) or len(own)
        groups += [tuple(own[i : i + size]) for i in range(0, len(own), size)]
    return groups


def _device_of(name: str, number: int) -> torch.device:
    device = pick_device(name)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", number % torch.cuda.device_count())
    return device


def _work_together(job: ReproduceJob, store: RowStore, on_rows: OnRows) -> None:
    """Start the workers, pass on their rows, and leave no worker behind."""

    def look() -> None:
        if rows := store.refresh():
            on_rows(rows)

    workers = start_together(_work_in_process, [(job, number) for number in range(job.call.jobs)], look)
    look()
    check_some_ended_well(workers)


def start_together(
    target: Callable[..., None],
    arguments: Sequence[tuple[Any, ...]],
    look: Callable[[], None],
    is_overdue: Callable[[], bool] = lambda: False,
) -> list[BaseProcess]:
    """Run a function in as many processes as there are arguments, until all have ended; none is left behind.

    Args:
        target: A function of a module, for other processes to find.
        arguments: Of each process.
        look: Called again and again meanwhile.
        is_overdue: Whether to end those that still run.
    """
    # A fresh interpreter each: a forked one can use neither CUDA nor the thread pools of this one.
    context = multiprocessing.get_context("spawn")
    workers: list[BaseProcess] = [context.Process(target=target, args=given) for given in arguments]
    try:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers) and not is_overdue():
            time.sleep(_POLL_SECONDS)
            look()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
        for worker in workers:
            if worker.pid is not None:
                worker.join()
    return workers


def check_some_ended_well(workers: Sequence[BaseProcess]) -> None:
    """Raise an error if every process failed; what one of them left, the others took over."""
    failed = [worker.exitcode for worker in workers if worker.exitcode]
    if len(failed) == len(workers):
        raise Node2SeqError(
            f"all {len(failed)} workers ended with status {failed[0]}",
            "the rows that were made before are kept",
            "See their messages above; run the same command to resume",
        )


def _work_in_process(job: ReproduceJob, number: int) -> None:
    end_with_parent()
    work(job, number)


def end_with_parent() -> None:
    """Have this process end when the one that started it does, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

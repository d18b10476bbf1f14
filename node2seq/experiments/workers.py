"""Many trainings by several processes on one store. Interrupt it at any time; the same call resumes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from node2seq.data import DATASETS, NAMES
from node2seq.environment import pick_device, source_commit
from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import Cell, Key, Run, grouped, recipe_of
from node2seq.experiments.rows import RowStore, Store
from node2seq.experiments.trainer import CellTrainer, Program, ReproduceCall
from node2seq.train.budget import Budget, OutOfTime

OnRows = Callable[[Sequence[Any]], None]
#: The programs for a device, round by round; each round is asked for when the one before it is done.
Rounds = Callable[[torch.device], Iterable[Sequence[Program]]]

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 15.0
_CPU_NODES = 1000
_CPU_TOGETHER = 5


@dataclass(frozen=True)
class Job:
    """What the processes of one call do; the same for all of them.

    Args:
        rounds: The programs; a function of a module with its arguments, for other processes to find.
        store: Of what kind of rows.
        folder: Where the rows are kept.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``; with ``cuda``, workers take turns with the GPUs.
        root: The folder of the data sets; None for the usual places.
        call: What the rows say of this call.
        budget: When to stop; unfinished trainings leave nothing behind.
        cure: What to do about a run that fails.
        graphs: The file of the packed graphs; None: the data sets.
        note_swaps: See :class:`CellTrainer`.
    """

    rounds: Rounds
    store: type[Store[Any]]
    folder: Path
    device: str
    root: str | Path | None
    call: ReproduceCall
    budget: Budget
    cure: str
    graphs: Path | None = None
    note_swaps: bool = False


def new_call(budget: Budget, jobs: int, commit: str | None) -> ReproduceCall:
    """A call with a name of its own."""
    return ReproduceCall(uuid.uuid4().hex[:12], budget.started, jobs, commit)


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
        device: See :class:`Job`.
        jobs: How many processes work at once; 1 works in this one.
        budget_seconds: Stop after that time.
        root: See :class:`Job`.
        commit: What the rows say of the code; found out if not given.
        on_rows: Called with new rows as they arrive, whichever process made them.
    """
    if jobs < 1:
        raise Node2SeqError(f"jobs={jobs}", "at least one process has to work", "Give 1 or more")
    store = RowStore(folder)
    if stale := stale_keys(store, runs):
        raise Node2SeqError(
            f"{store.path}: {len(stale)} rows, the first of them {stale[0].cell}, seed {stale[0].seed}",
            "the recipe has changed since they were made, and no row is made twice",
            "Move them to retired.jsonl with --retire, and they are made again",
        )
    todo = tuple(run for run in runs if run.key not in store.rows)
    if todo:
        budget = Budget(budget_seconds)
        call = new_call(budget, min(jobs, len(todo)), commit or source_commit())
        rounds, cure = partial(_one_round, todo), "Change its recipe"
        job = Job(rounds, RowStore, Path(folder), device, root, call, budget, cure)
        work_together(job, store, on_rows)
    store.refresh()
    return sum(run.key not in store.rows for run in runs)


def stale_keys(store: RowStore, runs: Sequence[Run]) -> list[Key]:
    """The keys of rows that were made with another recipe than the current one."""
    return [
        run.key
        for run in runs
        if run.recipe and run.key in store.rows and not store.rows[run.key].is_of(run.recipe)
    ]


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


def work(job: Job, number: int = 0, on_rows: OnRows = lambda _: None) -> None:
    """Train what no other worker trains until nothing is left or the budget is spent.

    Args:
        job: What to do.
        number: Which of the workers this is.
        on_rows: Called with the rows that this worker has made.
    """
    device, threads = _device_of(job.device, number), torch.get_num_threads()
    worker = _Worker(job, device, on_rows)
    try:
        for programs in job.rounds(device):
            worker.finish(programs)
    except OutOfTime:
        return
    finally:
        torch.set_num_threads(threads)
    for key, reason in worker.failures.items():
        raise Node2SeqError(f"{key.cell}, seed {key.seed}", reason, job.cure)


class _Worker:
    """Trains programs on one device, and continues after a run that fails."""

    def __init__(self, job: Job, device: torch.device, on_rows: OnRows) -> None:
        self.job, self.on_rows = job, on_rows
        self.store = job.store(job.folder)
        self.failures: dict[Key, str] = {}
        self._trainer = CellTrainer(device, job.root, job.call, graphs=job.graphs, note_swaps=job.note_swaps)

    def finish(self, programs: Sequence[Program]) -> None:
        """Train programs until each of them has its rows."""
        while programs := [program for program in programs if any(map(self._is_open, program.keys))]:
            trained = [self._train_unclaimed(program) for program in programs]
            if not any(trained):  # others work on what is left; should one of them die, it is taken over
                time.sleep(_POLL_SECONDS)
            self.store.refresh()

    def _is_open(self, key: Any) -> bool:
        return key not in self.store.rows and key not in self.failures

    def _train_unclaimed(self, program: Program) -> bool:
        """Train what no other process has claimed of a program; False if there is nothing."""
        self.job.budget.check()
        with self.store.claim(*program.keys) as claimed:
            ours = [key for key in claimed if self._is_open(key)]
            if ours:
                rows, failures = self._trainer.run(program.only(ours), lambda _: self.job.budget.check())
                self.failures |= failures
                self.on_rows(self.store.append(*rows))
                self._trainer.make_room()
        return bool(ours)


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
    groups = []
    for cell, own in grouped(runs, lambda run: run.key.cell).items():
        size = together_on(device, cell.column) or len(own)
        groups += [tuple(own[i : i + size]) for i in range(0, len(own), size)]
    return groups


def _one_round(runs: Sequence[Run], device: torch.device) -> list[list[Program]]:
    return [[Program(group) for group in groups_of(runs, device)]]


def _device_of(name: str, number: int) -> torch.device:
    device = pick_device(name)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", number % torch.cuda.device_count())
    return device


def work_together(job: Job, store: Store[Any], on_rows: OnRows) -> None:
    """Have as many processes as the call says do a job, pass on their rows, and leave no process behind.

    Args:
        job: What to do.
        store: The rows as this process knows them.
        on_rows: Called with new rows, and now and then without any.
    """
    pick_device(job.device)  # says at once what is wrong with it
    if job.call.jobs == 1:
        work(job, on_rows=on_rows)
        return
    # A fresh interpreter each: a forked one can use neither CUDA nor the thread pools of this one.
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work_in_process, args=(job, n)) for n in range(job.call.jobs)]
    try:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers) and not _is_overdue(job.budget):
            time.sleep(_POLL_SECONDS)
            on_rows(store.refresh())
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
        for worker in workers:
            if worker.pid is not None:
                worker.join()
    on_rows(store.refresh())
    # What one of them left, the others took over.
    failed = [worker.exitcode for worker in workers if worker.exitcode]
    if len(failed) == len(workers) and not _is_overdue(job.budget):
        raise Node2SeqError(
            f"all {len(failed)} workers ended with status {failed[0]}",
            "the rows that were made before are kept",
            "See their messages above; run the same command to resume",
        )


def _is_overdue(budget: Budget) -> bool:
    """Whether processes that look at the clock now and then should have ended long ago."""
    return budget.seconds is not None and budget.spent > budget.seconds + _GRACE_SECONDS


def _work_in_process(job: Job, number: int) -> None:
    end_with_parent()
    torch.set_num_threads(1)
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

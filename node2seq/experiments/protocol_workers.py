"""Several processes on one folder of rows, each training what no other has claimed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from node2seq.environment import pick_device
from node2seq.errors import Node2SeqError
from node2seq.experiments.cell_trainer import ReproduceCall
from node2seq.experiments.declaration import Protocol
from node2seq.experiments.protocol_trainer import FinalProgram, ProtocolTrainer, SearchProgram
from node2seq.experiments.rows import RowStore
from node2seq.experiments.search_rows import SearchStore, claim
from node2seq.experiments.workers import check_some_ended_well, end_with_parent, start_together
from node2seq.train.budget import Budget, OutOfTime

Program = SearchProgram | FinalProgram

_POLL_SECONDS = 0.5
_TELL_SECONDS = 10.0
_GRACE_SECONDS = 15.0
# From the largest graph on: the longest programs start first, so that no process is left with one at the end.
_LARGEST = ("squirrel", "amazon-r", "squirrel-unique", "actor", "chameleon", "citeseer-r", "citeseer-f")


@dataclass(frozen=True)
class Job:
    """What the processes of one call do; the same for all of them.

    Args:
        protocol: The protocol.
        stage: ``search``, ``measure`` or ``ablate``.
        folder: Where the rows are kept.
        device: ``auto``, ``cpu``, ``cuda`` …
        graphs: The file of the packed graphs; None: the data sets.
        root: The folder of the data sets; None for the usual places.
        call: What the rows say of this call.
        budget: When to stop; unfinished programs leave nothing behind.
    """

    protocol: Protocol
    stage: str
    folder: Path
    device: str
    graphs: Path | None
    root: str | Path | None
    call: ReproduceCall
    budget: Budget

    def store(self) -> SearchStore | RowStore:
        """The rows of the stage."""
        return SearchStore(self.folder) if self.stage == "search" else RowStore(self.folder)


Rounds = Callable[[Job], Iterator[list[Program]]]


class Worker:
    """Trains programs on one device.

    Args:
        job: What to do.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.store = job, job.store()
        device = pick_device(job.device)
        self._trainer = ProtocolTrainer(job.protocol, device, job.call, graphs=job.graphs, root=job.root)
        self._failures: dict[str, str] = {}

    def run(self, rounds: Iterable[Sequence[Program]]) -> None:
        """Train what no other process trains until nothing is left or the budget is spent."""
        try:
            for programs in rounds:
                self._finish(sorted(programs, key=_cost, reverse=True))
        except OutOfTime:
            return
        for name, reason in self._failures.items():
            raise Node2SeqError(name, reason, "The page has to say so: a started protocol is finished")

    def _finish(self, programs: Sequence[Program]) -> None:
        while programs := [program for program in programs if self._is_open(program)]:
            trained = [self._train_unclaimed(program) for program in programs]
            if not any(trained):  # others work on what is left; should one of them die, it is taken over
                self.job.budget.check()
                time.sleep(_POLL_SECONDS)
                self.store.refresh()

    def _is_open(self, program: Program) -> bool:
        return _name(program) not in self._failures and not all(k in self.store.rows for k in program.keys)

    def _train_unclaimed(self, program: Program) -> bool:
        """Train a program that no other process has claimed, and that has no rows; whether it was."""
        self.job.budget.check()
        with claim(self.job.folder, _name(program)) as ours:
            if ours:
                self.store.refresh()
            if not ours or not self._is_open(program):
                return False
            self._train(program)
            self._trainer.make_room()
        return True

    def _train(self, program: Program) -> None:
        if isinstance(program, SearchProgram):
            assert isinstance(self.store, SearchStore)
            self.store.append(self._trainer.search(program, self.job.budget.check))
            return
        assert isinstance(self.store, RowStore)
        rows, failed = self._trainer.measure(program, self.job.budget.check)
        for row in rows:
            self.store.append(row)
        self._failures |= {_name(program): reason for reason in failed.values()}


def work_together(job: Job, rounds: Rounds, rows: int, say: Callable[[str], None]) -> int:
    """Have as many processes as the call says do the rounds of a stage; how many rows are missing then.

    Args:
        job: What to do.
        rounds: The programs, round by round; a function of a module, for other processes to find.
        rows: How many there are in the end.
        say: Told now and then how far it is.
    """
    if job.call.jobs == 1:
        Worker(job).run(rounds(job))
    else:
        _watch(job, rounds, rows, say)
    done = len(_own_rows(job))
    say(f"{job.stage}: {done} of {rows} rows after {job.budget.spent:.0f} s")
    return rows - done


def _watch(job: Job, rounds: Rounds, rows: int, say: Callable[[str], None]) -> None:
    """Start the processes, tell how far they are, and leave none behind."""
    told = time.monotonic()

    def tell() -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            say(f"{job.stage}: {len(_own_rows(job))} of {rows} rows, {job.budget.spent:.0f} s")

    workers = start_together(
        _work_in_process, [(job, rounds)] * job.call.jobs, tell, lambda: _is_overdue(job.budget)
    )
    if not _is_overdue(job.budget):
        check_some_ended_well(workers)


def _is_overdue(budget: Budget) -> bool:
    """Whether processes that look at the clock now and then should have ended long ago."""
    return budget.seconds is not None and budget.spent > budget.seconds + _GRACE_SECONDS


def _work_in_process(job: Job, rounds: Rounds) -> None:
    end_with_parent()
    torch.set_num_threads(1)
    Worker(job).run(rounds(job))


def _own_rows(job: Job) -> list[object]:
    """The keys of the stage's rows: measurements and studies are in one file."""
    if job.stage == "search":
        return list(SearchStore(job.folder).rows)
    return [key for key in RowStore(job.folder).rows if (key.study == "main") == (job.stage == "measure")]


def _name(program: Program) -> str:
    return " ".join(map(str, program.keys[0]))


def _cost(program: Program) -> float:
    place = _LARGEST.index(program.column) if program.column in _LARGEST else len(_LARGEST)
    return program.weight * (1 + len(_LARGEST) - place)

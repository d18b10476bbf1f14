"""One search, several processes: which of them are alive, and so which trials were lost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from node2seq.environment import repeating
from node2seq.storage import hold

# How often a process counts on in a database, how many beats another one waits for, and how often it looks.
_BEAT_SECONDS, _BEATS, _LOOKS = 1.0, 10, 5
_WORKER, _FINAL, _BEATING = ".worker-", "final", "worker "


class OthersFinish(Exception):  # noqa: N818 - nothing went wrong
    """There is nothing left to train here; the last of the other processes finishes the search."""


class FolderWorkers:
    """Processes that share a folder: each holds a lock file, which the system releases when it ends.

    ``id`` is the name of this one.

    Args:
        folder: The folder of the search.
    """

    def __init__(self, folder: Path) -> None:
        self.id, self._folder = uuid4().hex[:12], folder

    @contextmanager
    def working(self) -> Iterator[FolderWorkers]:
        """Be one of them."""
        with hold(self._file(self.id), remove=True):
            yield self

    def alive(self, names: Collection[str]) -> set[str]:
        """Which of these other processes are still there."""
        found = set()
        for name in names:
            if self._file(name).exists():
                with hold(self._file(name), remove=True) as ended:
                    found |= set() if ended else {name}
        return found

    def others(self) -> set[str]:
        """All other processes that are there."""
        names = {path.name.removeprefix(_WORKER) for path in self._folder.glob(f"{_WORKER}*")}
        return self.alive(names - {self.id, _FINAL})

    def finishing(self, has_results: bool) -> AbstractContextManager[bool]:  # noqa: ARG002
        """Hold the end of the search, or give False if it is another process's.

        Args:
            has_results: Whether this process knows what came out of it.
        """
        return hold(self._file(_FINAL), remove=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{_WORKER}{name}"


class StudyWorkers:
    """Processes that share a database alone: each counts on there, and one that stops counting has ended.

    Args:
        study: Optuna's study.
        open_study: Gives a study of another name in the same database, and whether it was made just now.
    """

    def __init__(self, study: Any, open_study: Callable[[str], tuple[Any, bool]]) -> None:
        self.id, self._study = uuid4().hex[:12], study
        self._open_study = open_study
        self._gone: set[str] = set()

    @contextmanager
    def working(self) -> Iterator[StudyWorkers]:
        """Be one of them."""
        counts = itertools.count()

        def beat() -> float:
            self._write(next(counts))
            return _BEAT_SECONDS

        beat()
        try:
            with repeating(beat, _BEAT_SECONDS):
                yield self
        finally:
            self._write(None)

    def _write(self, count: int | None) -> None:
        self._study.set_user_attr(f"{_BEATING}{self.id}", count)

    def alive(self, names: Collection[str]) -> set[str]:  # noqa: D102
        def counts() -> dict[str, Any]:
            attributes = self._study.user_attrs
            return {name: attributes.get(f"{_BEATING}{name}") for name in names}

        names = set(names) - self._gone
        names = {name for name, count in counts().items() if count is not None}
        first, found = counts(), set[str]()
        for _ in range(_BEATS * _LOOKS if names else 0):
            time.sleep(_BEAT_SECONDS / _LOOKS)
            found |= {name for name, count in counts().items() if count != first[name]}
            if len(found) == len(names):
                break
        self._gone |= names - found
        return found

    def others(self) -> set[str]:  # noqa: D102
        keys = [key for key in self._study.user_attrs if key.startswith(_BEATING)]
        return self.alive({key.removeprefix(_BEATING) for key in keys} - {self.id})

    @contextmanager
    def finishing(self, has_results: bool) -> Iterator[bool]:  # noqa: D102
        # A name can be taken once: who makes this study finishes the search, unless that process was killed.
        final, is_new = self._open_study(f"{self._study.study_name} {_FINAL}")
        if not is_new:
            time.sleep(_BEAT_SECONDS)  # perhaps made just now: the name follows
            is_done = "done" in final.user_attrs and not has_results
            if is_done or self.alive({final.user_attrs.get("worker", "")} - {self.id}):
                yield False
                return
        final.set_user_attr("worker", self.id)
        yield True
        final.set_user_attr("done", True)


Workers = FolderWorkers | StudyWorkers


def lost_trials(running: Callable[[], list[Any]], workers: Workers) -> list[Any]:
    """The running trials whose process has ended.

    Args:
        running: Gives optuna's running trials.
        workers: The processes.
    """
    trials = running()
    if any("worker" not in trial.user_attrs for trial in trials):
        time.sleep(1.0)  # just asked for: the name follows
        trials = running()
    owners = {trial.user_attrs.get("worker") for trial in trials}
    kept = workers.alive(sorted(owners - {None, workers.id})) | {workers.id}
    return [trial for trial in trials if trial.user_attrs.get("worker") not in kept]

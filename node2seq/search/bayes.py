"""The search with optuna: its sampler learns from all trials, a generation of which is one program.

Optuna keeps a journal beside the trials, or its tables in a database. Several processes may work on one
search: each asks for trials of its own. What a killed process had asked for is trained first on resume.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from node2seq.errors import Node2SeqError
from node2seq.search.evaluate import Evaluator
from node2seq.search.settings import SearchSettings
from node2seq.search.sharing import FolderWorkers, OthersFinish, StudyWorkers, Workers, lost_trials
from node2seq.search.space import Choice, Range, Settings
from node2seq.search.trials import Trial, Trials
from node2seq.storage import JsonLines, hold

if TYPE_CHECKING:
    import optuna

Generation = list[tuple[Trial, "optuna.trial.Trial"]]

# A trial is judged from a fifth of its epochs on: before that, slow starters look like bad ones.
_GRACE = 0.2
# The median of fewer says little.
_WHOLE_TRIALS = 4


@dataclass(frozen=True)
class Bayes(SearchSettings):
    """Trials proposed by optuna's TPE sampler and cut short by its median pruner.

    Args:
        batch: Trials of a generation. They share their shapes, so that they are one program.
    """

    batch: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least(batch=1)
        import_optuna()

    @classmethod
    def in_proportion(cls, trials: int, **given: Any) -> Self:  # noqa: D102
        # The sampler and the pruner learn between generations: a short search has several, too.
        return super().in_proportion(trials, **{"batch": min(8, max(1, trials // 4))} | given)


def search_with_optuna(
    settings: Bayes, start: Trial, evaluator: Evaluator, storage: str | None = None
) -> Trial:
    """Search, and return the best trial.

    Args:
        settings: How much.
        start: The trial to begin with.
        evaluator: Trains trials and keeps their results.
        storage: The database of the study; None: a journal beside the trials.

    Raises:
        OthersFinish: If other processes still train the last trials.
    """
    study = _OptunaStudy(settings, start.settings, evaluator, storage)
    with study.workers.working():
        study.begin()
        study.finished()
        generation = study.unfinished() or study.generation()
        if generation and generation[0][0] is not start and study.is_alone:
            # It lies outside of the space, and the sampler does not know it.
            evaluator.train([start], settings.seeds)
        while generation:
            study.train(generation)
            study.finished()  # what other processes found meanwhile
            generation = study.generation() or study.unfinished()
        has_results = not start.accuracies.keys().isdisjoint(settings.final_seeds)
        with study.workers.finishing(has_results) as ours:
            if study.running() or not ours:
                raise OthersFinish
            pool = study.finished()
            evaluator.train([start], settings.seeds)
            return evaluator.train_finalists(pool, start, settings)


class _OptunaStudy:
    """Optuna's study in a journal, in the terms of this package."""

    def __init__(
        self, settings: Bayes, start: Settings, evaluator: Evaluator, url: str | None = None
    ) -> None:
        self.settings, self.space, self.evaluator = settings, evaluator.space, evaluator
        self._states = import_optuna().trial.TrialState
        space = self.space
        self.ranges = {name: _distribution(known) for name, known in space.ranges.items()}
        self.study, self._is_new, self.workers = _open_study(evaluator.trials, url)
        self._inside = {name: known.at(known.place_of(start[name])) for name, known in space.ranges.items()}
        self.is_alone = self._is_new

    def begin(self) -> None:
        """Set up what proposes trials, when this process is known to others."""
        optuna, settings = import_optuna(), self.settings
        known = len(self.study.get_trials(deepcopy=False))
        self.is_alone = self._is_new or not self.workers.others()
        # Another seed on resume, because the same would propose the first trials again; and in each process.
        seed = settings.seed + known + (0 if self.is_alone else int(self.workers.id, 16) % 2**31)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self.study.sampler = optuna.samplers.TPESampler(
                seed=seed,
                n_startup_trials=2 * settings.batch,
                multivariate=True,
                constant_liar=True,
            )
        self.study.pruner = optuna.pruners.MedianPruner(
            n_startup_trials=max(_WHOLE_TRIALS, settings.batch),
            n_warmup_steps=round(_GRACE * self.evaluator.base.settings.epochs),
        )
        if self._is_new:
            self.study.enqueue_trial({name: self._asked(name, value) for name, value in self._inside.items()})

    def finished(self) -> list[Trial]:
        """The trials that were finished by now, in any process."""
        self.evaluator.trials.refresh()
        ended = self._trials("COMPLETE", "PRUNED")
        found = [self._trial(one.params, "before") for one in ended]
        for trial, one in zip(found, ended, strict=True):
            for seed, (value, epoch) in one.user_attrs.get("results", {}).items():
                if int(seed) not in trial.accuracies:
                    trial.accuracies[int(seed)], trial.epochs[int(seed)] = value, epoch
                    trial.pruned |= one.user_attrs["pruned"]
        return found

    def train(self, generation: Generation) -> None:
        """Train trials, and tell the sampler and other processes what became of them."""
        trial, settings = generation[0][0], self.settings
        about = f"{len(generation)} setting{'' if len(generation) == 1 else 's'}"
        about = "the default" if trial.number == 0 else about
        self.evaluator.say(f"{trial.stage} of {settings.trials}: {about}, on {len(settings.seeds)} splits")
        asked = {trial.number: question for trial, question in generation}

        def prune(trial: Trial, epoch: int, mean: float) -> bool:
            asked[trial.number].report(mean, epoch)
            return bool(asked[trial.number].should_prune())  # numpy's otherwise

        self.evaluator.train([trial for trial, _ in generation], settings.seeds, prune)
        for trial, question in generation:
            results = {str(seed): (value, trial.epochs[seed]) for seed, value in trial.accuracies.items()}
            question.set_user_attr("results", results)
            question.set_user_attr("pruned", trial.pruned)
            # One that failed counts as cut short, so that the sampler keeps away from it.
            if math.isfinite(value := trial.mean(settings.seeds)):
                self.study.tell(question, value)
            else:
                self.study.tell(question, state=self._states.PRUNED)

    def _trials(self, *states: str) -> list[Any]:
        return self.study.get_trials(deepcopy=False, states=tuple(self._states[name] for name in states))

    def running(self) -> list[Any]:
        """What is being trained, here or in another process."""
        return self._trials("RUNNING")

    def unfinished(self) -> Generation:
        """The trials that a killed process had asked for, asked for again."""
        taken = 0
        for one in lost_trials(self.running, self.workers):
            with suppress(ValueError, RuntimeError):  # another process may be faster
                self.study.tell(one.number, state=self._states.FAIL)
                self.study.enqueue_trial(one.params)
                taken += 1
        asked = (self._ask("taken up") for _ in range(taken))
        return [pair for pair in asked if pair is not None]

    def generation(self) -> Generation:
        """As many new trials as one program takes, or as are left; at first the start alone."""
        done = len(self._trials("COMPLETE", "PRUNED"))
        left = self.settings.trials - done - len(self.running())
        found: Generation = []
        shape: Settings = {}
        if done == 1:  # the second generation has the shapes of the start
            shape = {name: self._asked(name, self._inside[name]) for name in self.space.shape}
        for _ in range(min(self.settings.batch if done else 1, left)):
            if found:
                shape = {name: found[0][1].params[name] for name in self.space.shape}
            if shape:
                self.study.enqueue_trial(shape)
            asked = self._ask(f"trials from {done}" if done else "start")
            if asked is None:
                break
            found.append(asked)
        return found

    def _ask(self, stage: str) -> tuple[Trial, optuna.trial.Trial] | None:
        """A new trial, or None if other processes have asked for the last ones."""
        question = self.study.ask(self.ranges)
        question.set_user_attr("worker", self.workers.id)
        before = self._trials("COMPLETE", "PRUNED", "RUNNING")
        if sum(one.number < question.number for one in before) >= self.settings.trials:
            self.study.tell(question, state=self._states.FAIL)
            return None
        return self._trial(question.params, stage), question

    def _trial(self, params: dict[str, Any], stage: str) -> Trial:
        settings = {
            name: value if isinstance(known := self.space.ranges[name], Choice) else known.at(value)
            for name, value in params.items()
        }
        return self.evaluator.trials.trial({name: settings[name] for name in self.space.ranges}, stage)

    def _asked(self, name: str, value: Any) -> Any:
        known = self.space.ranges[name]
        return value if isinstance(known, Choice) else known.place_of(value)


def _open_study(trials: Trials, url: str | None) -> tuple[optuna.study.Study, bool, Workers]:
    """The study of a search, whether it was made just now, and the processes that share it.

    Of several processes, one makes it.
    """
    optuna = import_optuna()
    # One database may hold many searches.
    name = "node2seq" if url is None else f"node2seq {trials.digest[:16]}"
    if url is None:
        journal: Any = _Journal(*journal_files(trials.path))
        storage = optuna.storages.JournalStorage(journal)
    else:
        storage = _open_database(url)

    def open_study(name: str) -> tuple[optuna.study.Study, bool]:
        with suppress(optuna.exceptions.DuplicatedStudyError):
            return optuna.create_study(storage=storage, study_name=name, direction="maximize"), True
        return optuna.load_study(storage=storage, study_name=name), False

    study, is_new = open_study(name)
    folder = FolderWorkers(trials.path.parent)
    return study, is_new, folder if url is None else StudyWorkers(study, open_study)


class _Journal:
    """Optuna's record of a study, as it takes it from any backend.

    Its own files cannot be read any more after a write that was cut off, by a full disk or a kill; and its
    own lock outlives a killed process, so that others wait forever.
    """

    def __init__(self, file: Path, lock: Path) -> None:
        self._lines, self._lock = JsonLines(file), lock
        self._logs: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The entries from this one on, by whichever process."""
        found, from_start = self._lines.refresh()
        if from_start:
            self._logs = []
        self._logs += found
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add entries, all or none."""
        with hold(self._lock, wait=True):
            self._lines.append(logs)


def _open_database(url: str, attempts: int = 3) -> Any:
    try:
        return import_optuna().storages.RDBStorage(url)
    except Exception as error:  # of the database's own driver, by any name
        if attempts > 1:
            time.sleep(1.0)  # another process may be making the tables
            return _open_database(url, attempts - 1)
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise Node2SeqError(
            f"--storage {hide_password(url)}",
            f"the database cannot be opened ({said[0].rstrip('.')})",
            "Check the address, and install its driver: `pip install 'node2seq[postgres]'` for PostgreSQL",
        ) from error


def hide_password(url: str) -> str:
    """An address that can be shown."""
    return re.sub(r"(://[^:@/]*):[^@/]*@", r"\1:…@", url)


def journal_files(trials: Path) -> tuple[Path, Path]:
    """Where optuna keeps its own record, and the lock for writing to it."""
    return trials.with_suffix(".journal"), trials.with_name(".journal-lock")


def import_optuna() -> Any:
    """Optuna, or an error that says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise Node2SeqError(
            "the sampler bayes",
            "it needs optuna, which is not installed",
            "Run `pip install 'node2seq[tune]'`, or take --sampler halving",
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _distribution(known: Range) -> Any:
    """Choices as they are; numbers by their place in the range, where equal steps matter equally."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return CategoricalDistribution(known.values) if isinstance(known, Choice) else FloatDistribution(0.0, 1.0)

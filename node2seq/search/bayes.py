"""The search with optuna: its sampler learns from all trials, a generation of which is one program.

Optuna keeps a journal beside the trials. What a killed process had asked for is trained first on resume.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from node2seq.errors import Node2SeqError
from node2seq.search.evaluate import Evaluator
from node2seq.search.settings import SearchSettings
from node2seq.search.space import Choice, Range, Settings
from node2seq.search.trials import Trial

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


def search_with_optuna(settings: Bayes, start: Trial, evaluator: Evaluator) -> Trial:
    """Search, and return the best trial.

    Args:
        settings: How much.
        start: The trial to begin with.
        evaluator: Trains trials and keeps their results.
    """
    study = _OptunaStudy(settings, start.settings, evaluator)
    pool = study.finished()
    generation = study.unfinished() or study.generation()
    if generation and generation[0][0] is not start:
        # It lies outside of the space, and the sampler does not know it.
        evaluator.train([start], settings.seeds)
    while generation:
        _train(generation, settings, evaluator, study)
        pool += [trial for trial, _ in generation]
        generation = study.generation()
    return evaluator.train_finalists(pool, start, settings)


def _train(generation: Generation, settings: Bayes, evaluator: Evaluator, study: _OptunaStudy) -> None:
    from optuna.trial import TrialState

    trial = generation[0][0]
    about = "the default" if trial.number == 0 else f"{len(generation)} settings"
    evaluator.say(f"{trial.stage} of {settings.trials}: {about}, on {len(settings.seeds)} splits")
    asked = {trial.number: question for trial, question in generation}

    def prune(trial: Trial, epoch: int, mean: float) -> bool:
        asked[trial.number].report(mean, epoch)
        return bool(asked[trial.number].should_prune())  # numpy's otherwise

    evaluator.train([trial for trial, _ in generation], settings.seeds, prune)
    for trial, question in generation:
        # One that failed counts as cut short, so that the sampler keeps away from it.
        if math.isfinite(value := trial.mean(settings.seeds)):
            study.study.tell(question, value)
        else:
            study.study.tell(question, state=TrialState.PRUNED)


class _OptunaStudy:
    """Optuna's study in a journal, in the terms of this package."""

    def __init__(self, settings: Bayes, start: Settings, evaluator: Evaluator) -> None:
        optuna = import_optuna()
        self.settings, self.space, self.evaluator = settings, evaluator.space, evaluator
        space = self.space
        self.ranges = {name: _distribution(known) for name, known in space.ranges.items()}
        journal = optuna.storages.journal.JournalFileBackend(str(journal_file(evaluator.trials.path)))
        storage = optuna.storages.JournalStorage(journal)
        self.study = optuna.create_study(
            storage=storage, study_name="node2seq", direction="maximize", load_if_exists=True
        )
        known = len(self.study.get_trials(deepcopy=False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Another seed on resume, because the same would propose the first trials again.
            self.study.sampler = optuna.samplers.TPESampler(
                seed=settings.seed + known,
                n_startup_trials=2 * settings.batch,
                multivariate=True,
                constant_liar=True,
            )
        self.study.pruner = optuna.pruners.MedianPruner(
            n_startup_trials=max(_WHOLE_TRIALS, settings.batch),
            n_warmup_steps=round(_GRACE * evaluator.base.settings.epochs),
        )
        self._inside = {name: known.at(known.place_of(start[name])) for name, known in space.ranges.items()}
        if known == 0:
            self.study.enqueue_trial({name: self._asked(name, value) for name, value in self._inside.items()})

    def finished(self) -> list[Trial]:
        """The trials that earlier processes finished."""
        from optuna.trial import TrialState

        ended = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        return [self._trial(one.params, "before") for one in ended]

    def unfinished(self) -> Generation:
        """The trials that a killed process had asked for, asked for again."""
        from optuna.trial import TrialState

        lost = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for one in lost:
            self.study.tell(one.number, state=TrialState.FAIL)
            self.study.enqueue_trial(one.params)
        return [self._ask("taken up") for _ in lost]

    def generation(self) -> Generation:
        """As many new trials as one program takes, or as are left; at first the start alone."""
        from optuna.trial import TrialState

        done = len(self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))
        found: Generation = []
        shape: Settings = {}
        if done == 1:  # the second generation has the shapes of the start
            shape = {name: self._asked(name, self._inside[name]) for name in self.space.shape}
        for _ in range(min(self.settings.batch if done else 1, self.settings.trials - done)):
            if found:
                shape = {name: found[0][1].params[name] for name in self.space.shape}
            if shape:
                self.study.enqueue_trial(shape)
            found.append(self._ask(f"trials from {done}" if done else "start"))
        return found

    def _ask(self, stage: str) -> tuple[Trial, optuna.trial.Trial]:
        question = self.study.ask(self.ranges)
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


def journal_file(trials: Path) -> Path:
    """Where optuna keeps its own record."""
    return trials.with_suffix(".journal")


def import_optuna() -> Any:
    """Optuna, or an error that says how to get it."""
    try:
        import optuna
        import optuna.storages.journal
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

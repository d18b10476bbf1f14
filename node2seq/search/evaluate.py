"""Trials × seeds → validation accuracies: those of equal shapes as one program.

A trial is trained as for a reported figure: all validation nodes choose the epoch. It is judged by
cross-fitting (:mod:`node2seq.train.cross_fitting`): no node judges an epoch that it helped to choose.
A split's test nodes take no part in its training; on random splits they are training and validation
nodes of other splits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch_geometric.data import Data

from node2seq.data import Split, make_split
from node2seq.recipes import Recipe
from node2seq.search.settings import SearchSettings
from node2seq.search.space import Space
from node2seq.search.trials import Trial, Trials, best_of, most_trusted
from node2seq.train.budget import Budget
from node2seq.train.many import OnProgress, Progress, Training, group_by_shape, train_many
from node2seq.train.metrics import METRIC_TITLES, shown

Say = Callable[[str], None]
Prune = Callable[[Trial, int, float], bool]


@dataclass(frozen=True)
class SearchProgress:
    """How far a program is, and the search that it is part of.

    Args:
        program: Its number, from 1 on, of ``programs``.
        programs: How many are trained in this stage.
        runs: Trainings of the program.
        share: Of their epochs that were trained.
        best: The best trial so far, in words; nothing if there is none.
        seconds_left: An estimate for the whole search; None while nothing is known.
    """

    program: int
    programs: int
    runs: int
    share: float
    best: str = ""
    seconds_left: float | None = None


class SearchStopped(KeyboardInterrupt):
    """The search was asked to stop; what was trained before is kept."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.exit_status = 128 + signal_number  # what a shell says of a process ended by that signal


class Evaluator:
    """Trains trials and keeps what comes out.

    Args:
        data: The graph with features as they are.
        model: A key of ``node2seq.nn.models.MODELS``.
        base: Everything that the settings of a trial do not say.
        space: Tells which settings decide about shapes.
        trials: Where the outcomes are kept.
        device: Where to train.
        rule: How to split; None: as the graph says.
        budget: The time that it may take.
        say: Told a line after each program.
        tell: Told now and then how far a program is.
        keep: Called with the best trial so far when trials were trained.
        planned: Trainings of the whole search, for an estimate of the time left.
        stop: Numbers of the signals that ask for an end; filled while trainings run.
    """

    def __init__(
        self,
        data: Data,
        model: str,
        base: Recipe,
        space: Space,
        trials: Trials,
        *,
        device: torch.device,
        rule: str | None = None,
        budget: Budget,
        say: Say,
        tell: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[Trial | None], object] | None = None,
        planned: int = 0,
        stop: Sequence[int] = (),
    ) -> None:
        self.data, self.model, self.base, self.space, self.trials = data, model, base, space, trials
        self.device, self.rule, self.budget = device, rule, budget
        self.say, self.tell, self.keep, self.planned, self.stop = say, tell, keep, planned, stop
        self._trained = 0  # by this process
        self._shares: list[float] = []  # of its epochs that each program took: some runs end early
        self._share = 0.0  # of the program that is being trained
        self._splits: dict[int, Split] = {}

    def train(self, trials: Sequence[Trial], seeds: Sequence[int], prune: Prune | None = None) -> None:
        """Train each trial with each seed, but for what was trained before.

        Args:
            trials: What to train.
            seeds: The splits.
            prune: Asked now and then, with the trial, the epoch and the mean of the best validation
                accuracies so far, whether to cut it short.
        """
        missing = [(trial, seed) for trial in trials for seed in seeds if seed not in trial.accuracies]
        missing.sort(key=self._order)
        trainings = [self._training(trial, seed) for trial, seed in missing]
        programs = group_by_shape(trainings)
        for number, members in enumerate(programs, start=1):
            self.budget.check()
            self._check_stop()
            before = self.budget.spent
            runs = [missing[place] for place in members]
            watch = self._watch(runs, prune, number, len(programs))
            own = [trainings[place] for place in members]
            outcomes = train_many(self.data, own, device=self.device, on_epoch=watch)
            self.trials.add(
                (trial, seed, outcome) for (trial, seed), outcome in zip(runs, outcomes, strict=True)
            )
            took = self.budget.spent - before
            self.budget.reserve = max(self.budget.reserve, took)
            self._trained += len(runs)
            self._shares.append(self._share)
            if self.keep is not None:
                self.keep(most_trusted(self.trials))
            self.say(
                f"  group {number} of {len(programs)}: {len(runs)} run{'' if len(runs) == 1 else 's'} "
                f"in {took:.1f} s; "
                f"{self.best_so_far()}; {self.budget.spent:.0f} s so far"
            )

    def best_so_far(self) -> str:
        """The best trial and its figure, in words."""
        best = most_trusted(self.trials)
        if best is None:
            return "no result yet"
        metric = self.base.settings.metric
        name = "the default" if best.number == 0 else f"trial {best.number}"
        return f"best so far: {METRIC_TITLES[metric]} {shown(metric, best.mean(), ' %')} ({name})"

    def train_finalists(self, trials: Iterable[Trial], start: Trial, settings: SearchSettings) -> Trial:
        """Train the best and the start on further splits, and return the best, or the start if it stands.

        Args:
            trials: What was tried.
            start: What the others have to beat: on the further splits, too, which chose nothing.
            settings: How much.
        """
        ranked = best_of({t.number: t for t in trials if t is not start}.values(), settings.seeds)
        finalists = ranked[: settings.finalists]
        is_whole = math.isfinite(start.mean(settings.seeds))
        others = f"final: the best {len(finalists)}{' and the default' if is_whole else ''}"
        self.say(f"{others} on {len(settings.final_seeds)} further splits")
        finalists += [start] if is_whole or not finalists else []
        self.train(finalists, settings.final_seeds)
        first = best_of(finalists)[0]
        unseen = settings.final_seeds or settings.seeds
        stands = is_whole and first.mean(unseen) <= start.mean(unseen)
        return start if stands else first

    def _watch(
        self, runs: Sequence[tuple[Trial, int]], prune: Prune | None, number: int, programs: int
    ) -> OnProgress:
        """Turn the progress of runs into that of programs, and into questions about trials."""
        epochs, best = [0] * len(runs), self.best_so_far()

        def on_epoch(progress: Progress) -> list[bool] | None:
            self._check_stop()
            if self.tell is not None:
                for place in progress.members:
                    epochs[place] = progress.epoch
                share = self._share = sum(epochs) / (len(runs) * self.base.settings.epochs)
                left = self._seconds_left(len(runs))
                self.tell(SearchProgress(number, programs, len(runs), share, best, left))
            return None if prune is None else _cut_short(runs, progress, prune)

        return on_epoch

    def _check_stop(self) -> None:
        if self.stop:
            raise SearchStopped(self.stop[0])

    def _seconds_left(self, runs: int) -> float | None:
        """The time that the trainings that are missing take at the pace of this process."""
        if not self._shares:
            return None
        begun = runs * min(1.0, self._share / max(fmean(self._shares), 1e-9))
        missing = self.planned - sum(len(trial.accuracies) for trial in self.trials) - begun
        return self.budget.spent / (self._trained + begun) * max(missing, 0.0)

    def _training(self, trial: Trial, seed: int) -> Training:
        """A trial on the split of a seed without its test nodes."""
        if seed not in self._splits:
            self._splits[seed] = without_test(make_split(self.data, self.rule, seed))
        recipe = self.base.updated(**trial.settings)
        return Training(self.model, recipe, self._splits[seed], seed, cross_fit=True)

    def _order(self, run: tuple[Trial, int]) -> tuple[str, int, int]:
        trial, seed = run
        return repr([trial.settings.get(name) for name in self.space.shape]), trial.number, seed


def without_test(split: Split) -> Split:
    """A split without its test nodes."""
    none = split.test[:0]
    return replace(split, test=none, test_rest=none)


def _cut_short(runs: Sequence[tuple[Trial, int]], progress: Progress, prune: Prune) -> list[bool]:
    """Ask about each trial of a program: all of its seeds are cut short, or none."""
    wanted = Counter(trial.number for trial, _ in runs)
    standing: dict[int, list[float]] = {}
    for place, best in zip(progress.members, progress.best, strict=True):
        if best is not None:
            standing.setdefault(runs[place][0].number, []).append(best)
    members = {runs[place][0].number: runs[place][0] for place in progress.members}
    for number, trial in members.items():
        # A mean over some of the splits says nothing beside means over all of them.
        if len(standing.get(number, [])) == wanted[number] and not trial.pruned:
            trial.pruned = prune(trial, progress.epoch, fmean(standing[number]))
    return [runs[place][0].pruned for place in progress.members]

"""Trials × seeds → validation accuracies: those of equal shapes as one program.

A trial is trained as for a reported figure: all validation nodes choose the epoch. It is judged by
cross-fitting (:mod:`node2seq.train.cross_fitting`): no node judges an epoch that it helped to choose.
A split's test nodes take no part in its training; on random splits they are training and validation
nodes of other splits.
"""

from __future__ import annotations

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
from node2seq.search.trials import Trial, Trials, best_of
from node2seq.train.budget import Budget
from node2seq.train.many import OnProgress, Progress, Training, group_by_shape, train_many

Say = Callable[[str], None]
Prune = Callable[[Trial, int, float], bool]


@dataclass(frozen=True)
class SearchProgress:
    """How far a program is: the share of its epochs that were trained."""

    program: int
    programs: int
    runs: int
    share: float


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
    ) -> None:
        self.data, self.model, self.base, self.space, self.trials = data, model, base, space, trials
        self.device, self.rule, self.budget = device, rule, budget
        self.say, self.tell = say, tell
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
            leader = best_of({trial.number: trial for trial, _ in runs}.values())[0]
            best = "all cut short" if leader.pruned else f"best {leader.mean():.4f} (trial {leader.number})"
            self.say(
                f"  program {number} of {len(programs)}: {len(runs)} runs in {took:.1f} s, {best}; "
                f"{self.budget.spent:.0f} s so far"
            )

    def train_finalists(self, trials: Iterable[Trial], settings: SearchSettings) -> Trial:
        """Train the best on further splits, and return the one of highest mean over all of its splits."""
        finalists = best_of(trials, settings.seeds)[: settings.finalists]
        self.say(f"final: the best {len(finalists)} on {len(settings.final_seeds)} further splits")
        self.train(finalists, settings.final_seeds)
        return best_of(finalists)[0]

    def _watch(
        self, runs: Sequence[tuple[Trial, int]], prune: Prune | None, number: int, programs: int
    ) -> OnProgress | None:
        """Turn the progress of runs into that of programs, and into questions about trials."""
        if prune is None and self.tell is None:
            return None
        epochs = [0] * len(runs)

        def on_epoch(progress: Progress) -> list[bool] | None:
            if self.tell is not None:
                for place in progress.members:
                    epochs[place] = progress.epoch
                share = sum(epochs) / (len(runs) * self.base.settings.epochs)
                self.tell(SearchProgress(number, programs, len(runs), share))
            return None if prune is None else _cut_short(runs, progress, prune)

        return on_epoch

    def _training(self, trial: Trial, seed: int) -> Training:
        recipe = self.base.updated(**trial.settings)
        return Training(self.model, recipe, self._split(seed), seed, cross_fit=True)

    def _split(self, seed: int) -> Split:
        """The split of a seed without its test nodes."""
        if seed not in self._splits:
            split = make_split(self.data, self.rule, seed)
            none = split.test[:0]
            self._splits[seed] = replace(split, test=none, test_rest=none)
        return self._splits[seed]

    def _order(self, run: tuple[Trial, int]) -> tuple[str, int, int]:
        trial, seed = run
        return repr([trial.settings.get(name) for name in self.space.shape]), trial.number, seed


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

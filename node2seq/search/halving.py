"""The search without optuna: many settings on few splits, the best on more; then the same close to the best.

All that is random comes from the plan's seed, so the same plan asks for the same trainings again, and
finds those that are done in the file: that is how a search goes on after a kill.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from node2seq.errors import Node2SeqError
from node2seq.search.evaluate import Evaluator, Say
from node2seq.search.space import Settings, Space, near, stratified
from node2seq.search.trials import Trial, best_of

# A third goes on, as in hyperband.
_KEPT = 3


@dataclass(frozen=True)
class Halving:
    """How many settings are tried, and how often.

    Args:
        trials: Different settings in all: half of them from anywhere, the others close to the best.
        seeds: The splits of the search; the first third of them decides who is trained on all.
        final_seeds: Further splits for the best at the end, which chose nobody before.
        generations: How often settings close to the best are tried.
        shapes: Combinations of shapes to start with; None: about as many as free settings for each.
        finalists: How many are trained on the final seeds.
        seed: Of the draws.
    """

    trials: int = 256
    seeds: tuple[int, ...] = tuple(range(100, 105))
    final_seeds: tuple[int, ...] = tuple(range(200, 210))
    generations: int = 4
    shapes: int | None = None
    finalists: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("trials", 2), ("generations", 0), ("finalists", 1)):
            if getattr(self, name) < least:
                raise Node2SeqError(f"{name}={getattr(self, name)}", "too few", f"Give {least} or more")
        if self.shapes is not None and self.shapes < 1:
            raise Node2SeqError(f"shapes={self.shapes}", "too few", "Give 1 or more")

    @property
    def few_seeds(self) -> tuple[int, ...]:
        """The splits that everybody is trained on."""
        return self.seeds[: max(2, len(self.seeds) // 3)]


def search(plan: Halving, space: Space, start: Settings, evaluator: Evaluator, say: Say) -> Trial:
    """Run the plan and return the best trial: highest mean over all splits, of those in the last round.

    Args:
        plan: How much.
        space: What may be chosen.
        start: The settings to begin with, always among the tried.
        evaluator: Trains.
        say: Told what goes on.
    """
    pool: dict[int, Trial] = {}

    def contest(stage: str, candidates: Sequence[Settings]) -> None:
        """Train candidates on few splits, and the best of them on all."""
        trials = {trial.number: trial for trial in (evaluator.trials.trial(c, stage) for c in candidates)}
        say(f"{stage}: {len(trials)} settings on {len(plan.few_seeds)} splits")
        evaluator.train(list(trials.values()), plan.few_seeds)
        ranked = best_of(trials.values(), plan.few_seeds)
        # The start stays whatever few splits say of it, so that nothing worse than it is chosen in the end.
        kept = [t for place, t in enumerate(ranked) if place * _KEPT < len(ranked) or t.settings == start]
        say(f"{stage}: the best {len(kept)} on {len(plan.seeds)} splits")
        evaluator.train(kept, plan.seeds)
        pool.update({trial.number: trial for trial in kept})

    first = plan.trials if plan.generations == 0 else math.ceil(plan.trials / 2)
    contest("anywhere", _anywhere(plan, space, start, first))
    for generation in range(1, plan.generations + 1):
        count = (plan.trials - first) // plan.generations
        if count == 0 or not space.ranges:
            break
        leaders = best_of(pool.values(), plan.seeds)
        contest(f"close by {generation}", _close_by(plan, space, leaders, count, generation))

    finalists = best_of(pool.values(), plan.seeds)[: plan.finalists]
    say(f"final: the best {len(finalists)} on {len(plan.final_seeds)} further splits")
    evaluator.train(finalists, plan.final_seeds)
    return best_of(finalists)[0]


def _anywhere(plan: Halving, space: Space, start: Settings, count: int) -> list[Settings]:
    """The start, and settings from everywhere: few shapes, each with many free settings."""
    draw = random.Random(f"{plan.seed} anywhere")
    shapes = plan.shapes or math.ceil(math.sqrt(2 * count))
    drawn = [{name: start[name] for name in space.shape}, *stratified(space.shape, shapes - 1, draw)]
    free = stratified(space.free, count - 1, draw)
    return [dict(start), *({**drawn[number % shapes], **each} for number, each in enumerate(free))]


def _close_by(
    plan: Halving, space: Space, leaders: Sequence[Trial], count: int, generation: int
) -> list[Settings]:
    """Settings close to the leaders', in the leaders' shapes and in one that differs in one setting."""
    draw = random.Random(f"{plan.seed} close by {generation}")
    leaders = leaders[: plan.finalists]
    shapes = list({repr(shape): shape for shape in (_shape(space, leader) for leader in leaders)}.values())[
        :3
    ]
    if space.shape:
        name = draw.choice(list(space.shape))
        shapes.append({**shapes[0], name: space.shape[name].at(draw.random())})
    step = 0.25 / generation
    found = []
    for number in range(count):
        # The better a leader, the more often it is near.
        one, other = (leaders[int(len(leaders) * draw.random() ** 2)].settings for _ in range(2))
        mixed = {name: (one if draw.random() < 0.7 else other)[name] for name in space.free}
        found.append({**shapes[number % len(shapes)], **near(space.free, mixed, step, draw)})
    return found


def _shape(space: Space, trial: Trial) -> Settings:
    return {name: trial.settings[name] for name in space.shape}

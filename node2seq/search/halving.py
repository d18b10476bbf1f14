"""The search without optuna: many settings on few splits, the best on more; then the same close to the best.

All that is random comes from the plan's seed, so the same plan asks for the same trainings again, and
finds those that are done in the file: that is how a search goes on after a kill.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from node2seq.search.evaluate import Evaluator, Say
from node2seq.search.plan import Plan
from node2seq.search.space import Settings, Space, near, stratified
from node2seq.search.trials import Trial, best_of

# A third goes on, as in hyperband.
_KEPT = 3


@dataclass(frozen=True)
class Halving(Plan):
    """Half of the trials from anywhere, the others close to the best.

    The first third of the splits decides who is trained on all of them.

    Args:
        generations: How often settings close to the best are tried.
        shapes: Combinations of shapes to start with; None: about as many as free settings for each.
    """

    generations: int = 4
    shapes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(generations=0, **({} if self.shapes is None else {"shapes": 1}))

    @property
    def first_seeds(self) -> tuple[int, ...]:  # noqa: D102
        return self.seeds[: max(2, len(self.seeds) // 3)]

    def search(self, space: Space, start: Settings, evaluator: Evaluator, say: Say) -> Trial:  # noqa: D102
        pool: dict[int, Trial] = {}

        def contest(stage: str, candidates: Sequence[Settings]) -> None:
            """Train candidates on few splits, and the best of them on all."""
            trials = {t.number: t for t in (evaluator.trials.trial(each, stage) for each in candidates)}
            say(f"{stage}: {len(trials)} settings on {len(self.first_seeds)} splits")
            evaluator.train(list(trials.values()), self.first_seeds)
            ranked = best_of(trials.values(), self.first_seeds)
            # The start stays whatever few splits say of it, so that nothing worse is chosen in the end.
            kept = [t for place, t in enumerate(ranked) if place * _KEPT < len(ranked) or t.settings == start]
            say(f"{stage}: the best {len(kept)} on {len(self.seeds)} splits")
            evaluator.train(kept, self.seeds)
            pool.update({trial.number: trial for trial in kept})

        first = self.trials if self.generations == 0 else math.ceil(self.trials / 2)
        contest("anywhere", _anywhere(self, space, start, first))
        for generation in range(1, self.generations + 1):
            count = (self.trials - first) // self.generations
            if count == 0 or not space.ranges:
                break
            leaders = best_of(pool.values(), self.seeds)
            contest(f"close by {generation}", _close_by(self, space, leaders, count, generation))
        return self.final(pool.values(), evaluator, say)


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

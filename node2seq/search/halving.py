"""The search without optuna: many settings on few splits, the best on more; then the same close to the best.

All random draws come from the seed of the settings, so the same search asks for the same trainings again and
finds those that are done in its file: that is how a killed search resumes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from node2seq.search.evaluate import Evaluator
from node2seq.search.settings import SearchSettings
from node2seq.search.space import Settings, Space, near, stratified
from node2seq.search.trials import Trial, best_of

# A third survives, as in hyperband.
_KEPT = 3


@dataclass(frozen=True)
class Halving(SearchSettings):
    """Half of the trials from anywhere, the others close to the best.

    The first third of the splits decides which trials are trained on all of them.

    Args:
        generations: How often settings close to the best are tried.
        shapes: Combinations of shapes to start with; None: about as many as free settings for each.
    """

    generations: int = 4
    shapes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least(generations=0, **({} if self.shapes is None else {"shapes": 1}))

    @property
    def first_seeds(self) -> tuple[int, ...]:  # noqa: D102
        return self.seeds[: max(2, len(self.seeds) // 3)]

    @property
    def trainings(self) -> int:  # noqa: D102
        later = len(self.seeds) - len(self.first_seeds)
        kept = self.trials // _KEPT + self.generations + 1  # each contest rounds up
        final = (self.finalists + 1) * len(self.final_seeds)
        return self.trials * len(self.first_seeds) + kept * later + final


def search_by_halving(settings: Halving, start: Trial, evaluator: Evaluator) -> Trial:
    """Search, and return the best trial.

    Args:
        settings: How much.
        start: The trial to begin with.
        evaluator: Trains trials and keeps their results.
    """
    space, pool = evaluator.space, {}
    evaluator.say(f"the default, trial 0, on {len(settings.first_seeds)} splits")
    evaluator.train([start], settings.first_seeds)
    first = settings.trials if settings.generations == 0 else math.ceil(settings.trials / 2)
    pool |= _contest(
        "anywhere", _anywhere(settings, space, start.settings, first), settings, start, evaluator
    )
    for generation in range(1, settings.generations + 1):
        ends = [
            (settings.trials - first) * done // settings.generations for done in (generation - 1, generation)
        ]
        count = ends[1] - ends[0]
        if count == 0 or not space.ranges:
            continue
        leaders = best_of(pool.values(), settings.seeds)
        candidates = _close_by(settings, space, leaders, count, generation)
        pool |= _contest(f"close by {generation}", candidates, settings, start, evaluator)
    return evaluator.train_finalists(pool.values(), start, settings)


def _contest(
    stage: str, candidates: Sequence[Settings], settings: Halving, start: Trial, evaluator: Evaluator
) -> dict[int, Trial]:
    """Train candidates on few splits, and the best of them on all; those, by number."""
    trials = {t.number: t for t in (evaluator.trials.trial(each, stage) for each in candidates)}
    amount = "1 setting" if len(trials) == 1 else f"{len(trials)} settings"
    evaluator.say(f"{stage}: {amount} on {len(settings.first_seeds)} splits")
    evaluator.train(list(trials.values()), settings.first_seeds)
    ranked = best_of(trials.values(), settings.first_seeds)
    # The start stays whatever few splits say of it, so that nothing worse is chosen in the end.
    kept = [t for place, t in enumerate(ranked) if place * _KEPT < len(ranked) or t is start]
    evaluator.say(f"{stage}: the best {len(kept)} on {len(settings.seeds)} splits")
    evaluator.train(kept, settings.seeds)
    return {trial.number: trial for trial in kept}


def _anywhere(settings: Halving, space: Space, start: Settings, count: int) -> list[Settings]:
    """The start, and settings from everywhere: few shapes, each with many free settings."""
    draw = random.Random(f"{settings.seed} anywhere")
    shapes = settings.shapes or math.ceil(math.sqrt(2 * count))
    drawn = [{name: start[name] for name in space.shape}, *stratified(space.shape, shapes - 1, draw)]
    free = stratified(space.free, count - 1, draw)
    return [dict(start), *({**drawn[number % shapes], **each} for number, each in enumerate(free))]


def _close_by(
    settings: Halving, space: Space, leaders: Sequence[Trial], count: int, generation: int
) -> list[Settings]:
    """Settings close to the leaders', in the leaders' shapes and in one that differs in one setting."""
    draw = random.Random(f"{settings.seed} close by {generation}")
    leaders = leaders[: settings.finalists]
    by_leader = [{name: leader.settings[name] for name in space.shape} for leader in leaders]
    shapes = list({repr(shape): shape for shape in by_leader}.values())[:3]
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

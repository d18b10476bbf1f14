"""A search from beginning to end: graph and space in, trials and a recipe out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from node2seq.data import RULES
from node2seq.data.reading import Source
from node2seq.environment import make_deterministic, pick_device, stop_requests, threads_for
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice, suggestion
from node2seq.recipes import RECIPES, Recipe, family_of, network_for, recipe_for
from node2seq.recipes.choose import GraphSizes, options_for_order, settings_for, sizes_of
from node2seq.runs.graph import RunGraph, open_graph
from node2seq.runs.recipe_file import read_recipe_file, write_recipe
from node2seq.search.bayes import Bayes, search_with_optuna
from node2seq.search.evaluate import Evaluator, Say, SearchProgress
from node2seq.search.halving import Halving, search_by_halving
from node2seq.search.settings import SearchSettings
from node2seq.search.sharing import OthersFinish
from node2seq.search.space import Choice, Settings, Space
from node2seq.search.spaces import GIVEN, SPACES
from node2seq.search.trials import Trial, Trials, best_of, most_trusted
from node2seq.storage import write_bytes
from node2seq.train.budget import Budget, OutOfTime
from node2seq.train.cross_fitting import FOLDS
from node2seq.train.metrics import METRIC_TITLES, NUMBER_SCORES, shown
from node2seq.train.settings import check_carried, current, options_of, parse_setting, settings_of


@dataclass(frozen=True)
class Request:
    """What to search.

    Args:
        source: The graph.
        out: File of the trials.
        recipe: File of the chosen recipe; None: beside the trials, as ``.toml``.
        model: A key of ``node2seq.nn.models.MODELS``.
        space: A key of ``SPACES``.
        fix: ``name=value``: decided and not searched; ``name=[a, b]``: one of these.
        start: A recipe as TOML to begin with, instead of the package's own for the model and the graph.
        plan: How much.
        rule: How to split; None: as the graph says.
        device: ``auto``, ``cpu``, ``cuda`` …
        budget_seconds: Stop before the program that would pass them; the same request resumes later.
        metric: What selects epochs and compares settings; None: one that suits the user's own graph, or the
            accuracy for a data set.
        storage: A database for optuna, as SQLAlchemy names it; None: a journal beside the trials.
    """

    source: Source
    out: Path
    recipe: Path | None = None
    model: str = "node2seq"
    space: str = "paper"
    fix: tuple[str, ...] = ()
    start: Path | None = None
    plan: SearchSettings = field(default_factory=Halving)
    rule: str | None = None
    device: str = "auto"
    budget_seconds: float | None = None
    metric: str | None = None
    storage: str | None = None


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Args:
        best: The best trial of those trained on the most splits, or the start if it stands.
        recipe: How it was trained.
        recipe_file: The same for ``node2seq train --config``.
        trials: All of them.
        finished: Whether the search was carried out; if not, the budget was spent, or others finish it.
        space: What was searched.
        verdict: Whether the best beats the settings that the search started from, in words.
        others_finish: Whether other processes still train the last trials.
    """

    best: Trial
    recipe: Recipe
    recipe_file: Path
    trials: Trials
    finished: bool
    space: Space
    verdict: str
    others_finish: bool = False


def run(
    request: Request,
    say: Say,
    tell: Callable[[SearchProgress], None] | None = None,
    say_reading: Say | None = None,
    on_best: Callable[[SearchResult], None] | None = None,
) -> SearchResult:
    """Search, and write the best recipe: from the first trained trial on, a recipe is there at any moment.

    Args:
        request: What to search.
        say: Told line by line what is done.
        tell: Told how far the trainings are, now and then.
        say_reading: Told what takes a while when the graph is read.
        on_best: Called with the best so far whenever trials were trained, and in the end.
    """
    request = _checked(request)
    device = pick_device(request.device)
    make_deterministic(device)
    base, _ = prepare(request)  # what cannot be searched is refused before anything is read
    check_carried(current(network_for(request.model, request.space), base.options)[0], request.source.carried)
    graph = open_graph(request.source, say=say_reading)
    base, space = prepare(request, graph)
    model, _ = current(network_for(request.model, request.space), base.options)
    trials = Trials(request.out, _header(request, base, space, graph))

    def keep(best: Trial | None, finished: bool = False) -> SearchResult | None:
        found = _write_best(request, evaluator, best, finished)
        if found is not None and on_best is not None:
            on_best(found)
        return found

    asked: list[int] = []
    evaluator = Evaluator(
        graph.data.to(str(device)),
        model,
        base,
        space,
        trials,
        device=device,
        rule=request.rule,
        budget=Budget(request.budget_seconds),
        say=say,
        tell=tell,
        keep=keep,
        planned=request.plan.trainings,
        stop=asked,
    )
    others_finish = False
    try:
        with threads_for(graph.data), stop_requests(asked):
            found = keep(_search(request, evaluator), finished=True)
    except (OthersFinish, OutOfTime) as end:
        found, others_finish = keep(most_trusted(trials)), isinstance(end, OthersFinish)
    if found is None:
        raise _nothing_found(request, trials)
    return replace(found, others_finish=others_finish)


def _write_best(
    request: Request, evaluator: Evaluator, best: Trial | None, finished: bool
) -> SearchResult | None:
    """Write the recipe of a trial, and say how it compares with the start; None if it has no figure."""
    if best is None or not math.isfinite(best.mean()):
        return None
    base, trials, metric = evaluator.base, evaluator.trials, evaluator.base.settings.metric
    recipe = base.updated(_comment(best, metric), **best.settings)
    file = request.recipe or request.out.with_suffix(".toml")
    write_bytes(file, write_recipe(evaluator.model, recipe, request.source, recipe.source).encode())
    start = next(iter(trials))  # whatever is searched begins with it
    verdict = _verdict(best, start, trials, request.plan, metric)
    return SearchResult(best, recipe, file, trials, finished, evaluator.space, verdict)


def _nothing_found(request: Request, trials: Trials) -> Node2SeqError:
    """Why a search ends without a recipe."""
    if request.budget_seconds is not None and not any(trial.accuracies for trial in trials):
        budget = f"a budget of {request.budget_seconds} s"
        return Node2SeqError(budget, "nothing was trained in that time", "Give more")
    failed = "every training that was to be compared failed; the file says why"
    return Node2SeqError(str(request.out), failed, "Narrow the space with --fix, the learning rate first")


def _checked(request: Request) -> Request:
    """Refuse a model or a rule that there is not before anything is read; directed spaces read directions."""
    options_of(request.model)
    if request.rule is not None:
        check_choice("rule", request.rule, RULES)
    if request.space != "directed":
        return request
    reading = {**request.source.reading, "directed": True}
    return replace(request, source=replace(request.source, reading=reading))


def _search(request: Request, evaluator: Evaluator) -> Trial:
    start = evaluator.trials.trial(
        settings_of(evaluator.model, evaluator.base, evaluator.space.ranges), "start"
    )
    settings = request.plan
    if isinstance(settings, Bayes):
        return search_with_optuna(settings, start, evaluator, request.storage)
    assert isinstance(settings, Halving)
    return search_by_halving(settings, start, evaluator)


def _verdict(best: Trial, start: Trial, trials: Trials, plan: SearchSettings, metric: str) -> str:
    """Whether a trial beats the start, on splits that both were trained on, best those of the final."""
    if not math.isfinite(start.mean()):
        return f"Trial {best.number} replaces the default, which failed."
    others = [t for t in trials if t is not start and t.accuracies.keys() == best.accuracies.keys()]
    rival = best_of(others)[0] if best is start and others else best
    both = sorted(rival.accuracies.keys() & start.accuracies.keys())
    unseen = [seed for seed in both if seed in plan.final_seeds]
    seeds = unseen or both
    if rival is start or not seeds or not math.isfinite(rival.mean(seeds)):
        return "The default stands: no other settings came close on validation nodes."
    better = sum(rival.mean([seed]) > start.mean([seed]) for seed in seeds)
    figures = [shown(metric, trial.mean(seeds), " %") for trial in (rival, start)]
    splits = f"on {len(seeds)} {'further splits' if unseen else 'splits'}"
    if best is start:
        return (
            f"The default stands: validation {METRIC_TITLES[metric]} {figures[1]} {splits}; "
            f"the best other settings, trial {rival.number}, reach {figures[0]}."
        )
    return (
        f"Trial {best.number} beats the default: validation {METRIC_TITLES[metric]} {figures[0]} "
        f"against {figures[1]} {splits}, better on {better} of them."
    )


def prepare(request: Request, graph: RunGraph | None = None) -> tuple[Recipe, Space]:
    """What is decided, and what is searched.

    Args:
        request: What to search.
        graph: What on, once it is read: the defaults for the user's own graph depend on its sizes and labels.
    """
    spaces = SPACES.get(request.space)
    if spaces is None:
        raise Node2SeqError(
            f"space {request.space!r}", "there is no such space", suggestion(request.space, SPACES)
        )
    family, model = family_of(request.model), network_for(request.model, request.space)
    if family not in spaces:
        raise Node2SeqError(
            f"model {request.model!r}", f"the space {request.space} has none for it", suggestion("", spaces)
        )
    base = _known_recipe(family, request.source.name, request.space, sizes_of(graph and graph.data))
    base = base.updated(**_fitting_settings(request, graph))
    ordered = options_for_order(model, request.source.carried)
    if request.start is not None:
        start = read_recipe_file(request.start, model)
        if family_of(start.model or family) != family:
            raise Node2SeqError(
                f"{request.start}: model={start.model!r}",
                f"the search is for {request.model}",
                "Give a recipe of that model",
            )
        base = base.updated(**start.values)
        ordered |= {name: start.values[name] for name in ordered if name in start.values}
    columns = GIVEN.get(request.space, {}).get(family, {})
    given: Settings = {**ordered, **columns.get("", {}), **columns.get(request.source.name or "", {})}
    given |= dict(parse_setting(model, text, "--fix") for text in request.fix)
    choices = {name: Choice(tuple(value)) for name, value in given.items() if isinstance(value, list)}
    decided = {name: value for name, value in given.items() if name not in choices}
    own = settings_of(model, base, choices)
    inside = {name: choice.at(choice.place_of(own[name])) for name, choice in choices.items()}
    space = spaces[family].without(decided).with_choices(choices)
    return base.updated(**decided, **inside), space


def _known_recipe(model: str, name: str | None, variant: str, sizes: GraphSizes) -> Recipe:
    """The best that is known for the variant, or else for the paper's."""
    has_own = name in RECIPES.get(variant, {}).get(model, {})
    return recipe_for(model, name, variant if has_own else "paper", sizes)


def _fitting_settings(request: Request, graph: RunGraph | None) -> dict[str, Any]:
    given = {} if request.metric is None else {"metric": request.metric}
    data = None if request.source.name is not None or graph is None else graph.data
    return settings_for(data) | given


def _header(request: Request, base: Recipe, space: Space, graph: RunGraph) -> dict[str, Any]:
    """What all trials of a file have in common; where the data lies, device and time do not count."""
    return {
        "data": request.source.title,
        "graph": graph.sha256,
        "split rule": request.rule,
        "judged on": f"the validation nodes in {FOLDS} folds, each at the epoch that the others choose",
        "model": request.model,
        "space": {name: repr(known) for name, known in space.ranges.items()},
        "recipe": settings_of(network_for(request.model, request.space), base),
        "sampler": type(request.plan).__name__.lower(),
        "plan": asdict(request.plan),
    }


def _comment(best: Trial, metric: str) -> str:
    title, seeds = METRIC_TITLES[metric], sorted(best.accuracies)
    if metric in NUMBER_SCORES:
        figures = f"{shown(metric, best.mean())} ± {shown(metric, best.deviation)}"
    else:
        figures = f"{100 * best.mean():.2f} ± {100 * best.deviation:.2f} %"
    return (
        f"chosen on validation {title}: {figures} over {len(seeds)} splits, seeds {seeds[0]} to {seeds[-1]}"
    )

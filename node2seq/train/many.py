"""Many trainings on one graph: those of equal shapes are trained together, as one stacked model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric.data import Data

from node2seq.data import fold_numbers, normalize_features
from node2seq.data.graph import bare, tensors_of
from node2seq.train.cross_fitting import FOLDS
from node2seq.train.inputs import SplitLike, edge_dim_of, runs_that_fit
from node2seq.train.progress import FitResult, RunProgress
from node2seq.train.settings import Recipe, current, make_network
from node2seq.train.stacking import PER_RUN
from node2seq.train.task import task_for
from node2seq.train.trainer import LOOK_EVERY, Trainer


@dataclass(frozen=True)
class Training:
    """One run: a model of :data:`node2seq.nn.models.MODELS`, how and on which nodes it is trained.

    ``seed`` draws its initial weights and decides about its dropout. With ``cross_fit``, its outcome says
    what it is worth without a look at the test nodes, see :class:`TrainingOutcome`.
    """

    model: str
    recipe: Recipe
    split: SplitLike
    seed: int
    cross_fit: bool = False


@dataclass(frozen=True)
class TrainingOutcome:
    """The outcome of a training: its result, or the error that ended it.

    ``model`` holds the weights of the best epoch, if models are kept. ``seconds`` is the time of the runs
    that were trained together, divided by their number. ``cross_fitted``, if asked for, is the metric on
    validation nodes by cross-fitting: the nodes of each fold are judged in the epoch that those of the
    other folds choose, so it is no overestimate as the best epoch's is.
    """

    result: FitResult | None
    error: str | None
    model: nn.Module | None
    seconds: float
    cross_fitted: float | None = None


@dataclass(frozen=True)
class Progress:
    """Where the trainings ``members`` stand, which are trained together: places in the sequence given.

    ``epoch`` counts those of the runs that are still trained. ``best`` is the highest metric of each on its
    validation nodes so far; None for one that has failed.
    """

    members: tuple[int, ...]
    epoch: int
    best: tuple[float | None, ...]


OnProgress = Callable[[Progress], Sequence[bool] | None]


def train_many(
    data: Data,
    trainings: Sequence[Training],
    *,
    device: torch.device | str | None = None,
    on_epoch: OnProgress | None = None,
    keep_models: bool = False,
    max_bytes: int | None = None,
    capture: bool = True,
) -> list[TrainingOutcome]:
    """Train all of ``trainings`` on the graph ``data`` and return their outcomes in the same order.

    Each outcome is that of the training alone up to rounding: a batch of matrix products is not rounded as
    single ones are on every processor, and in float32 a long training may choose another epoch for it. The
    same runs together give the same bits. A run whose loss stops being finite ends with an error and leaves
    the others as they are.

    Args:
        data: The graph, with features as they are: the recipes say whether to normalise their rows.
        trainings: What to train.
        device: Where; the features' own if left out.
        on_epoch: Told every few epochs how the runs that are trained together stand; may return one truth
            value for each of them, and those with a true one end there, with what they have reached.
        keep_models: Whether the outcomes hold the trained models.
        max_bytes: Memory that runs may take together; a part of what is free if left out.
        capture: Whether epochs may be replayed as a CUDA graph.
    """
    data = bare(data)
    if device is not None:
        data = data.to(str(device))  # once, so that all trainers share the plan of its edges
    outcomes: dict[int, TrainingOutcome] = {}
    for members in group_by_shape(trainings):
        first = trainings[members[0]]
        graph = prepare_graph(data, first.recipe)
        most = runs_that_fit(untrained(first, graph), graph, first.recipe.settings.views, max_bytes)
        waiting = [members[i : i + most] for i in range(0, len(members), most)]
        while waiting:
            part = waiting.pop(0)
            runs = {number: trainings[number] for number in part}
            try:
                outcomes |= _train(graph, runs, on_epoch, keep_models=keep_models, capture=capture)
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
                half = len(part) // 2  # both start again, and end as before up to rounding
                waiting = [part[:half], part[half:], *waiting]
    return [outcomes[number] for number in range(len(trainings))]


def group_by_shape(trainings: Sequence[Training]) -> list[list[int]]:
    """The places of trainings that are trained together, in the order in which their shapes come first."""
    groups: dict[Hashable, list[int]] = {}
    for number, training in enumerate(trainings):
        groups.setdefault(_shape(training), []).append(number)
    return list(groups.values())


def _train(
    graph: Data,
    trainings: Mapping[int, Training],
    on_epoch: OnProgress | None,
    *,
    keep_models: bool,
    capture: bool,
) -> dict[int, TrainingOutcome]:
    """Train runs of equal shapes together, and say what became of each, by its number."""
    trainer = _trainer(graph, list(trainings.values()), capture)
    runs = dict(zip(trainings, trainer.runs, strict=True))
    members = list(trainings)  # of the trainer, which loses those that end
    outcomes: dict[int, TrainingOutcome] = {}
    while any(active := [run.active for run in trainer.runs]):
        if on_epoch is not None and trainer.epoch:
            unwanted = _unwanted(runs, trainer.epoch, on_epoch)
            trainer.stop([number in unwanted for number in members])
        ended = [i for i, is_active in enumerate(active) if not is_active]
        if 2 * len(ended) >= len(members):
            left = [i for i, is_active in enumerate(active) if is_active]
            done, trainer = trainer.take(ended), trainer.take(left)
            outcomes |= _collect(done, [members[i] for i in ended], keep_models)
            del done  # the others need its memory
            members = [members[i] for i in left]
        trainer.advance(LOOK_EVERY)
    return outcomes | _collect(trainer, members, keep_models)


def _trainer(graph: Data, trainings: Sequence[Training], capture: bool) -> Trainer:
    folds = None
    if trainings[0].cross_fit:  # all of them, or none
        folds = [fold_numbers(t.split.val.numel(), FOLDS, t.seed) for t in trainings]
    return Trainer(
        [untrained(training, graph) for training in trainings],
        graph,
        [training.split for training in trainings],
        [training.recipe.settings for training in trainings],
        folds=folds,
        capture=capture,
    )


def _unwanted(runs: Mapping[int, RunProgress], epoch: int, on_epoch: OnProgress) -> set[int]:
    """Tell how all runs stand, those that ended among them; which are to end here."""
    best = [None if run.error or run.best is None else run.best.val_score for run in runs.values()]
    stop = on_epoch(Progress(tuple(runs), epoch, tuple(best)))
    return set() if stop is None else {number for number, ends in zip(runs, stop, strict=True) if ends}


def _collect(trainer: Trainer, members: Sequence[int], keep_models: bool) -> dict[int, TrainingOutcome]:
    """Measure what the runs of a trainer have reached."""
    trainer.finish()
    figures = zip(members, trainer.runs, trainer.results(), trainer.cross_fitted(), strict=True)
    seconds = trainer.seconds_per_run
    outcomes = {}
    for i, (number, run, result, accuracy) in enumerate(figures):
        if run.error is None:
            model = trainer.model_of(i) if keep_models else None
            outcomes[number] = TrainingOutcome(result, None, model, seconds, accuracy)
        else:
            outcomes[number] = TrainingOutcome(None, str(run.error), None, seconds)
    return outcomes


def _shape(training: Training) -> Hashable:
    """What runs that are trained together have in common."""
    recipe = training.recipe
    options = {name: value for name, value in recipe.options.items() if name not in PER_RUN}
    settings = recipe.settings
    shared = (settings.optimizer, settings.views, settings.metric, settings.loss)
    shared = (*shared, recipe.row_normalize, training.cross_fit)
    model, _ = current(training.model, recipe.options)
    return (model, repr(sorted(options.items())), *shared)


def prepare_graph(data: Data, recipe: Recipe, device: torch.device | str | None = None) -> Data:
    """The graph as a recipe wants it, on the device; ``data`` stays as it is."""
    graph = bare(data)
    if recipe.row_normalize:
        graph.x = normalize_features(tensors_of(data)[0])
    return graph if device is None else graph.to(str(device))


def untrained(training: Training, data: Data) -> nn.Module:
    """The untrained model of a training for a graph, on its device and in its features' precision."""
    assert data.x is not None
    assert isinstance(data.y, torch.Tensor)
    torch.manual_seed(training.seed)
    sizes = (data.num_features, task_for(data.y).outputs(data.y))
    model = make_network(training.model, *sizes, training.recipe.options, edge_dim_of(data))
    return model.to(data.x.device, torch.promote_types(data.x.dtype, torch.float32))

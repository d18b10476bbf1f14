"""Many trainings on one graph: those of equal shapes are trained as one program."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric.data import Data

from node2seq.data import normalize_features
from node2seq.errors import Node2SeqError
from node2seq.models import MODELS
from node2seq.recipes import Recipe
from node2seq.train import FitResult, Fitter, SplitLike


@dataclass(frozen=True)
class Training:
    """One run: a model of :data:`node2seq.models.MODELS`, how and on which nodes it is trained.

    ``seed`` draws its initial weights and decides about its dropout.
    """

    model: str
    recipe: Recipe
    split: SplitLike
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What became of a training: its result, or the error that ended it.

    ``model`` holds the weights of the best epoch, if models are kept. ``seconds`` is the time of the program
    it was part of, divided by the runs in it.
    """

    result: FitResult | None
    error: str | None
    model: nn.Module | None
    seconds: float


@dataclass(frozen=True)
class Progress:
    """Where the trainings ``members`` (places in the sequence that was given) of one program stand.

    ``best`` is the highest validation accuracy of each so far; None for one that has failed.
    """

    members: tuple[int, ...]
    epoch: int
    best: tuple[float | None, ...]


OnProgress = Callable[[Progress], Sequence[bool] | None]


def train_together(
    data: Data,
    trainings: Sequence[Training],
    *,
    device: torch.device | str | None = None,
    on_epoch: OnProgress | None = None,
    keep_models: bool = False,
    max_bytes: int | None = None,  # noqa: ARG001
) -> list[Outcome]:
    """Train all of ``trainings`` on the graph ``data`` and return their outcomes in the same order.

    Each outcome is that of the training alone. A run whose loss stops being finite ends with an error and
    leaves the others as they are.

    Args:
        data: The graph, with features as they are: the recipes say whether to normalise their rows.
        trainings: What to train.
        device: Where; the features' own if left out.
        on_epoch: Told now and then how the runs of a program stand; may return one truth value for each of
            them, and those with a true one end there, with what they have reached.
        keep_models: Whether the outcomes hold the trained models.
        max_bytes: Memory that the runs of one program may take together.
    """
    outcomes = []
    for number, training in enumerate(trainings):
        started = time.monotonic()
        graph = prepare_graph(data, training.recipe, device)
        model = build(training, graph)
        try:
            fitter = Fitter(model, graph, training.split, training.recipe.settings)
            while not fitter.done:
                fitter.step()
                assert fitter.best is not None
                if on_epoch is not None:
                    stop = on_epoch(Progress((number,), fitter.epoch, (fitter.best.val_accuracy,)))
                    if stop is not None and stop[0]:
                        break
            result, error = fitter.finish(), None
        except Node2SeqError as problem:
            result, error = None, str(problem)
        kept = model if keep_models else None
        outcomes.append(Outcome(result, error, kept, time.monotonic() - started))
    return outcomes


def prepare_graph(data: Data, recipe: Recipe, device: torch.device | str | None = None) -> Data:
    """The graph as a recipe wants it, on the device; ``data`` stays as it is."""
    assert data.x is not None
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    if recipe.row_normalize:
        graph.x = normalize_features(data.x)
    return graph if device is None else graph.to(str(device))


def build(training: Training, data: Data) -> nn.Module:
    """The untrained model of a training for a graph, on the graph's device."""
    assert data.x is not None
    assert isinstance(data.y, torch.Tensor)
    torch.manual_seed(training.seed)
    model = MODELS[training.model](
        data.num_features, out_channels=int(data.y.max()) + 1, **training.recipe.options
    )
    return model.to(data.x.device)

"""Fit, evaluate and predict, full batch; knows no model, so that every model gets the same loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.train.checks import check_features, check_split, graph_on, split_warnings
from node2seq.train.metrics import Metrics, measure
from node2seq.train.program import Program
from node2seq.train.settings import TrainSettings

__all__ = [
    "Course",
    "EpochRecord",
    "FitResult",
    "Fitter",
    "SplitLike",
    "TrainSettings",
    "as_read_by",
    "embed",
    "evaluate",
    "fit",
    "predict",
]


class SplitLike(Protocol):
    """Node indices for training, for choosing the epoch, and for the final figure."""

    @property
    def train(self) -> Tensor: ...  # noqa: D102
    @property
    def val(self) -> Tensor: ...  # noqa: D102
    @property
    def test(self) -> Tensor: ...  # noqa: D102


@dataclass(frozen=True)
class EpochRecord:
    """What is known after an epoch. The test nodes are not among it: nothing may select on them."""

    epoch: int
    loss: float
    train_accuracy: float
    val_loss: float
    val_accuracy: float


@dataclass(frozen=True)
class FitResult:
    """The chosen epoch and what the model reaches with its weights; ``test`` is None without test nodes."""

    best: EpochRecord
    history: tuple[EpochRecord, ...]
    train: Metrics
    val: Metrics
    test: Metrics | None
    warnings: tuple[str, ...]


class Course:
    """One run's split, and what is known of its epochs.

    Args:
        split: Its nodes.
        y: The labels of all nodes.
        settings: How it is trained.
    """

    def __init__(self, split: SplitLike, y: Tensor, settings: TrainSettings) -> None:
        self.nodes = {name: getattr(split, name).to(y.device) for name in ("train", "val", "test")}
        check_split(self.nodes, y)
        self.warnings = split_warnings(self.nodes, y)
        self.history: list[EpochRecord] = []
        self.best: EpochRecord | None = None
        self._y, self._settings = y, settings

    def add(self, row: Sequence[float]) -> EpochRecord:
        """Take in the next epoch, a row of the program's history."""
        loss, val_loss, train_hits, val_hits, best_epoch = row
        record = EpochRecord(
            epoch=len(self.history) + 1,
            loss=loss,
            train_accuracy=train_hits / self.nodes["train"].numel(),
            val_loss=val_loss,
            val_accuracy=val_hits / self.nodes["val"].numel(),
        )
        if not (math.isfinite(loss) and math.isfinite(val_loss)):
            raise Node2SeqError(
                f"lr={self._settings.lr}",
                f"the loss became {loss} (validation: {val_loss}) in epoch {record.epoch}",
                "Train with a lower learning rate, and look for features of very different size",
            )
        self.history.append(record)
        self.best = self.history[int(best_epoch) - 1]
        return record

    def result(self, logits: Tensor) -> FitResult:
        """Measure what the best epoch's weights give, ``[nodes, classes]``."""
        assert self.best is not None
        measured = {
            name: measure(logits[index], self._y[index]) if index.numel() else None
            for name, index in self.nodes.items()
        }
        assert measured["train"] is not None
        assert measured["val"] is not None
        return FitResult(
            best=self.best,
            history=tuple(self.history),
            train=measured["train"],
            val=measured["val"],
            test=measured["test"],
            warnings=self.warnings,
        )


class Fitter:
    """Trains epoch by epoch and can be put away and taken up again between any two of them.

    Args:
        model: Called as ``model(x, edge_index)``, gives logits ``[nodes, classes]``. If it has
            ``parameter_groups()``, the group named ``"node2seq"`` gets ``conv_weight_decay``; if it has
            ``can_capture(x)`` and that is true, epochs on a GPU are replayed as a CUDA graph.
        data: ``x``, ``edge_index`` and ``y``, where −1 means unlabelled. Moved to the model's device.
        split: Indices of training, validation and test nodes.
        settings: How to train.
        capture: Whether epochs may be replayed as a CUDA graph; the bits are the same.
    """

    def __init__(
        self, model: nn.Module, data: Data, split: SplitLike, settings: TrainSettings, *, capture: bool = True
    ) -> None:
        self.model, self.settings = model, settings
        x, edge_index, y = graph_on(model, data)
        check_features(x)
        self._course = Course(split, y, settings)
        self._program = Program(
            model,
            as_read_by(model, x),
            edge_index,
            y,
            [self._course.nodes],
            [settings],
            stacked=False,
            capture=capture,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What can be trained on, yet should be known."""
        return self._course.warnings

    @property
    def history(self) -> list[EpochRecord]:
        """What is known of each epoch."""
        return self._course.history

    @property
    def best(self) -> EpochRecord | None:
        """The best epoch so far."""
        return self._course.best

    @property
    def captured(self) -> int:
        """How many epochs were replayed as a CUDA graph."""
        return self._program.replay.replayed

    @property
    def epoch(self) -> int:
        """Epochs trained so far."""
        return len(self.history)

    @property
    def done(self) -> bool:
        """Whether all epochs are trained or patience has run out."""
        if self.epoch >= self.settings.epochs:
            return True
        patience = self.settings.patience
        return self.best is not None and patience is not None and self.epoch - self.best.epoch >= patience

    def step(self) -> EpochRecord:
        """Train one epoch, then look at training and validation nodes once."""
        self._program.advance()
        return self._course.add(self._program.history(self.epoch)[0][0])

    def finish(self) -> FitResult:
        """Put the best epoch's weights into the model and measure them, on the test nodes too."""
        if self.best is None:
            raise Node2SeqError("no epoch was trained", "there is nothing to finish", "Call step() first")
        return self._course.result(self._program.finish()[0])

    def state_dict(self) -> dict[str, Any]:
        """Everything that training goes on from: tensors in nested dicts."""
        return self._program.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where :meth:`state_dict` was taken."""
        self._program.load_state_dict(state)
        self._course.history.clear()
        for row in self._program.history():
            self._course.add(row[0])


def fit(
    model: nn.Module,
    data: Data,
    split: SplitLike,
    settings: TrainSettings | None = None,
    *,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> FitResult:
    """Train ``model``, leave it with the weights of its best epoch, and measure it.

    The best epoch is the one of highest validation accuracy, ties by lower validation loss, then the
    first. The test nodes are measured after training, with the weights of that epoch.

    Args:
        model: See :class:`Fitter`.
        data: See :class:`Fitter`.
        split: See :class:`Fitter`.
        settings: How to train; the defaults of :class:`TrainSettings` if left out.
        on_epoch: Called after every epoch.
    """
    fitter = Fitter(model, data, split, settings or TrainSettings())
    while not fitter.done:
        record = fitter.step()
        if on_epoch is not None:
            on_epoch(record)
    return fitter.finish()


def evaluate(model: nn.Module, data: Data, index: Tensor) -> Metrics:
    """Measure ``model`` on the labelled nodes ``index`` of ``data``."""
    x, edge_index, y = graph_on(model, data)
    index = index.to(x.device)
    check_split({"given": index}, y)
    return measure(_logits(model, x, edge_index)[index], y[index])


def predict(model: nn.Module, data: Data) -> Tensor:
    """Return class probabilities ``[nodes, classes]`` for every node, labelled or not."""
    x, edge_index, _ = graph_on(model, data, needs_labels=False)
    check_features(x)
    return _logits(model, x, edge_index).softmax(dim=1)


def embed(model: nn.Module, data: Data) -> Tensor:
    """Return what ``model.embed`` gives for every node: its embedding before the last layer."""
    call = getattr(model, "embed", None)
    if call is None:
        raise Node2SeqError(
            f"the model {type(model).__name__}", "it has no embed method", "Use a model of this package"
        )
    x, edge_index, _ = graph_on(model, data, needs_labels=False)
    check_features(x)
    return _inference(model, call, x, edge_index)


def as_read_by(model: nn.Module, x: Tensor) -> Tensor | ops.SparseRows:
    """Features as a model is to read them: without their zeros, if it can and they are worth leaving out.

    A model says that it can with ``reads_sparse_rows`` in its own class: one that is derived from it may do
    anything with its input, and so may hooks.
    """
    can = vars(type(model)).get("reads_sparse_rows", False)
    is_hooked = any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    found = ops.sparse_rows(x) if can and not is_hooked else None
    return x if found is None else found


def _inference(model: nn.Module, call: Callable[..., Tensor], x: Tensor, edge_index: Tensor) -> Tensor:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return call(as_read_by(model, x), edge_index)
    finally:
        model.train(was_training)


def _logits(model: nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
    return _inference(model, model, x, edge_index)

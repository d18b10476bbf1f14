"""Fit, evaluate and predict, full batch; knows no model, so that every model gets the same loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from node2seq.checks import check_features, check_split, graph_on, split_warnings
from node2seq.errors import Node2SeqError
from node2seq.metrics import Metrics, measure

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "nadam": torch.optim.NAdam,
}


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained.

    Args:
        epochs: Full-batch steps at most.
        lr: Learning rate.
        weight_decay: L2 penalty on all parameters.
        conv_weight_decay: L2 penalty of the Node2Seq layer alone; None: the same as ``weight_decay``.
        patience: Stop after so many epochs without a better validation accuracy (or an equal one with a
            lower validation loss); None: never.
        optimizer: ``"adam"`` or ``"nadam"``.
        class_weights: Weigh each class by the inverse of its share of the training nodes.
    """

    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    conv_weight_decay: float | None = None
    patience: int | None = None
    optimizer: Literal["adam", "nadam"] = "adam"
    class_weights: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise Node2SeqError(
                f"epochs={self.epochs}", "training needs at least one epoch", "Give 1 or more"
            )
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise Node2SeqError(f"lr={self.lr}", "the learning rate must be positive", "Try 0.01")
        for name in ("weight_decay", "conv_weight_decay"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise Node2SeqError(f"{name}={value}", "a penalty cannot be negative", "Give 0 or more")
        if self.patience is not None and self.patience < 1:
            raise Node2SeqError(
                f"patience={self.patience}",
                "training would stop before it starts",
                "Give 1 or more, or leave it out to train all epochs",
            )
        if self.optimizer not in OPTIMIZERS:
            raise Node2SeqError(
                f"optimizer={self.optimizer!r}",
                "there is no such optimizer",
                f"Choose one of {', '.join(OPTIMIZERS)}",
            )


@runtime_checkable
class HasParameterGroups(Protocol):
    """A model that tells its Node2Seq layer's parameters from the others."""

    def parameter_groups(self) -> Mapping[str, Iterable[nn.Parameter]]: ...  # noqa: D102


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

    def better_than(self, other: EpochRecord | None) -> bool:
        """Higher validation accuracy, then lower validation loss; the first of equals stays."""
        if other is None:
            return True
        return (self.val_accuracy, -self.val_loss) > (other.val_accuracy, -other.val_loss)


@dataclass(frozen=True)
class FitResult:
    """The chosen epoch and what the model reaches with its weights; ``test`` is None without test nodes."""

    best: EpochRecord
    history: tuple[EpochRecord, ...]
    train: Metrics
    val: Metrics
    test: Metrics | None
    warnings: tuple[str, ...]


class Fitter:
    """Trains epoch by epoch and can be put away and taken up again between any two of them.

    Args:
        model: Called as ``model(x, edge_index)``, gives logits ``[nodes, classes]``. If it has
            ``parameter_groups()``, the group named ``"node2seq"`` gets ``conv_weight_decay``.
        data: ``x``, ``edge_index`` and ``y``, where −1 means unlabelled. Moved to the model's device.
        split: Indices of training, validation and test nodes.
        settings: How to train.
    """

    def __init__(self, model: nn.Module, data: Data, split: SplitLike, settings: TrainSettings) -> None:
        self.model, self.settings = model, settings
        self.x, self.edge_index, self.y = graph_on(model, data)
        check_features(self.x)
        self.split = {name: getattr(split, name).to(self.x.device) for name in ("train", "val", "test")}
        check_split(self.split, self.y)
        self.warnings = split_warnings(self.split, self.y)
        self.history: list[EpochRecord] = []
        self.best: EpochRecord | None = None
        self._best_weights: dict[str, Tensor] = {}
        self._optimizer = _make_optimizer(model, settings)
        self._class_weights: Tensor | None = None

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
        train, val = self.split["train"], self.split["val"]
        self.model.train()
        self._optimizer.zero_grad(set_to_none=True)
        logits = self.model(self.x, self.edge_index)
        if self.epoch == 0:
            self._check_logits(logits)
        if self.settings.class_weights and self._class_weights is None:
            self._class_weights = _balance(self.y[train], logits.size(1)).to(logits)
        loss = F.cross_entropy(logits[train], self.y[train], weight=self._class_weights)
        loss.backward()
        self._optimizer.step()

        logits = _logits(self.model, self.x, self.edge_index)
        val_loss = F.cross_entropy(logits[val].float(), self.y[val])
        hits = [_hits(logits, self.y, index) for index in (train, val)]
        # Brought over together: each figure asked for alone would wait for the GPU once more.
        figures = torch.stack([figure.detach().double() for figure in (loss, val_loss, *hits)]).tolist()
        record = EpochRecord(
            epoch=self.epoch + 1,
            loss=figures[0],
            train_accuracy=figures[2] / train.numel(),
            val_loss=figures[1],
            val_accuracy=figures[3] / val.numel(),
        )
        if not (math.isfinite(record.loss) and math.isfinite(record.val_loss)):
            raise Node2SeqError(
                f"lr={self.settings.lr}",
                f"the loss became {record.loss} (validation: {record.val_loss}) in epoch {record.epoch}",
                "Train with a lower learning rate, and look for features of very different size",
            )
        self.history.append(record)
        if record.better_than(self.best):
            self.best = record
            self._best_weights = {k: v.clone() for k, v in self.model.state_dict().items()}
        return record

    def finish(self) -> FitResult:
        """Put the best epoch's weights into the model and measure them, on the test nodes too."""
        if self.best is None:
            raise Node2SeqError("no epoch was trained", "there is nothing to finish", "Call step() first")
        self.model.load_state_dict(self._best_weights)
        logits = _logits(self.model, self.x, self.edge_index)
        measured = {
            name: measure(logits[index], self.y[index]) if index.numel() else None
            for name, index in self.split.items()
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

    def state_dict(self) -> dict[str, Any]:
        """Everything that training goes on from: tensors in nested dicts, and JSON values.

        Dropout is part of the model's own state (it is counted, not drawn), so no generator is kept.
        """
        return {
            "model": dict(self.model.state_dict()),
            "best": dict(self._best_weights),
            "optimizer": {str(i): state for i, state in self._optimizer.state_dict()["state"].items()},
            "history": [asdict(record) for record in self.history],
            "best_epoch": None if self.best is None else self.best.epoch,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where :meth:`state_dict` was taken."""
        self.model.load_state_dict(state["model"])
        self._best_weights = {k: v.to(self.x.device) for k, v in state["best"].items()}
        groups = self._optimizer.state_dict()["param_groups"]
        slots = {int(i): slot for i, slot in state["optimizer"].items()}
        self._optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.history = [EpochRecord(**record) for record in state["history"]]
        best_epoch = state["best_epoch"]
        self.best = None if best_epoch is None else self.history[best_epoch - 1]

    def _check_logits(self, logits: Tensor) -> None:
        if logits.dim() != 2 or logits.size(0) != self.x.size(0):
            raise Node2SeqError(
                f"a model output of shape {list(logits.shape)}",
                f"the graph has {self.x.size(0)} nodes, and each needs one row of logits",
                "Return [nodes, classes] from the model's forward",
            )
        highest = int(self.y.max())
        if highest >= logits.size(1):
            raise Node2SeqError(
                f"label {highest}",
                f"the model gives {logits.size(1)} classes, 0 to {logits.size(1) - 1}",
                f"Build the model with out_channels={highest + 1}",
            )


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
    first. The test nodes are looked at once, at that epoch.

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


def _inference(model: nn.Module, call: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return call(*inputs)
    finally:
        model.train(was_training)


def _logits(model: nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
    return _inference(model, model, x, edge_index)


def _hits(logits: Tensor, y: Tensor, index: Tensor) -> Tensor:
    return (logits[index].argmax(dim=1) == y[index]).sum()


def _balance(labels: Tensor, num_classes: int) -> Tensor:
    """Weights by which every class that occurs counts the same, with mean 1 over the training nodes."""
    counts = torch.bincount(labels, minlength=num_classes)
    present = int((counts > 0).sum())
    return labels.numel() / (present * counts.clamp(min=1).double())


def _make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    decay = {"node2seq": settings.conv_weight_decay}
    named: Mapping[str, Iterable[nn.Parameter]] = {"all": model.parameters()}
    if isinstance(model, HasParameterGroups):
        named = model.parameter_groups()
    groups = []
    for name, parameters in named.items():
        own = decay.get(name)
        groups.append(
            {"params": list(parameters), "weight_decay": settings.weight_decay if own is None else own}
        )
    return OPTIMIZERS[settings.optimizer](groups, lr=settings.lr)

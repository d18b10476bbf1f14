"""What is predicted of each node: how many outputs it takes, its loss, its metrics and its predictions.

The labels of a graph tell its task, see :func:`kind_of_labels`: class numbers, numbers, or whether each of
several labels holds. Everything that depends on it is asked of a :class:`Task`. Outputs are what a model
gives for T nodes of R runs, [R, T, outputs]; labels [R, T] or [R, T, labels] are as the graph has them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq.data.encoding import deviation_or_one
from node2seq.data.splits import kind_of_labels
from node2seq.errors import Node2SeqError
from node2seq.options import check_rules
from node2seq.train.measured import (
    Measured,
    Metrics,
    calibration_error,
    measure,
    measure_labels,
    measure_numbers,
)
from node2seq.train.metrics import LABEL_SCORES, NUMBER_SCORES, SCORES, Score
from node2seq.train.settings import TrainSettings

# Two classes are unequal if the larger one has more than this share of the labels.
_UNEQUAL = 0.6


class Task(ABC):
    """What is predicted of each node."""

    kind: ClassVar[str]
    by_node: ClassVar[str]
    """The metric that is a mean over nodes: that of :meth:`credit`."""
    scores: ClassVar[Mapping[str, Score]]
    """What an epoch can be chosen by."""
    losses: ClassVar[tuple[str, ...]]
    """The values of the setting ``loss`` beside None, which stands for the usual one."""
    has_classes: ClassVar[bool]
    """Whether a node has one of several classes, which can be weighed, smoothed and made to agree."""
    label_words: ClassVar[str]
    """What the labels are, in a message."""

    @abstractmethod
    def outputs(self, y: Tensor) -> int:
        """How many outputs a model needs for labels ``y`` of all nodes."""

    def stacked(self, tasks: Sequence[Any], device: torch.device) -> Task:  # noqa: ARG002
        """The task of R runs at once, of which this is the first, on their device."""
        return self

    def clean(self, labels: Tensor) -> Tensor:
        """Labels with something harmless in the place of those that are missing: class 0, or no label."""
        return labels.clamp(min=0)

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of each node, [R, T]."""

    @abstractmethod
    def credit(self, outputs: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """What each node adds to the metric :attr:`by_node`, [R, T]; padding adds nothing."""

    def score(self, metric: str) -> Score:
        """A metric that an epoch can be chosen by, of outputs."""
        return self.scores[metric]

    @abstractmethod
    def measure(self, outputs: Tensor, labels: Tensor) -> Measured:
        """Compare outputs ``[n, outputs]`` of one run with labels ``[n]``."""

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """What is predicted: a row of probabilities, or a number, for each node."""

    def calibrated(self, outputs: Tensor, labels: Tensor) -> Task:  # noqa: ARG002
        """The task with probabilities that fit nodes which were not trained on, where it has probabilities.

        Args:
            outputs: Of the validation nodes, ``[n, outputs]``.
            labels: Their labels.
        """
        return self

    @abstractmethod
    def labels(self, predicted: Tensor, names: Sequence[str]) -> list[Any]:
        """What to write down for each node, from what :meth:`predict` gave and the classes' names."""

    def fitting_metric(self, labels: Tensor, *, class_weights: bool = False) -> str:  # noqa: ARG002
        """The metric for labels of known nodes, unless told otherwise: the first of :attr:`scores`."""
        return next(iter(self.scores))

    @abstractmethod
    def warnings(self, split: Mapping[str, Tensor], y: Tensor) -> tuple[str, ...]:
        """What of a split can be trained on, yet should be known."""

    @property
    def described(self) -> dict[str, Any] | None:
        """What a run folder keeps of it, beside the classes, if anything; :func:`task_from` reads it."""
        return None

    def check(self, settings: TrainSettings) -> None:
        """Refuse settings that belong to another task."""
        of_classes = {
            name: getattr(settings, name) for name in ("class_weights", "label_smoothing", "consistency")
        }
        check_rules(
            (
                settings.metric in self.scores,
                f"metric={settings.metric}",
                f"the labels are {self.label_words}, and it is no metric of {self.kind}",
                f"Choose one of {', '.join(self.scores)}",
            ),
            (
                settings.loss in (None, *self.losses),
                f"loss={settings.loss}",
                f"it is no loss of {self.kind}",
                f"Choose one of {', '.join(self.losses)}" if self.losses else "Leave it out",
            ),
            *(
                (
                    self.has_classes or not value,
                    f"{name}={value}",
                    "it is for classes, one for each node",
                    "Leave it out",
                )
                for name, value in of_classes.items()
            ),
        )

    def check_outputs(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse a model that gives fewer outputs than the labels need."""
        needed = self.outputs(y)
        if outputs.size(-1) < needed:
            raise Node2SeqError(
                f"a model with {outputs.size(-1)} outputs",
                f"{self.kind} with these labels needs {needed}",
                f"Build the model with out_channels={needed}",
            )


@dataclass(frozen=True)
class Classification(Task):
    """A class for each node; labels are class numbers, −1 where there is none.

    Args:
        temperature: What logits are divided by before they become probabilities. It changes no prediction.
    """

    kind = "classification"
    by_node = "accuracy"
    scores = SCORES
    losses = ()
    has_classes = True
    label_words = "classes"

    temperature: float = 1.0

    def outputs(self, y: Tensor) -> int:
        """One for each class."""
        return int(y.max()) + 1

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy."""
        return F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)

    def credit(self, outputs: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """Whether the most probable class is the node's."""
        return (outputs.argmax(-1) == labels) & real

    def measure(self, outputs: Tensor, labels: Tensor) -> Metrics:
        """The metrics of classes."""
        return measure(outputs, labels)

    def predict(self, outputs: Tensor) -> Tensor:
        """The probability of each class, [N, classes]."""
        return _cooled(outputs, self.temperature).softmax(dim=-1)

    def calibrated(self, outputs: Tensor, labels: Tensor) -> Task:
        """With the temperature of the lowest cross-entropy."""
        return replace(self, temperature=best_temperature(F.cross_entropy, outputs, labels))

    def calibration_error(self, outputs: Tensor, labels: Tensor) -> float:
        """How far confidence and share of right predictions are apart."""
        confidence, guess = self.predict(outputs).max(-1)
        return calibration_error(confidence, guess == labels)

    def labels(self, predicted: Tensor, names: Sequence[str]) -> list[Any]:
        """The name of the most probable class."""
        return [names[number] for number in predicted.argmax(dim=1).tolist()]

    def fitting_metric(self, labels: Tensor, *, class_weights: bool = False) -> str:
        """The accuracy, unless it would favour the most frequent class."""
        counts = torch.bincount(labels)
        counts = counts[counts > 0]
        if counts.numel() == 2 and int(counts.max()) > _UNEQUAL * int(counts.sum()):
            return "roc-auc"
        return "balanced-accuracy" if class_weights else "accuracy"

    def warnings(self, split: Mapping[str, Tensor], y: Tensor) -> tuple[str, ...]:
        """Classes without training nodes."""
        trained = set(y[split["train"]].tolist())
        unseen = sorted(set(y[y >= 0].tolist()) - trained)
        texts = []
        if len(trained) == 1:
            texts.append("All training nodes have the same class: the model can learn nothing else.")
        if unseen:
            names = ", ".join(map(str, unseen))
            texts.append(f"No training node has class {names}: the model cannot learn to predict it.")
        return tuple(texts)

    def check_outputs(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse a label beyond the model's classes."""
        highest = int(y.max())
        if highest >= outputs.size(-1):
            raise Node2SeqError(
                f"label {highest}",
                f"the model gives {outputs.size(-1)} classes, 0 to {outputs.size(-1) - 1}",
                f"Build the model with out_channels={highest + 1}",
            )


@dataclass(frozen=True)
class Regression(Task):
    """A number for each node, NaN where it is not known.

    The model predicts it standardised: the shift subtracted, and the rest divided by the scale.

    Args:
        shift: Mean of the training nodes; of R runs, [R, 1].
        scale: Their standard deviation.
        loss_name: ``"mse"`` or ``"mae"``.
    """

    kind = "regression"
    by_node = "r2"
    scores = NUMBER_SCORES
    losses = ("mse", "mae")
    has_classes = False
    label_words = "numbers"

    shift: float | Tensor = 0.0
    scale: float | Tensor = 1.0
    loss_name: str = "mse"

    @classmethod
    def fitted(cls, labels: Tensor, loss_name: str | None = None) -> Regression:
        """The task with the scale of training nodes.

        Args:
            labels: Their numbers.
            loss_name: The setting ``loss``.
        """
        labels = labels.double()
        mean, deviation = labels.mean().item(), labels.std(correction=0).item()
        return cls(mean, deviation_or_one(mean, deviation), loss_name or "mse")

    def outputs(self, y: Tensor) -> int:  # noqa: ARG002
        """One: the number."""
        return 1

    def stacked(self, tasks: Sequence[Any], device: torch.device) -> Task:
        """The scales of all runs as tensors."""
        shift, scale = (
            torch.tensor([[getattr(task, name)] for task in tasks], dtype=torch.float64, device=device)
            for name in ("shift", "scale")
        )
        return Regression(shift, scale, self.loss_name)

    def clean(self, labels: Tensor) -> Tensor:
        """Zero where there is none."""
        return labels.nan_to_num(0.0)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The squared or the absolute error, in standard deviations."""
        error = outputs.squeeze(-1) - ((labels - self.shift) / self.scale).to(outputs.dtype)
        return error.abs() if self.loss_name == "mae" else error.square()

    def credit(self, outputs: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """1 less the squared error in parts of the variance of the labels: the mean is R²."""
        count = real.sum(-1, keepdim=True)
        mean = labels.masked_fill(~real, 0.0).sum(-1, keepdim=True) / count
        variance = (labels - mean).square().masked_fill(~real, 0.0).sum(-1, keepdim=True) / count
        error = (self.predict(outputs) - labels).square()
        return (1 - error / variance.masked_fill(variance == 0, 1.0)).masked_fill(~real, 0.0)

    def score(self, metric: str) -> Score:
        """A metric of the numbers that the outputs stand for."""
        return lambda outputs, labels, real: self.scores[metric](self.predict(outputs), labels, real)

    def measure(self, outputs: Tensor, labels: Tensor) -> Measured:
        """The metrics of numbers."""
        assert isinstance(self.shift, float)
        loss = self.loss(outputs.double(), labels).mean().item()
        return measure_numbers(self.predict(outputs), labels, self.shift, loss)

    def predict(self, outputs: Tensor) -> Tensor:
        """The number of each node, in its own unit, [N]."""
        return outputs.squeeze(-1).double() * self.scale + self.shift

    def labels(self, predicted: Tensor, names: Sequence[str]) -> list[Any]:  # noqa: ARG002
        """The number."""
        return predicted.tolist()

    def warnings(self, split: Mapping[str, Tensor], y: Tensor) -> tuple[str, ...]:
        """Numbers that are all the same."""
        if bool((y[split["train"]] == y[split["train"][0]]).all()):
            return ("All training nodes have the same number: the model can learn nothing else.",)
        return ()

    @property
    def described(self) -> dict[str, Any]:
        """Its kind and its scale."""
        return {"kind": self.kind, "shift": self.shift, "scale": self.scale}


@dataclass(frozen=True)
class MultiLabel(Task):
    """Several labels for each node, [N, labels]: 1 where one holds, 0 where not, −1 where nothing is known.

    Args:
        separator: What separates the names of labels where they are written down.
        columns: The columns that they were read from; none: one column with a separator.
        temperature: What logits are divided by before they become probabilities. It changes no prediction.
    """

    kind = "multi-label"
    by_node = "accuracy"
    scores = LABEL_SCORES
    losses = ()
    has_classes = False
    label_words = "several for each node"

    separator: str = ";"
    columns: tuple[str, ...] = ()
    temperature: float = 1.0

    def outputs(self, y: Tensor) -> int:
        """One for each label."""
        return y.size(1)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The binary cross-entropy, mean over the labels."""
        target = labels.to(outputs.dtype)
        return F.binary_cross_entropy_with_logits(outputs, target, reduction="none").mean(-1)

    def credit(self, outputs: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """The share of a node's labels that is right."""
        return ((outputs > 0) == (labels > 0)).double().mean(-1).masked_fill(~real, 0.0)

    def measure(self, outputs: Tensor, labels: Tensor) -> Measured:
        """The metrics of labels."""
        return measure_labels(outputs, labels)

    def predict(self, outputs: Tensor) -> Tensor:
        """The probability of each label, [N, labels]."""
        return _cooled(outputs, self.temperature).sigmoid()

    def calibrated(self, outputs: Tensor, labels: Tensor) -> Task:
        """With the temperature of the lowest binary cross-entropy."""
        loss = F.binary_cross_entropy_with_logits
        return replace(self, temperature=best_temperature(loss, outputs, labels.double()))

    def calibration_error(self, outputs: Tensor, labels: Tensor) -> float:
        """How far confidence and share of right decisions about all labels are apart."""
        probability = self.predict(outputs)
        confidence = torch.maximum(probability, 1 - probability)
        return calibration_error(confidence.flatten(), ((outputs > 0) == (labels > 0)).flatten())

    def labels(self, predicted: Tensor, names: Sequence[str]) -> list[Any]:
        """The names of the labels that are more probable than not."""
        rows = (predicted > 0.5).tolist()
        return [
            self.separator.join(name for name, holds in zip(names, row, strict=True) if holds) for row in rows
        ]

    def warnings(self, split: Mapping[str, Tensor], y: Tensor) -> tuple[str, ...]:
        """Labels that all training nodes have, or none of them."""
        share = y[split["train"]].double().mean(0)
        constant = ((share == 0) | (share == 1)).nonzero().view(-1).tolist()
        if not constant:
            return ()
        names = ", ".join(map(str, constant))
        return (f"All training nodes have label {names}, or none has: the model can learn nothing else.",)

    @property
    def described(self) -> dict[str, Any]:
        """Its kind and how it was read."""
        return {"kind": self.kind, "separator": self.separator, "columns": list(self.columns)}


# Temperatures from a tenth to ten are tried, in steps that become ten times finer three times.
_WIDEST, _STEPS, _REFINEMENTS = math.log(10), 10, 4


def best_temperature(loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, labels: Tensor) -> float:
    """The temperature at which the summed loss of nodes is lowest, with a weak pull to 1.

    Without the pull, a few nodes that are all right would make every probability 1.
    """
    outputs, labels = outputs.detach().cpu().double(), labels.detach().cpu()
    best, width = 0.0, _WIDEST
    for _ in range(_REFINEMENTS):
        tried = [best + width * step / _STEPS for step in range(-_STEPS, _STEPS + 1)]
        tried = [power for power in tried if abs(power) <= _WIDEST + 1e-9]
        costs = [
            len(outputs) * loss(outputs / math.exp(power), labels).item() + power**2 / 2 for power in tried
        ]
        best, width = tried[costs.index(min(costs))], width / _STEPS
    return round(math.exp(best), 6)


def _cooled(outputs: Tensor, temperature: float) -> Tensor:
    """Logits divided by a temperature, in 64 bits: no two of them become equal, so that the order stays."""
    return outputs if temperature == 1.0 else outputs.double() / temperature


def task_for(
    y: Tensor,
    train: Tensor | None = None,
    loss: str | None = None,
    described: Mapping[str, Any] | None = None,
) -> Task:
    """The task that labels tell.

    Args:
        y: The labels of all nodes.
        train: The training nodes, whose numbers give the scale; None: numbers are predicted as they are.
        loss: The setting ``loss``.
        described: How the labels were read, as the schema of the graph says.
    """
    kind = kind_of_labels(y)
    if kind == Classification.kind:
        return Classification()
    if kind == MultiLabel.kind:
        return MultiLabel() if described is None else task_from(described)
    return Regression(loss_name=loss or "mse") if train is None else Regression.fitted(y[train], loss)


def task_from(described: Mapping[str, Any] | None, loss: str | None = None) -> Task:
    """The task of a run from what its folder keeps.

    Args:
        described: What :attr:`Task.described` gave; None: classes.
        loss: The setting ``loss``.
    """
    if described is None or described["kind"] == Classification.kind:
        return Classification()
    if described["kind"] == MultiLabel.kind:
        return MultiLabel(str(described["separator"]), tuple(described["columns"]))
    return Regression(float(described["shift"]), float(described["scale"]), loss or "mse")

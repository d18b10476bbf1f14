"""All that is known of a model's predictions for a set of nodes, whatever is predicted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from node2seq.train.metrics import (
    ERRORS,
    LABEL_SCORES,
    METRIC_TITLES,
    NUMBER_SCORES,
    label_counts,
    precisions_by_class,
    ratio,
    roc_areas,
    shown,
)


@dataclass(frozen=True)
class Measured(ABC):
    """What a model reaches on a set of nodes, whatever is predicted."""

    task: ClassVar[str]
    """What is predicted."""
    figures: ClassVar[tuple[str, ...]]
    """The metrics that tables show."""
    reference_name: ClassVar[str]
    """What a result is compared with: predicting the same for all nodes."""
    reference_title: ClassVar[str]
    reference_metric: ClassVar[str]
    trivial_words: ClassVar[str]
    row_word: ClassVar[str] = "class"
    """What :attr:`rows` has an entry for."""

    nodes: int
    loss: float

    @property
    def says_one_class(self) -> bool:
        """Whether all nodes are predicted as the same class, although they are of several."""
        return False

    @property
    def rows(self) -> tuple[ClassMetrics, ...]:
        """One entry for each class or label, where there are any."""
        return ()

    def value(self, metric: str) -> float | None:
        """One of the metrics by the name of the setting; None where it is not defined."""
        return getattr(self, metric.replace("-", "_"))

    @property
    def reference(self) -> float:
        """What predicting the same for all nodes reaches, by the metric of the reference."""
        return self.trivial(self.reference_metric)

    @abstractmethod
    def trivial(self, metric: str) -> float:
        """What predicting the same for all nodes reaches by a metric."""

    def beats_trivial(self, metric: str) -> bool:
        """Whether it is better than that, as far as the metric is defined."""
        value, trivial = self.value(metric), self.trivial(metric)
        return value is None or (value < trivial if metric in ERRORS else value > trivial)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only, ready for JSON; :func:`metrics_from_dict` reads them."""
        return {"task": self.task, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build the metrics back from the values that :meth:`to_dict` gave, without the task."""
        rows = {name: values[name] for name in ("per_class", "per_label") if name in values}
        built = {name: tuple(ClassMetrics(**row) for row in own) for name, own in rows.items()}
        lists = {name: values[name] for name in ("confusion", "points") if name in values}
        return cls(**{**values, **built, **{name: tuple(map(tuple, own)) for name, own in lists.items()}})


@dataclass(frozen=True)
class ClassMetrics:
    """One class against all others; ``support`` is the number of its nodes."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Metrics(Measured):
    """What a model reaches on a set of nodes that have a class each.

    Args:
        nodes: How many nodes were judged.
        loss: Mean cross-entropy, without class weights.
        accuracy: Share of nodes whose most probable class is theirs.
        macro_f1: Mean F1 over the classes that occur among the labels or the predictions.
        roc_auc: One-vs-rest area under the ROC curve, mean over the classes that have both positives and
            negatives; None where no class has both.
        per_class: One entry per class, in the order of the class ids.
        confusion: ``confusion[true][predicted]`` counts nodes.
        average_precision: One-vs-rest average precision, mean over the classes that have nodes; None in what
            earlier versions measured.
    """

    task = "classification"
    figures = ("accuracy", "macro-f1", "roc-auc")
    reference_name = "largest_class"
    reference_title = "largest class"
    reference_metric = "accuracy"
    trivial_words = "the most frequent class"

    accuracy: float
    macro_f1: float
    roc_auc: float | None
    per_class: tuple[ClassMetrics, ...]
    confusion: tuple[tuple[int, ...], ...]
    average_precision: float | None = None

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall over the classes that have nodes."""
        recalls = [row.recall for row in self.per_class if row.support]
        return sum(recalls) / len(recalls)

    @property
    def largest_class(self) -> float:
        """Share of the nodes that have the most frequent class: what predicting it for all would hit."""
        return max(row.support for row in self.per_class) / self.nodes

    @property
    def says_one_class(self) -> bool:
        """Whether all nodes are predicted as the same class, although they are of several."""
        supports = [row.support for row in self.per_class if row.support]
        return len(supports) > 1 and sum(map(any, zip(*self.confusion, strict=True))) == 1

    @property
    def rows(self) -> tuple[ClassMetrics, ...]:
        """One entry for each class."""
        return self.per_class

    def trivial(self, metric: str) -> float:
        """What predicting the most frequent class for all nodes reaches by a metric."""
        supports = [row.support for row in self.per_class if row.support]
        share = self.largest_class
        values = {
            "accuracy": share,
            "balanced-accuracy": 1 / len(supports),
            "macro-f1": 2 * share / (1 + share) / len(supports),
            "roc-auc": 0.5,
            "average-precision": 1 / len(supports),  # every class is as precise as it is frequent
        }
        return values[metric]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only, ready for JSON; the first versions had no other task to tell."""
        return asdict(self)


# The most nodes in a chart of predicted and true numbers.
_MOST_POINTS = 400


@dataclass(frozen=True)
class NumberMetrics(Measured):
    """What a model reaches on a set of nodes that have a number each.

    Args:
        nodes: How many nodes were judged.
        loss: Mean of the training's loss, in standard deviations of the training nodes.
        r2: Share of the variance that is explained; None where all numbers are the same.
        mae: Mean absolute error.
        rmse: Root of the mean squared error.
        mean_r2: R² of predicting the mean of the training nodes for all.
        mean_mae: The mean absolute error of that.
        mean_rmse: The root of its mean squared error.
        points: True and predicted number of some of the nodes, evenly chosen.
    """

    task = "regression"
    figures = ("r2", "mae", "rmse")
    reference_name = "mae_of_training_mean"
    reference_title = "MAE of the training mean"
    reference_metric = "mae"
    trivial_words = "the mean of the training nodes"

    r2: float | None
    mae: float
    rmse: float
    mean_r2: float | None
    mean_mae: float
    mean_rmse: float
    points: tuple[tuple[float, float], ...]

    def trivial(self, metric: str) -> float:
        """What predicting the mean of the training nodes for all reaches by a metric."""
        value = getattr(self, f"mean_{metric}")
        return 0.0 if value is None else value


@dataclass(frozen=True)
class LabelMetrics(Measured):
    """What a model reaches on a set of nodes that have several labels, or none, each.

    Args:
        nodes: How many nodes were judged.
        loss: Mean binary cross-entropy.
        micro_f1: F1 over the decisions about all labels together.
        macro_f1: Mean F1 over the labels that occur among the nodes or the predictions.
        accuracy: Share of right decisions about a label of a node.
        per_label: One entry for each label, in their order.
    """

    task = "multi-label"
    figures = ("micro-f1", "macro-f1", "accuracy")
    reference_name = "micro_f1_of_the_same_labels"
    reference_title = "micro-F1 of the same labels for all"
    reference_metric = "micro-f1"
    trivial_words = "the same labels"
    row_word = "label"

    micro_f1: float
    macro_f1: float
    accuracy: float
    per_label: tuple[ClassMetrics, ...]

    @property
    def rows(self) -> tuple[ClassMetrics, ...]:
        """One entry for each label."""
        return self.per_label

    def trivial(self, metric: str) -> float:
        """What the best choice of labels that is predicted for all nodes reaches by a metric."""
        counts = sorted((row.support for row in self.per_label), reverse=True)
        if metric == "accuracy":
            return sum(max(count, self.nodes - count) for count in counts) / (self.nodes * len(counts))
        if metric == "macro-f1":
            return sum(2 * count / (count + self.nodes) for count in counts) / len(counts)
        hits = [sum(counts[: k + 1]) for k in range(len(counts))]
        return max(2 * hit / ((k + 1) * self.nodes + sum(counts)) for k, hit in enumerate(hits))


def metrics_from_dict(values: Mapping[str, Any]) -> Measured:
    """Build metrics of any task back from what their ``to_dict`` gave."""
    kinds = {kind.task: kind for kind in (Metrics, NumberMetrics, LabelMetrics)}
    kind = kinds[values.get("task", Metrics.task)]
    return kind.from_dict({name: value for name, value in values.items() if name != "task"})


def measure_numbers(values: Tensor, labels: Tensor, training_mean: float, loss: float) -> NumberMetrics:
    """Compare predicted numbers ``[n]`` with true ones ``[n]``; n must be at least 1.

    Args:
        values: What is predicted.
        labels: What is true.
        training_mean: What predicting the same for all nodes would say.
        loss: The mean of the training's loss.
    """
    values, labels = values.detach().cpu().double(), labels.detach().cpu().double()
    all_real = torch.ones(1, labels.numel(), dtype=torch.bool)
    constant = torch.full_like(labels, training_mean)
    found = {}
    for name, numbers in (("", values), ("mean_", constant)):
        for metric, score in NUMBER_SCORES.items():
            value = score(numbers[None], labels[None], all_real).item()
            found[name + metric] = None if value != value else abs(value) if metric in ERRORS else value
    stride = -(-labels.numel() // _MOST_POINTS)
    pairs = torch.stack([labels, values], dim=1)[::stride].tolist()
    points = tuple((float(f"{true:.6g}"), float(f"{value:.6g}")) for true, value in pairs)
    return NumberMetrics(nodes=labels.numel(), loss=loss, points=points, **found)


def measure_labels(logits: Tensor, labels: Tensor) -> LabelMetrics:
    """Compare logits ``[n, labels]`` with whether each label holds, ``[n, labels]``; n must be at least 1."""
    logits, labels = logits.detach().cpu().double(), labels.detach().cpu()
    one_run = (logits[None], labels[None], torch.ones(1, len(labels), dtype=torch.bool))
    hits, support, claimed = (counts[0] for counts in label_counts(*one_run))
    return LabelMetrics(
        nodes=len(labels),
        loss=F.binary_cross_entropy_with_logits(logits, labels.double()).item(),
        **{name.replace("-", "_"): score(*one_run).item() for name, score in LABEL_SCORES.items()},
        per_label=_by_class(hits, support, claimed),
    )


def measure(logits: Tensor, labels: Tensor) -> Metrics:
    """Compare logits ``[n, classes]`` with labels ``[n]``; n must be at least 1."""
    logits, labels = logits.detach().cpu().double(), labels.detach().cpu()
    num_classes = logits.size(1)
    predicted = logits.argmax(dim=1)
    confusion = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    confusion = confusion.view(num_classes, num_classes)
    hits, support, claimed = confusion.diag(), confusion.sum(dim=1), confusion.sum(dim=0)
    f1 = ratio(2 * hits, support + claimed)
    one_run = (logits[None], labels[None], torch.ones_like(labels[None], dtype=torch.bool))
    return Metrics(
        nodes=labels.numel(),
        loss=F.cross_entropy(logits, labels).item(),
        accuracy=int(hits.sum()) / labels.numel(),
        macro_f1=f1[(support + claimed) > 0].mean().item(),
        roc_auc=_mean_of_defined(roc_areas(*one_run)),
        average_precision=_mean_of_defined(precisions_by_class(*one_run)),
        per_class=_by_class(hits, support, claimed),
        confusion=tuple(map(tuple, confusion.tolist())),
    )


def _by_class(hits: Tensor, support: Tensor, claimed: Tensor) -> tuple[ClassMetrics, ...]:
    """The metrics of each class or label: how often it was hit, how often it is so, how often predicted."""
    # F1 is 2PR/(P+R) rewritten over counts: a class that was never predicted needs no special case.
    figures = (ratio(hits, claimed), ratio(hits, support), ratio(2 * hits, support + claimed), support)
    return tuple(
        ClassMetrics(*values, support=count)
        for *values, count in zip(*(figure.tolist() for figure in figures), strict=True)
    )


def _mean_of_defined(by_class: tuple[Tensor, Tensor]) -> float | None:
    values, defined = (tensor[0] for tensor in by_class)
    found = values[defined].tolist()
    return sum(found) / len(found) if found else None


# The number of groups, of equal width, in which confidence and share of right predictions are compared.
_GROUPS = 15


def calibration_error(confidence: Tensor, right: Tensor) -> float:
    """The expected calibration error (ECE): how far confidence and share of right predictions are apart.

    Args:
        confidence: The probability of what is predicted, [n].
        right: Whether it is so, [n].
    """
    confidence, right = confidence.detach().cpu().double(), right.detach().cpu().double()
    group = (confidence * _GROUPS).ceil().long().clamp(1, _GROUPS) - 1
    gaps = torch.zeros(_GROUPS, dtype=torch.float64).index_add(0, group, confidence - right)
    return gaps.abs().sum().item() / confidence.numel()


def result_warnings(measured: Mapping[str, Measured], metric: str) -> tuple[str, ...]:
    """Say aloud if a result is no better than predicting the same for all nodes."""
    part, words = ("test", "test") if "test" in measured else ("val", "validation")
    found = measured[part]
    if (beats := found.beats_trivial(metric)) and not found.says_one_class:
        return ()
    value, trivial = (shown(metric, number, " %") for number in (found.value(metric), found.trivial(metric)))
    title, told = METRIC_TITLES[metric], f"Predicting {found.trivial_words} for all of them gives {trivial}"
    if beats:
        return (f"All {words} nodes are predicted as one class. The {title} of {value} is of their order.",)
    told += ": the model has learned nothing that helps."
    return (f"The {title} on {words} nodes is {value}. {told}",)


@dataclass(frozen=True)
class Calibration:
    """How probabilities were calibrated.

    Args:
        temperature: What logits are divided by, found on validation nodes.
        before: The expected calibration error of each part of the split with the logits as they are.
        after: The same with the temperature.
    """

    temperature: float
    before: dict[str, float]
    after: dict[str, float]


@dataclass(frozen=True)
class LinearGain:
    """What a linear part adds to a network.

    Args:
        hops: From how many hops it reads.
        share: Its share in the logits, once both are scaled to fit; 0: the network is better alone.
        before: The metric of the network alone on each part of the split; None where it is not defined.
        after: The same with the linear part.
    """

    hops: int
    share: float
    before: dict[str, float | None]
    after: dict[str, float | None]

"""How good predictions are: metrics that an epoch can be chosen by, and all that is known of a set of nodes.

A metric that chooses takes logits [R, T, classes], labels [R, T] and which of the nodes are no padding,
[R, T], for R runs at once and without a wait for the device. It gives one number from 0 to 1 for each run,
[R], float64; NaN where it is not defined, as an area under the ROC curve is not among nodes of one class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Score = Callable[[Tensor, Tensor, Tensor], Tensor]

#: How each metric is called in tables, by the name of the setting ``metric``.
METRIC_TITLES = {
    "accuracy": "accuracy",
    "balanced-accuracy": "balanced accuracy",
    "macro-f1": "macro-F1",
    "roc-auc": "ROC-AUC",
    "average-precision": "average precision",
}
# Two classes are unequal if the larger one has more than this share of the labels.
_UNEQUAL = 0.6


def accuracy(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The share of nodes whose most probable class is theirs."""
    right = (logits.argmax(-1) == labels) & real
    return _ratio(right.sum(1), real.sum(1))


def balanced_accuracy(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The mean recall over the classes that have nodes."""
    hits, support, _ = _counts(logits, labels, real)
    return _mean_where(support > 0, _ratio(hits, support))


def macro_f1(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The mean F1 over the classes that occur among the labels or the predictions."""
    hits, support, claimed = _counts(logits, labels, real)
    return _mean_where(support + claimed > 0, _ratio(2 * hits, support + claimed))


def roc_auc(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """One-vs-rest area under the ROC curve, mean over the classes that have positives and negatives."""
    areas, defined = roc_areas(logits, labels, real)
    return _mean_where(defined, areas)


def average_precision(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """One-vs-rest average precision, mean over the classes that have nodes."""
    precisions, defined = precisions_by_class(logits, labels, real)
    return _mean_where(defined, precisions)


#: By the name of the setting ``metric``.
SCORES: dict[str, Score] = {
    "accuracy": accuracy,
    "balanced-accuracy": balanced_accuracy,
    "macro-f1": macro_f1,
    "roc-auc": roc_auc,
    "average-precision": average_precision,
}


def roc_areas(logits: Tensor, labels: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The area of each class and whether it has one, both [R, classes]."""
    values, ordered, positive = _by_class(logits, labels, real)
    # The area is the chance that a positive outranks a negative; equal scores count half.
    ranks = (torch.searchsorted(ordered, values) + torch.searchsorted(ordered, values, right=True) + 1) / 2.0
    ranks = ranks.double() - (~real).sum(1).double()[:, None, None]  # padding stands before all others
    n_pos = positive.sum(-1)
    n_neg = real.sum(1)[:, None] - n_pos
    rank_sum = ranks.masked_fill(~positive, 0.0).sum(-1)
    areas = (rank_sum - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg).clamp(min=1)
    return areas, (n_pos > 0) & (n_neg > 0)


def precisions_by_class(logits: Tensor, labels: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The average precision of each class and whether it has one, both [R, classes]."""
    values, ordered, positive = _by_class(logits, labels, real)
    ordered_positives = values.masked_fill(~positive, -torch.inf).sort(-1).values
    nodes = values.size(-1)
    at_least = nodes - torch.searchsorted(ordered, values)
    positives_at_least = nodes - torch.searchsorted(ordered_positives, values)
    precision = _ratio(positives_at_least, at_least).masked_fill(~positive, 0.0)
    n_pos = positive.sum(-1)
    return precision.sum(-1) / n_pos.clamp(min=1), n_pos > 0


def _by_class(logits: Tensor, labels: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each class's probabilities, the same in ascending order, and who is of the class: [R, classes, T]."""
    values = logits.double().softmax(-1).transpose(1, 2).contiguous()
    values = values.masked_fill(~real[:, None], -torch.inf)
    classes = torch.arange(logits.size(-1), device=logits.device)
    positive = (labels[:, None] == classes[:, None]) & real[:, None]
    return values, values.sort(-1).values, positive


def _counts(logits: Tensor, labels: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hits, labels and predictions of each class, [R, classes]: whole numbers, exact in any order."""
    predicted, zeros = logits.argmax(-1), labels.new_zeros(logits.size(0), logits.size(-1))
    count = real.long()
    hits = zeros.scatter_add(1, labels, count * (predicted == labels))
    return hits, zeros.scatter_add(1, labels, count), zeros.scatter_add(1, predicted, count)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return part.double() / whole.clamp(min=1).double()


def _mean_where(defined: Tensor, values: Tensor) -> Tensor:
    """The mean over the classes that have a value."""
    return values.masked_fill(~defined, 0.0).sum(1) / defined.sum(1)


@dataclass(frozen=True)
class ClassMetrics:
    """One class against all others; ``support`` is the number of its nodes."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Metrics:
    """What a model reaches on a set of nodes.

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

    nodes: int
    loss: float
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

    def value(self, metric: str) -> float | None:
        """One of the metrics by the name of the setting; None where it is not defined."""
        return getattr(self, metric.replace("-", "_"))

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
        """Return plain values only, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Metrics:
        """Build the metrics back from what :meth:`to_dict` gave."""
        per_class = tuple(ClassMetrics(**row) for row in values["per_class"])
        confusion = tuple(tuple(row) for row in values["confusion"])
        return cls(**{**values, "per_class": per_class, "confusion": confusion})


def measure(logits: Tensor, labels: Tensor) -> Metrics:
    """Compare logits ``[n, classes]`` with labels ``[n]``; n must be at least 1."""
    logits, labels = logits.detach().cpu().double(), labels.detach().cpu()
    num_classes = logits.size(1)
    predicted = logits.argmax(dim=1)
    confusion = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    confusion = confusion.view(num_classes, num_classes)
    hits, support, claimed = confusion.diag(), confusion.sum(dim=1), confusion.sum(dim=0)
    precision = _ratio(hits, claimed)
    recall = _ratio(hits, support)
    # 2PR/(P+R) rewritten over counts, so that a class that was never predicted needs no special case.
    f1 = _ratio(2 * hits, support + claimed)
    one_run = (logits[None], labels[None], torch.ones_like(labels[None], dtype=torch.bool))
    return Metrics(
        nodes=labels.numel(),
        loss=F.cross_entropy(logits, labels).item(),
        accuracy=int(hits.sum()) / labels.numel(),
        macro_f1=f1[(support + claimed) > 0].mean().item(),
        roc_auc=_mean_of_defined(roc_areas(*one_run)),
        average_precision=_mean_of_defined(precisions_by_class(*one_run)),
        per_class=tuple(
            ClassMetrics(*values, support=count)
            for *values, count in zip(
                precision.tolist(), recall.tolist(), f1.tolist(), support.tolist(), strict=True
            )
        ),
        confusion=tuple(map(tuple, confusion.tolist())),
    )


def measure_parts(logits: Tensor, labels: Tensor, parts: Mapping[str, Tensor]) -> dict[str, Metrics]:
    """Measure the logits ``[nodes, classes]`` of all nodes on each of several sets of them."""
    return {name: measure(logits[index], labels[index]) for name, index in parts.items()}


def _mean_of_defined(by_class: tuple[Tensor, Tensor]) -> float | None:
    values, defined = (tensor[0] for tensor in by_class)
    found = values[defined].tolist()
    return sum(found) / len(found) if found else None


def fitting_metric(labels: Tensor, *, class_weights: bool = False) -> str:
    """The metric that fits labels: the accuracy, unless it would favour the most frequent class.

    Args:
        labels: Of the training nodes.
        class_weights: Whether each class is to count the same.
    """
    counts = torch.bincount(labels)
    counts = counts[counts > 0]
    if counts.numel() == 2 and int(counts.max()) > _UNEQUAL * int(counts.sum()):
        return "roc-auc"
    return "balanced-accuracy" if class_weights else "accuracy"

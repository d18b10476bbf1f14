"""The metrics that an epoch can be chosen by, for R runs at once and without a wait for the device.

Each takes logits [R, T, classes], labels [R, T] and which of the nodes are no padding [R, T], and gives one
number from 0 to 1 for each run, [R], float64; NaN where the metric is not defined, as an area under the ROC
curve is not among nodes of a single class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Score = Callable[[Tensor, Tensor, Tensor], Tensor]


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

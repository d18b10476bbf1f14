"""How good a set of predictions is: accuracy, macro-F1, ROC-AUC, each class, the confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


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
    """

    nodes: int
    loss: float
    accuracy: float
    macro_f1: float
    roc_auc: float | None
    per_class: tuple[ClassMetrics, ...]
    confusion: tuple[tuple[int, ...], ...]

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
    return Metrics(
        nodes=labels.numel(),
        loss=F.cross_entropy(logits, labels).item(),
        accuracy=int(hits.sum()) / labels.numel(),
        macro_f1=f1[(support + claimed) > 0].mean().item(),
        roc_auc=_macro_roc_auc(logits.softmax(dim=1), labels),
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


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return part.double() / whole.clamp(min=1).double()


def _macro_roc_auc(scores: Tensor, labels: Tensor) -> float | None:
    areas = []
    for c in range(scores.size(1)):
        positive = labels == c
        n_pos = int(positive.sum())
        n_neg = positive.numel() - n_pos
        if n_pos and n_neg:
            # The area is the chance that a positive outranks a negative; equal scores count half.
            rank_sum = _mean_ranks(scores[:, c])[positive].sum().item()
            areas.append((rank_sum - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))
    return sum(areas) / len(areas) if areas else None


def _mean_ranks(values: Tensor) -> Tensor:
    """Ranks from 1; equal values share the mean of the ranks they take up."""
    _, group, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts - 1).double() / 2)[group]

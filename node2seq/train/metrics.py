"""How good predictions are: metrics that an epoch can be chosen by.

A metric that chooses takes logits [R, T, classes] (or predicted numbers [R, T]), labels [R, T] (or whether
each label holds, [R, T, labels]) and which of the nodes are no padding, [R, T], for R runs at once and
without a wait for the device. It gives one number for each run, [R], float64, the higher the better: errors
are negative. It is NaN where it is not defined, as an area under the ROC curve is not among nodes of one
class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from node2seq.data.graph import rounded
from node2seq.nn.conv.ranks import Trace

Score = Callable[[Tensor, Tensor, Tensor], Tensor]

#: How each metric is called in tables, by the name of the setting ``metric``.
METRIC_TITLES = {
    "accuracy": "accuracy",
    "balanced-accuracy": "balanced accuracy",
    "macro-f1": "macro-F1",
    "roc-auc": "ROC-AUC",
    "average-precision": "average precision",
    "micro-f1": "micro-F1",
    "r2": "R²",
    "mae": "MAE",
    "rmse": "RMSE",
}
#: Errors: the lower the better, in the unit of what is predicted.
ERRORS = ("mae", "rmse")


def accuracy(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The share of nodes whose most probable class is theirs."""
    right = (logits.argmax(-1) == labels) & real
    return ratio(right.sum(1), real.sum(1))


def balanced_accuracy(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The mean recall over the classes that have nodes."""
    hits, support, _ = _counts(logits, labels, real)
    return _mean_where(ratio(hits, support), support > 0)


def macro_f1(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The mean F1 over the classes that occur among the labels or the predictions."""
    return _mean_f1(*_counts(logits, labels, real))


def roc_auc(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """One-vs-rest area under the ROC curve, mean over the classes that have positives and negatives."""
    return _mean_where(*roc_areas(logits, labels, real))


def average_precision(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """One-vs-rest average precision, mean over the classes that have nodes."""
    return _mean_where(*precisions_by_class(logits, labels, real))


def label_accuracy(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The share of right decisions about a label of a node."""
    right = ((logits > 0) == (labels > 0)).double().mean(-1)
    return _means(right, real)


def micro_f1(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """F1 over the decisions about all labels together."""
    hits, support, claimed = label_counts(logits, labels, real)
    return ratio(2 * hits.sum(1), (support + claimed).sum(1))


def label_macro_f1(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The mean F1 over the labels that occur among the nodes or the predictions."""
    return _mean_f1(*label_counts(logits, labels, real))


def r2(values: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The share of the variance of the numbers that is explained: R², 0 for their own mean."""
    spread = _sums((labels - _means(labels, real)[:, None]).square(), real)
    return 1 - _sums((values - labels).square(), real) / spread.masked_fill(spread == 0, torch.nan)


def negative_mae(values: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The mean absolute error, negative."""
    return -_means((values - labels).abs(), real)


def negative_rmse(values: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The root of the mean squared error, negative."""
    return -_means((values - labels).square(), real).sqrt()


#: Of classes, by the name of the setting ``metric``.
SCORES: dict[str, Score] = {
    "accuracy": accuracy,
    "balanced-accuracy": balanced_accuracy,
    "macro-f1": macro_f1,
    "roc-auc": roc_auc,
    "average-precision": average_precision,
}
#: Of several labels for each node.
LABEL_SCORES: dict[str, Score] = {
    "micro-f1": micro_f1,
    "macro-f1": label_macro_f1,
    "accuracy": label_accuracy,
}
#: Of numbers.
NUMBER_SCORES: dict[str, Score] = {"r2": r2, "mae": negative_mae, "rmse": negative_rmse}


def title_with_unit(metric: str) -> str:
    """What a metric is called at the head of a table: shares are in percent."""
    return METRIC_TITLES[metric] + ("" if metric in NUMBER_SCORES else " in %")


def shown(metric: str, value: float | None, unit: str = "") -> str:
    """A value as tables show it: R² and errors as numbers, anything else in percent; a dash for none.

    Args:
        metric: Which it is of.
        value: It; an error may be negative, as it is where it chooses.
        unit: What follows a share.
    """
    if value is None:
        return "–"
    if metric in ERRORS:
        return rounded(abs(value))
    return f"{value:.3f}" if metric in NUMBER_SCORES else f"{100 * value:.1f}{unit}"


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
    precision = ratio(positives_at_least, at_least).masked_fill(~positive, 0.0)
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


def label_counts(logits: Tensor, labels: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hits, labels and predictions of each label, [R, labels]."""
    claimed, true = (logits > 0) & real[..., None], (labels > 0) & real[..., None]
    return (claimed & true).sum(1), true.sum(1), claimed.sum(1)


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """A share of counts, float64; of nothing it is zero."""
    return part.double() / whole.clamp(min=1).double()


def _sums(values: Tensor, real: Tensor) -> Tensor:
    return values.double().masked_fill(~real, 0.0).sum(1)


def _means(values: Tensor, real: Tensor) -> Tensor:
    return _sums(values, real) / real.sum(1)


def _mean_f1(hits: Tensor, support: Tensor, claimed: Tensor) -> Tensor:
    return _mean_where(ratio(2 * hits, support + claimed), support + claimed > 0)


def _mean_where(values: Tensor, defined: Tensor) -> Tensor:
    """The mean over the classes that have a value."""
    return values.masked_fill(~defined, 0.0).sum(1) / defined.sum(1)


class FirstNeighbours(NamedTuple):
    """The first neighbours of each node by the order of a layer, the node itself left out, [N, places]."""

    node: Tensor
    """Their numbers, −1 where a node has no more."""
    score: Tensor
    is_nonlocal: Tensor

    @classmethod
    def of(cls, trace: Trace, nodes: int, places: int) -> FirstNeighbours:
        """The first neighbours of all nodes in a trace, of the first head if there are several."""
        ptr = trace.ptr[: nodes + 1]
        target = torch.repeat_interleave(torch.arange(nodes, device=ptr.device), ptr.diff())
        kept = (trace.index[: target.numel()] != target).nonzero().view(-1)
        target = target[kept]
        count = torch.bincount(target, minlength=nodes)
        place = torch.arange(target.numel(), device=ptr.device) - (count.cumsum(0) - count)[target]
        first = place < places
        at, kept = (target[first], place[first]), kept[first]
        empty = trace.index.new_full((nodes, places), -1)
        return cls(
            empty.index_put(at, trace.index[kept]),
            trace.scores.new_zeros(nodes, places).index_put(at, trace.scores[kept].detach()),
            (empty > 0).index_put(at, trace.is_nonlocal[kept]),
        )

    def same_class(self, y: Tensor) -> tuple[list[float], list[int]]:
        """How often the neighbour at each place has the node's class, and of how many nodes that is known."""
        known = (self.node >= 0) & (y[self.node.clamp(min=0)] >= 0) & (y >= 0)[:, None]
        same = known & (y[self.node.clamp(min=0)] == y[:, None])
        return ratio(same.sum(0), known.sum(0)).tolist(), known.sum(0).tolist()

    def nonlocal_shares(self) -> list[float]:
        """The share of non-local nodes at each place."""
        return ratio(self.is_nonlocal.sum(0), (self.node >= 0).sum(0)).tolist()


def agreement(node: Tensor, last: Tensor) -> tuple[float, float]:
    """How much of an order stays: the share of nodes with the same first neighbour, and of first ones kept.

    Args:
        node: The first neighbours of some nodes, [n, places]; −1 for none.
        last: Those of later.
    """
    real = last >= 0
    shared = (last[:, :, None] == node[:, None, :]).any(-1) & real
    first = (last[:, 0] == node[:, 0]) & real[:, 0]
    return ratio(first.sum(), real[:, 0].sum()).item(), ratio(shared.sum(), real.sum()).item()


def reliability(confidence: Tensor, right: Tensor) -> list[tuple[float, float, int]]:
    """Confidence, share of right predictions and number of nodes, in groups of equal width that have any."""
    groups = 10
    group = (confidence * groups).ceil().long().clamp(1, groups) - 1
    count = torch.bincount(group, minlength=groups)
    sums = [torch.bincount(group, value.double(), minlength=groups) for value in (confidence, right)]
    means = (ratio(value, count).tolist() for value in sums)
    return [found for found in zip(*means, count.tolist(), strict=True) if found[2]]


def by_degree(right: Tensor, degree: Tensor) -> list[tuple[str, float, int]]:
    """The share of right predictions among nodes of similar degree: groups double in width."""
    group = torch.where(degree > 0, degree.clamp(min=1).double().log2().floor().long() + 1, 0)
    found = []
    for number in group.unique().tolist():
        mine = group == number
        low, high = (0, 0) if number == 0 else (2 ** (number - 1), 2**number - 1)
        title = str(low) if low == high else f"{low}–{high}"
        found.append((title, right[mine].double().mean().item(), int(mine.sum())))
    return found

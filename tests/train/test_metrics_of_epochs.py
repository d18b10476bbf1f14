"""The metrics of R runs at once, against plain loops over the nodes of each."""

from __future__ import annotations

import pytest
import torch
from tiny_graph import make_graph, make_model
from torch import Tensor

from node2seq.errors import Node2SeqError
from node2seq.train.fitter import fit
from node2seq.train.measured import measure, result_warnings
from node2seq.train.metrics import LABEL_SCORES, METRIC_TITLES, NUMBER_SCORES, SCORES
from node2seq.train.settings import TrainSettings
from node2seq.train.task import Classification

SIZES = (30, 17, 24)
CLASSES = 4


def runs(ties: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Three runs of different sizes; class 3 occurs in the first alone."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(len(SIZES), max(SIZES), CLASSES, generator=generator)
    labels = torch.randint(3, (len(SIZES), max(SIZES)), generator=generator)
    labels[0, :5] = 3
    real = torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]
    logits[~real] = 50.0  # whatever padding holds
    return (logits.round() if ties else logits), labels, real


def plain(metric: str, logits: Tensor, labels: Tensor) -> float:
    """One metric of one run, node by node."""
    guesses, truth = logits.argmax(1).tolist(), labels.tolist()
    pairs = list(zip(guesses, truth, strict=True))
    present = sorted(set(truth))
    if metric == "accuracy":
        return sum(g == t for g, t in pairs) / len(pairs)
    if metric == "balanced-accuracy":
        return sum(pairs.count((c, c)) / truth.count(c) for c in present) / len(present)
    if metric == "macro-f1":
        occurring = sorted({*truth, *guesses})
        f1 = [2 * pairs.count((c, c)) / (truth.count(c) + guesses.count(c)) for c in occurring]
        return sum(f1) / len(f1)
    values = []
    for c in present:
        scores = logits.double().softmax(1)[:, c].tolist()
        mine = [s for s, t in zip(scores, truth, strict=True) if t == c]
        others = [s for s, t in zip(scores, truth, strict=True) if t != c]
        if metric == "roc-auc":
            values.append(
                sum((p > q) + 0.5 * (p == q) for p in mine for q in others) / (len(mine) * len(others))
            )
        else:
            values.append(
                sum(sum(q >= p for q in mine) / sum(q >= p for q in scores) for p in mine) / len(mine)
            )
    return sum(values) / len(values)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("metric", SCORES)
def test_each_run_has_its_own_value_whatever_it_is_padded_with(metric: str, ties: bool) -> None:
    logits, labels, real = runs(ties)
    found = SCORES[metric](logits, labels, real).tolist()
    for run, size in enumerate(SIZES):
        own = logits[run, :size], labels[run, :size]
        assert found[run] == pytest.approx(plain(metric, *own), abs=1e-12)
        assert measure(*own).value(metric) == pytest.approx(found[run], abs=1e-12)
    assert set(METRIC_TITLES) == {*SCORES, *NUMBER_SCORES, *LABEL_SCORES}


def test_an_area_among_nodes_of_one_class_is_not_defined() -> None:
    logits, real = torch.randn(1, 6, 2), torch.ones(1, 6, dtype=torch.bool)
    one_class = torch.zeros(1, 6, dtype=torch.int64)
    assert SCORES["roc-auc"](logits, one_class, real).isnan().all()
    assert measure(logits[0], one_class[0]).value("roc-auc") is None


@pytest.mark.parametrize("metric", SCORES)
def test_predicting_the_most_frequent_class_is_worth_the_trivial_value(metric: str) -> None:
    labels = torch.tensor([0, 1, 1, 1, 1, 2, 2])
    constant = torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(7, 4)
    found = measure(constant, labels)
    assert found.trivial(metric) == pytest.approx(found.value(metric))
    assert found.largest_class == 4 / 7
    # Probabilities may be in an order although all nodes are predicted as one class: that is said.
    logits = torch.tensor([0.0, 2.0, -2.0, 2.0, 1.0, -1.0, -1.0])
    one = measure(torch.stack([torch.zeros(7), 4 + logits], dim=1), (labels == 1).long())
    assert one.beats_trivial("roc-auc")
    assert one.says_one_class
    said = result_warnings({"val": one}, "roc-auc")
    assert ["All validation nodes are predicted as one class." in text for text in said] == [True]
    several = measure(torch.stack([torch.zeros(7), logits], dim=1), (labels == 1).long())
    assert result_warnings({"val": several}, "roc-auc") == ()


@pytest.mark.parametrize("metric", SCORES)
def test_the_epoch_is_the_one_of_the_highest_metric(metric: str) -> None:
    data, split = make_graph()
    result = fit(make_model(), data, split, TrainSettings(epochs=40, lr=0.05, metric=metric))  # pyright: ignore[reportArgumentType]
    best = min(result.history, key=lambda r: (-r.val_score, r.val_loss, r.epoch))
    assert result.best == best
    assert result.val.value(metric) == pytest.approx(best.val_score, abs=1e-9)
    assert len({record.val_score for record in result.history}) > 2


def test_an_unknown_metric_is_named() -> None:
    with pytest.raises(Node2SeqError, match="metric='f2': there is no such metric"):
        TrainSettings(metric="f2")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("counts", "weights", "metric"),
    [
        ([80, 20], False, "roc-auc"),
        ([80, 20], True, "roc-auc"),
        ([60, 40], False, "accuracy"),
        ([0, 70, 0, 30], False, "roc-auc"),
        ([80, 10, 10], False, "accuracy"),
        ([80, 10, 10], True, "balanced-accuracy"),
    ],
)
def test_the_metric_fits_the_labels(counts: list[int], weights: bool, metric: str) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    assert Classification().fitting_metric(labels, class_weights=weights) == metric

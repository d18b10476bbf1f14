import math

import pytest
import torch

from node2seq.train.measured import Metrics, measure


def logits_for(predicted: list[int], num_classes: int = 3) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(predicted), num_classes).float() * 5


def test_counts_by_hand():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    result = measure(logits_for([0, 0, 1, 1, 0, 1]), labels)
    assert result.confusion == ((2, 1, 0), (1, 1, 0), (0, 1, 0))  # rows: the true class
    assert result.nodes == 6
    assert result.accuracy == 0.5
    first, second, third = result.per_class
    assert (first.precision, first.recall, first.support) == pytest.approx((2 / 3, 2 / 3, 3))
    assert (second.precision, second.recall, second.f1) == pytest.approx((1 / 3, 1 / 2, 2 / 5))
    assert (third.precision, third.recall, third.f1, third.support) == (0, 0, 0, 1)
    assert result.macro_f1 == pytest.approx((2 / 3 + 2 / 5 + 0) / 3)


def test_a_class_that_nobody_has_and_nobody_predicts_is_left_out_of_macro_f1():
    result = measure(logits_for([0, 1], num_classes=4), torch.tensor([0, 1]))
    assert result.macro_f1 == 1.0
    assert len(result.per_class) == 4


@pytest.mark.parametrize("ties", [False, True])
def test_roc_auc_is_the_chance_that_a_positive_outranks_a_negative(ties: bool):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(60, 3, generator=generator)
    if ties:
        logits = logits.round()
    labels = torch.randint(3, (60,), generator=generator)
    scores = logits.double().softmax(1)
    areas = []
    for c in range(3):
        wins = [
            1.0 if p > q else 0.5 if p == q else 0.0
            for p in scores[labels == c, c].tolist()
            for q in scores[labels != c, c].tolist()
        ]
        areas.append(sum(wins) / len(wins))
    assert measure(logits, labels).roc_auc == pytest.approx(sum(areas) / 3, abs=1e-12)


def test_roc_auc_needs_two_classes():
    assert measure(logits_for([0, 0]), torch.tensor([0, 0])).roc_auc is None


def test_loss_is_plain_cross_entropy():
    result = measure(torch.zeros(4, 5), torch.tensor([0, 1, 2, 3]))
    assert result.loss == pytest.approx(math.log(5))


def test_metrics_survive_json():
    import json

    result = measure(logits_for([0, 1, 1]), torch.tensor([0, 1, 2]))
    assert Metrics.from_dict(json.loads(json.dumps(result.to_dict()))) == result

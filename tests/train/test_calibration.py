"""The temperature of probabilities: found on validation nodes, and no prediction changes by it."""

from __future__ import annotations

import pytest
import torch
from tiny_graph import SETTINGS, make_graph, make_model
from torch import Tensor
from torch.nn import functional as F

from node2seq.train import fit, predict
from node2seq.train.measured import calibration_error
from node2seq.train.task import Classification, MultiLabel


def overconfident(nodes: int = 3000) -> tuple[Tensor, Tensor]:
    """Logits whose labels were drawn from three times flatter ones."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(nodes, 4, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).view(-1)
    return 3 * logits, labels


def test_the_temperature_of_drawn_labels_is_found():
    logits, labels = overconfident()
    task = Classification().calibrated(logits, labels)
    assert isinstance(task, Classification)
    assert task.temperature == pytest.approx(3.0, rel=0.1)
    losses = [
        F.cross_entropy(logits.double() / t, labels) for t in (0.97 * task.temperature, task.temperature)
    ]
    assert losses[1] < losses[0]
    assert Classification().calibration_error(logits, labels) > 0.1
    assert task.calibration_error(logits, labels) < 0.03
    assert torch.equal(task.predict(logits).argmax(1), logits.argmax(1))


def test_logits_that_differ_in_their_last_bit_keep_their_order():
    logits = torch.tensor([[20.0, 20.000002, -5.0]])
    assert logits[0, 0] != logits[0, 1]
    for temperature in (0.1, 3.7, 10.0):
        assert Classification(temperature).predict(logits).argmax().item() == 1


def test_a_few_nodes_that_are_all_right_do_not_make_every_probability_one():
    task = Classification().calibrated(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    assert isinstance(task, Classification)
    assert 0.3 < task.temperature < 1.0


def test_the_error_is_that_of_groups_of_equal_width():
    confidence = torch.tensor([0.95, 0.95, 0.95, 0.95, 0.55, 0.55])
    right = torch.tensor([True, True, True, False, True, False])
    # Four of 95 % of which three are right, two of 55 % of which one is.
    assert calibration_error(confidence, right) == pytest.approx((4 * 0.2 + 2 * 0.05) / 6)


def test_several_labels_have_one_temperature():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3000, 3, generator=generator)
    labels = (torch.rand(3000, 3, generator=generator) < logits.sigmoid()).long()
    task = MultiLabel().calibrated(4 * logits, labels)
    assert isinstance(task, MultiLabel)
    assert task.temperature == pytest.approx(4.0, rel=0.1)
    assert task.calibration_error(4 * logits, labels) < MultiLabel().calibration_error(4 * logits, labels)
    assert torch.equal(task.predict(4 * logits) > 0.5, logits > 0)


def test_a_training_tells_how_far_its_probabilities_were_off():
    data, split = make_graph()
    model = make_model()
    result = fit(model, data, split, SETTINGS)
    assert result.calibration is not None
    assert result.calibration.before.keys() == result.calibration.after.keys() == {"train", "val", "test"}
    assert result.task == Classification(result.calibration.temperature)
    raw, calibrated = predict(model, data), predict(model, data, result.task)
    assert torch.equal(raw.argmax(1), calibrated.argmax(1))
    assert not torch.allclose(raw.double(), calibrated)

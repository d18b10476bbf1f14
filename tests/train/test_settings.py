"""Settings that cannot be trained with are named."""

from __future__ import annotations

import pytest

from node2seq.errors import Node2SeqError
from node2seq.train.settings import TrainSettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs=0: training needs at least one epoch. Give 1 or more."),
        ({"epochs": 10**20}, f"epochs={10**20}: it is too large. Give at most 2,147,483,647."),
        ({"lr": 0.0}, "lr=0.0: the learning rate must be positive and finite. Try 0.01."),
        ({"lr": float("nan")}, "lr=nan: the learning rate must be positive and finite. Try 0.01."),
        ({"weight_decay": -1.0}, "weight_decay=-1.0: a penalty cannot be negative. Give 0 or more."),
        (
            {"conv_weight_decay": -1.0},
            "conv_weight_decay=-1.0: a penalty cannot be negative. Give 0 or more.",
        ),
        (
            {"patience": 0},
            "patience=0: training would stop before it starts. "
            "Give 1 or more, or leave it out to train all epochs.",
        ),
        ({"views": 0}, "views=0: a step needs one forward pass. Give 1 or more."),
        ({"consistency": -0.5}, "consistency=-0.5: a penalty cannot be negative. Give 0 or more."),
        (
            {"sharpening": 0.0},
            "sharpening=0.0: it is the temperature of the mean prediction. "
            "Give a number above 0, up to 1 for the mean as it is.",
        ),
        ({"averaging": 1.0}, "averaging=1.0: it is a share. Give 0 or more, below 1."),
        ({"label_smoothing": -0.1}, "label_smoothing=-0.1: it is a share. Give 0 or more, below 1."),
        (
            {"optimizer": "sgd"},
            "optimizer='sgd': there is no such optimizer. Choose one of adam, nadam.",
        ),
    ],
)
def test_bad_settings(values, message: str):
    with pytest.raises(Node2SeqError) as caught:
        TrainSettings(**values)
    assert str(caught.value) == message

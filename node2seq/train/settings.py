"""How a model is trained: typed values, checked when they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from node2seq.errors import Node2SeqError
from node2seq.train.optimizer import OPTIMIZERS


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained.

    Args:
        epochs: Full-batch steps at most.
        lr: Learning rate.
        weight_decay: L2 penalty on all parameters.
        conv_weight_decay: L2 penalty of the Node2Seq layer alone; None: the same as ``weight_decay``.
        patience: Stop after so many epochs without a better validation accuracy (or an equal one with a
            lower validation loss); None: never.
        optimizer: ``"adam"`` or ``"nadam"``.
        class_weights: Weigh each class by the inverse of its share of the training nodes.
        views: Forward passes per step, each with a dropout of its own; their losses are averaged.
        consistency: Penalty on the squared distance between each view's prediction and the sharpened mean
            of all, over all nodes, labelled or not.
        sharpening: Temperature of that mean: the lower, the closer it is to a single class.
        averaging: Judge, keep and test an exponential average of the weights that forgets with this factor
            per step; 0: the weights themselves.
        label_smoothing: Share of the target that is spread evenly over all classes.
    """

    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    conv_weight_decay: float | None = None
    patience: int | None = None
    optimizer: Literal["adam", "nadam"] = "adam"
    class_weights: bool = False
    views: int = 1
    consistency: float = 0.0
    sharpening: float = 0.5
    averaging: float = 0.0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        more = "Give 1 or more"
        rules = [
            ("epochs", self.epochs >= 1, "training needs at least one epoch", more),
            ("lr", math.isfinite(self.lr) and self.lr > 0, "the learning rate must be positive", "Try 0.01"),
            (
                "patience",
                self.patience is None or self.patience >= 1,
                "training would stop before it starts",
                f"{more}, or leave it out to train all epochs",
            ),
            (
                "optimizer",
                self.optimizer in OPTIMIZERS,
                "there is no such optimizer",
                f"Choose one of {', '.join(OPTIMIZERS)}",
            ),
            ("views", self.views >= 1, "a step needs one forward pass", more),
            (
                "sharpening",
                0 < self.sharpening <= 1,
                "it is the temperature of the mean prediction",
                "Give a number above 0, up to 1 for the mean as it is",
            ),
        ]
        for name in ("weight_decay", "conv_weight_decay", "consistency"):
            value = getattr(self, name) or 0.0
            rules.append(
                (name, math.isfinite(value) and value >= 0, "a penalty cannot be negative", "Give 0 or more")
            )
        for name in ("averaging", "label_smoothing"):
            rules.append((name, 0 <= getattr(self, name) < 1, "it is a share", "Give 0 or more, below 1"))
        for name, holds, reason, cure in rules:
            if not holds:
                raise Node2SeqError(f"{name}={getattr(self, name)!r}", reason, cure)

"""What is known of a run: each epoch, the best of them, and what its weights reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from node2seq.errors import Node2SeqError
from node2seq.train.inputs import SplitLike, check_split, measured_parts, split_parts, split_warnings
from node2seq.train.metrics import Metrics, measure_parts
from node2seq.train.settings import TrainSettings


@dataclass(frozen=True)
class EpochRecord:
    """What is known after an epoch. The test nodes are not among it: nothing may select on them."""

    epoch: int
    loss: float
    train_accuracy: float
    val_loss: float
    val_accuracy: float


@dataclass(frozen=True)
class FitResult:
    """The chosen epoch and what the model reaches with its weights.

    ``test`` is None without test nodes, ``test_rest`` unless it is asked for and differs from ``test``.
    """

    best: EpochRecord
    history: tuple[EpochRecord, ...]
    train: Metrics
    val: Metrics
    test: Metrics | None
    warnings: tuple[str, ...]
    test_rest: Metrics | None = None

    @property
    def metrics(self) -> dict[str, Metrics]:
        """What was measured, by the part of the split."""
        measured = {name: getattr(self, name) for name in ("train", "val", "test", "test_rest")}
        return {name: metrics for name, metrics in measured.items() if metrics is not None}


class RunProgress:
    """One run's split, settings and warnings, and its epochs so far.

    Args:
        split: Its nodes.
        y: The labels of all nodes.
        settings: How it is trained.
    """

    def __init__(self, split: SplitLike, y: Tensor, settings: TrainSettings) -> None:
        self.split, self.settings = split, settings
        self.nodes = split_parts(split, y.device)
        check_split(self.nodes, y)
        self.warnings = split_warnings(self.nodes, y)
        self.history: list[EpochRecord] = []
        self.best: EpochRecord | None = None
        self.error: Node2SeqError | None = None
        """What ended it, if its loss stopped being finite."""
        self.last_epoch = settings.epochs

    @property
    def active(self) -> bool:
        """Whether it is trained further: epochs are left, patience has not run out, the loss is finite."""
        epoch, patience = len(self.history), self.settings.patience
        waited = epoch - self.best.epoch if self.best is not None else 0
        return self.error is None and epoch < self.last_epoch and (patience is None or waited < patience)

    def add(self, row: Sequence[float]) -> None:
        """Take in the next epoch, a row of the history that the device keeps."""
        loss, val_loss, train_hits, val_hits, best_epoch = row
        epoch = len(self.history) + 1
        if not (math.isfinite(loss) and math.isfinite(val_loss)):
            self.error = Node2SeqError(
                f"lr={self.settings.lr}",
                f"the loss became {loss} (validation: {val_loss}) in epoch {epoch}",
                "Train with a lower learning rate, and look for features of very different size",
            )
            return
        record = EpochRecord(
            epoch=epoch,
            loss=loss,
            train_accuracy=train_hits / self.nodes["train"].numel(),
            val_loss=val_loss,
            val_accuracy=val_hits / self.nodes["val"].numel(),
        )
        self.history.append(record)
        self.best = self.history[int(best_epoch) - 1]

    def result(self, logits: Tensor, y: Tensor, *, with_rest: bool = False) -> FitResult | None:
        """Measure what the best epoch's weights give, ``[nodes, classes]``; None if there is no such epoch.

        Args:
            logits: Of all nodes.
            y: Their labels.
            with_rest: Whether to measure the split's ``test_rest`` too, where it differs from ``test``.
        """
        if self.best is None:
            return None
        parts = measured_parts(self.split, with_rest=with_rest)
        measured = measure_parts(logits, y, {name: index.to(y.device) for name, index in parts.items()})
        return FitResult(
            best=self.best,
            history=tuple(self.history),
            train=measured["train"],
            val=measured["val"],
            test=measured.get("test"),
            warnings=self.warnings,
            test_rest=measured.get("test_rest"),
        )

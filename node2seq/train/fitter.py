"""One run, epoch by epoch; knows no model, so that every model gets the same loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch_geometric.data import Data

from node2seq.environment import Processes
from node2seq.errors import Node2SeqError
from node2seq.train.inputs import SplitLike, check_divisible
from node2seq.train.minibatch import BatchTrainer
from node2seq.train.progress import EpochRecord, FitResult
from node2seq.train.settings import BatchSettings, TrainSettings
from node2seq.train.trainer import Trainer


class Fitter:
    """Trains epoch by epoch; its state can be saved and resumed between any two of them.

    Args:
        model: Called as ``model(x, edge_index)``, gives logits ``[nodes, classes]``. If it has
            ``parameter_groups()``, the group named ``"node2seq"`` gets ``conv_weight_decay``; if it has
            ``can_capture(x)`` and that is true, epochs on a GPU are replayed as a CUDA graph.
        data: ``x``, ``edge_index`` and ``y``, where −1 means unlabelled. Moved to the model's device.
        split: Indices of training, validation and test nodes.
        settings: How to train.
        capture: Whether epochs may be replayed as a CUDA graph; the bits are the same.
        batches: Train a network of this package on mini-batches of these sizes; None: on the full batch.
        seed: What mini-batches are a function of, besides the epoch.
        processes: Those that train on mini-batches together, from :func:`node2seq.train.processes.join`.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        split: SplitLike,
        settings: TrainSettings,
        *,
        capture: bool = True,
        batches: BatchSettings | None = None,
        seed: int = 0,
        processes: Processes | None = None,
    ) -> None:
        self.model, self.settings = model, settings
        if batches is None:
            check_divisible(processes)
            self._trainer = Trainer(model, data, [split], [settings], capture=capture)
        else:
            self._trainer = BatchTrainer(model, data, split, settings, batches, seed, processes)
        (self._run,) = self._trainer.runs

    @property
    def warnings(self) -> tuple[str, ...]:
        """What can be trained on, yet should be known."""
        return self._run.warnings

    @property
    def history(self) -> list[EpochRecord]:
        """What is known of each epoch."""
        return self._run.history

    @property
    def best(self) -> EpochRecord | None:
        """The best epoch so far."""
        return self._run.best

    @property
    def captured(self) -> int:
        """How many epochs were replayed as a CUDA graph."""
        return self._trainer.captured

    @property
    def epoch(self) -> int:
        """Epochs trained so far."""
        return len(self.history)

    @property
    def done(self) -> bool:
        """Whether all epochs are trained, patience has run out, or the loss stopped being finite."""
        return not self._run.active

    def step(self) -> EpochRecord:
        """Train one epoch, then look at training and validation nodes once."""
        if self.done:
            raise self._run.error or Node2SeqError(
                f"epoch {self.epoch + 1}", "training has ended", "Call finish(), or train with more epochs"
            )
        self._trainer.advance()
        if self._run.error is not None:
            raise self._run.error
        return self.history[-1]

    def finish(self) -> FitResult:
        """Put the best epoch's weights into the model and measure them, on the test nodes too."""
        if self.best is None:
            raise Node2SeqError("no epoch was trained", "there is nothing to finish", "Call step() first")
        self._trainer.finish()
        (result,) = self._trainer.results()
        assert result is not None
        return result

    def state_dict(self) -> dict[str, Any]:
        """Everything that training resumes from: tensors in nested dicts."""
        return self._trainer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume exactly where :meth:`state_dict` was taken."""
        self._trainer.load_state_dict(state)


def fit(
    model: nn.Module,
    data: Data,
    split: SplitLike,
    settings: TrainSettings | None = None,
    *,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    batches: BatchSettings | None = None,
    seed: int = 0,
    processes: Processes | None = None,
) -> FitResult:
    """Train ``model``, leave it with the weights of its best epoch, and measure it.

    The best epoch is the one of highest validation accuracy, ties by lower validation loss, then the
    first. The test nodes are measured after training, with the weights of that epoch.

    Args:
        model: See :class:`Fitter`.
        data: See :class:`Fitter`.
        split: See :class:`Fitter`.
        settings: How to train; the defaults of :class:`TrainSettings` if left out.
        on_epoch: Called after every epoch.
        batches: See :class:`Fitter`.
        seed: See :class:`Fitter`.
        processes: See :class:`Fitter`.
    """
    how: dict[str, Any] = {"batches": batches, "seed": seed, "processes": processes}
    fitter = Fitter(model, data, split, settings or TrainSettings(), **how)
    while not fitter.done:
        record = fitter.step()
        if on_epoch is not None:
            on_epoch(record)
    return fitter.finish()

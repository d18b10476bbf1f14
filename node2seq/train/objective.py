"""What a training step makes smaller, for each of R runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq.train.settings import TrainSettings
from node2seq.train.task import Task


class Part:
    """The same part of R splits, padded to the longest.

    Args:
        indices: The nodes of each run.
        y: The labels of all nodes.
        task: What is predicted, for all runs at once.
    """

    def __init__(self, indices: Sequence[Tensor], y: Tensor, task: Task) -> None:
        longest = max(index.numel() for index in indices)
        padded = [F.pad(index, (0, longest - index.numel())) for index in indices]
        places = [torch.arange(longest, device=y.device) < index.numel() for index in indices]
        self.nodes = torch.stack(padded)  # [R, T]
        self.real = torch.stack(places)
        self._runs = torch.arange(len(indices), device=y.device)[:, None]
        self.count = self.real.sum(1)
        self.task = task
        self.labels = task.clean(y[self.nodes])  # an unlabelled node may be what it is padded with

    def of(self, outputs: Tensor) -> Tensor:
        """The outputs of these nodes, [R, T, outputs]."""
        return outputs[self._runs, self.nodes]  # the backward of a gather would race on a GPU

    def credit(self, outputs: Tensor) -> Tensor:
        """What each node adds to the metric that is a mean over nodes, [R, T]: whether its class is right."""
        return self.task.credit(self.of(outputs), self.labels, self.real)

    def losses(self, outputs: Tensor) -> Tensor:
        """The loss of each node, [R, T]."""
        outputs = self.of(outputs)
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))  # 16 bits would tie too often
        return self.task.loss(outputs, self.labels)


class Objective:
    """The loss of each run over its training nodes, and over all nodes for what views disagree about.

    Args:
        train: The training nodes.
        settings: How each run is trained.
    """

    def __init__(self, train: Part, settings: Sequence[TrainSettings]) -> None:
        self.train = train
        device = train.nodes.device
        self._weight = torch.stack(
            [
                balance(labels, real) if run.class_weights else real.double()
                for labels, real, run in zip(train.labels, train.real, settings, strict=True)
            ]
        )
        self._options: Mapping[str, Tensor] = {
            name: torch.tensor([getattr(run, name) for run in settings], dtype=torch.float64, device=device)
            for name in ("consistency", "sharpening", "label_smoothing")
        }
        # Decided once for all runs, so that a step is the same sequence of operations for each.
        self._smooths = any(run.label_smoothing for run in settings)
        self._compares = any(run.consistency for run in settings)

    def __call__(self, views: Sequence[Tensor]) -> Tensor:
        """The loss of each run, [R], from the outputs of each view, [R, N, outputs]."""
        losses = [self._supervised(logits) for logits in views]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)
        if self._compares:
            loss = loss + self._options["consistency"].to(loss.dtype) * self._disagreement(views)
        return loss

    def _supervised(self, logits: Tensor) -> Tensor:
        logits = self.train.of(logits)
        loss = self.train.task.loss(logits, self.train.labels)
        if self._smooths:
            share = self._options["label_smoothing"].to(loss.dtype)[:, None]
            loss = (1 - share) * loss - share * logits.log_softmax(-1).mean(-1)
        return mean_over(self._weight.to(loss.dtype), loss)

    def _disagreement(self, views: Sequence[Tensor]) -> Tensor:
        """The squared distance of each view's prediction to the sharpened mean, mean over nodes and views."""
        predictions = torch.stack([logits.softmax(-1) for logits in views])  # [S, R, N, classes]
        with torch.no_grad():
            power = (1 / self._options["sharpening"]).to(predictions.dtype)[:, None, None]
            sharp = predictions.mean(0) ** power
            sharp = sharp / sharp.sum(-1, keepdim=True)
        return (predictions - sharp).square().sum(-1).mean((0, 2))


def mean_over(weight: Tensor, values: Tensor) -> Tensor:
    """The weighted mean of each run, [R]; what has no weight counts for nothing, whatever it is."""
    weight = weight.to(values.dtype)
    return (values.masked_fill(weight == 0, 0.0) * weight).sum(1) / weight.sum(1)


def balance(labels: Tensor, real: Tensor) -> Tensor:
    """Node weights by which every class that occurs counts the same, with mean 1 over the training nodes."""
    counts = torch.bincount(labels[real])
    present = int((counts > 0).sum())
    by_class = int(real.sum()) / (present * counts.clamp(min=1).double())
    return torch.where(real, by_class[labels.clamp(max=counts.numel() - 1)], 0.0)

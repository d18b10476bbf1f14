"""One training step of R runs: the loss that it makes smaller, Adam and NAdam, and averages of the weights.

Each run takes the steps that :class:`torch.optim.Adam` or :class:`torch.optim.NAdam` would take for it alone.
All parameters are one vector, and the number of the step is on the device: few launches, all capturable.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from node2seq.train.settings import OptimizerName, TrainSettings
from node2seq.train.task import Task

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_MOMENTUM_DECAY = 4e-3


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
        self.ids: Tensor | None = None
        """The ids of the nodes that ``train`` and ``y`` number, ascending; None: their numbers."""
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
        # Of the weights and of the nodes, where this is a part of what a step is taken on.
        self._shares: tuple[Tensor, float] | None = None

    def __call__(self, views: Sequence[Tensor]) -> Tensor:
        """The loss of each run, [R], from the outputs of each view, [R, N, outputs]."""
        losses = [self._supervised(logits) for logits in views]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)
        if self._shares is not None:
            loss = loss * self._shares[0]
        if self._compares:
            penalty = self._options["consistency"].to(loss.dtype) * self._disagreement(views)
            loss = loss + (penalty if self._shares is None else penalty * self._shares[1])
        return loss

    def of_batch(self, nodes: Tensor, y: Tensor) -> Objective:
        """The objective of one run on the outputs of some of its training nodes, with the same weights.

        Args:
            nodes: Their ids.
            y: The labels of all nodes.
        """
        taken = copy.copy(self)
        own = y[self._places(nodes)]
        taken.train = Part([torch.arange(nodes.numel(), device=y.device)], own, self.train.task)
        taken._weight = self._weight_of(nodes)
        return taken

    def of_share(self, nodes: Tensor, count: int, whole: Tensor, y: Tensor) -> Objective:
        """The same for what one process has of a batch: added up over all processes, that of the batch.

        Args:
            nodes: Their ids.
            count: How many of them count: all, or none.
            whole: The ids of all nodes of the batch.
            y: The labels of all nodes.
        """
        taken = self.of_batch(nodes, y)
        own = self._weight_of(nodes).sum() if count else 0.0
        taken._shares = own / self._weight_of(whole).sum(), count / whole.numel()
        return taken

    def _weight_of(self, nodes: Tensor) -> Tensor:
        ordered, place = self.train.nodes[0].sort()
        return self._weight[:, place[torch.searchsorted(ordered, self._places(nodes))]]

    def _places(self, nodes: Tensor) -> Tensor:
        return nodes if self.ids is None else torch.searchsorted(self.ids, nodes)

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


class Optimizer(ABC):
    """What both optimizers have in common: the two moments, and a penalty that is added to the gradient.

    Args:
        parameters: What to train; with more than one run, each has a leading dimension of runs.
        lr: The learning rate of each run.
        decays: For each parameter, the penalty of each run.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: Sequence[float], decays: Sequence[Sequence[float]]
    ) -> None:
        self._parameters = list(parameters)
        self._lr = _join([per_run(lr, p) for p in parameters])
        self._decay = _join([per_run(decay, p) for p, decay in zip(parameters, decays, strict=True)])
        step = torch.zeros((), dtype=torch.float64, device=self._lr.device)
        self._state = {
            "first": torch.zeros_like(self._lr),
            "second": torch.zeros_like(self._lr),
            "step": step,
        }

    @property
    def steps(self) -> Tensor:
        """How many steps were taken, a whole number on the device."""
        return self._state["step"].long()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take one step; parameters without a gradient stay as they are."""
        first, second, step = (self._state[name] for name in ("first", "second", "step"))
        step += 1
        gradient = _join([torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters])
        gradient = torch.addcmul(gradient, _join(self._parameters), self._decay)
        first.lerp_(gradient, 1 - _BETA1)
        second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        root = second.sqrt().div_((1 - _BETA2**step).sqrt()).add_(_EPSILON)
        update = self._direction(gradient, first, step).div_(root).mul_(self._lr)
        parts = update.split([p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            if parameter.grad is not None:
                parameter.sub_(part.view_as(parameter))

    @abstractmethod
    def _direction(self, gradient: Tensor, first: Tensor, step: Tensor) -> Tensor:
        """What is divided by the root of the second moment; a new tensor."""

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that a next step depends on: numbers, and the moments in the parameters' shapes."""
        state = {name: value for name, value in self._state.items() if not value.dim()}
        for name in ("first", "second"):
            parts = self._state[name].split([p.numel() for p in self._parameters])
            for i, (part, parameter) in enumerate(zip(parts, self._parameters, strict=True)):
                state[f"{name}.{i}"] = part.view_as(parameter)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume where :meth:`state_dict` was taken."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


class Adam(Optimizer):
    """See :class:`torch.optim.Adam`."""

    def _direction(self, gradient: Tensor, first: Tensor, step: Tensor) -> Tensor:  # noqa: ARG002
        return first / (1 - _BETA1**step)


class NAdam(Optimizer):
    """See :class:`torch.optim.NAdam`: Adam that looks one step ahead."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: Sequence[float], decays: Sequence[Sequence[float]]
    ) -> None:
        super().__init__(parameters, lr, decays)
        self._state["product"] = torch.ones_like(self._state["step"])

    def _direction(self, gradient: Tensor, first: Tensor, step: Tensor) -> Tensor:
        now, ahead = (_BETA1 * (1 - 0.5 * 0.96 ** (n * _MOMENTUM_DECAY)) for n in (step, step + 1))
        product = self._state["product"].mul_(now)
        return first * (ahead / (1 - product * ahead)) + gradient * ((1 - now) / (1 - product))


class WeightAverages:
    """Averages of parameters; there are none where no run asks for them.

    Args:
        parameters: What is averaged; with more than one run, each has a leading dimension of runs.
        factors: How much of the average each run keeps per step; 0: none of it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], factors: Sequence[float]) -> None:
        self._parameters = list(parameters) if any(factors) else []
        self._factors = [per_run(factors, p) for p in self._parameters]
        self.tensors = [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def update(self, epoch: Tensor) -> None:
        """Take in the parameters as they are after a step, the first of which has the number 0."""
        if not self.tensors:
            return
        # The first steps forget faster, so that the initial weights do not linger.
        start = (1 + epoch) / (10 + epoch)
        for average, parameter, share in zip(self.tensors, self._parameters, self._factors, strict=True):
            average.lerp_(parameter, 1 - torch.minimum(share, start.to(share.dtype)))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The parameters are their averages while this lasts."""
        pairs = list(zip(self._parameters, self.tensors, strict=True))
        kept = [parameter.detach().clone() for parameter, _ in pairs]
        try:
            with torch.no_grad():
                for parameter, average in pairs:
                    parameter.copy_(average)
            yield
        finally:
            with torch.no_grad():
                for (parameter, _), own in zip(pairs, kept, strict=True):
                    parameter.copy_(own)

    def discard(self) -> None:
        """Forget them: from now on the weights themselves count."""
        self._parameters, self._factors, self.tensors = [], [], []


def per_run(values: Sequence[float], parameter: Tensor) -> Tensor:
    """One value for each run, in the shape of a parameter."""
    number = torch.tensor(values, dtype=parameter.dtype, device=parameter.device)
    if len(values) > 1:
        number = number.view(-1, *[1] * (parameter.dim() - 1))
    return number.expand_as(parameter)


def _join(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


OPTIMIZERS: dict[OptimizerName, type[Optimizer]] = {"adam": Adam, "nadam": NAdam}

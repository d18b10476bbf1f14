"""The linear part of a trained network: a linear discriminant analysis, and how much of it to add.

Classes are told apart by the means and the common covariance of the features of all hops. The covariance is
never formed: its inverse is applied by conjugate gradients, each step of which multiplies the features of all
nodes by one column for each class and spreads these over the graph. So wide sparse features take little more
than narrow ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq.nn.models.network import Edges
from node2seq.nn.models.residual import LinearHops
from node2seq.train.measured import LinearGain
from node2seq.train.settings import TrainSettings
from node2seq.train.task import Classification, best_temperature

# How much of each hop's mean variance is added to the covariance: the first is nearly a classifier by the
# nearest mean. Each starts where the last one ended.
_PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01)
# Steps of conjugate gradients for each; forty are no better on the graphs that it was tried on.
_STEPS = 10
# Random signs that estimate the variance of each hop, for each class.
_PROBES = 4
# The shares of the linear part that are tried.
_SHARES = (*(step / 10 for step in range(1, 10)), 0.98)
# So many validation nodes tell penalties and shares apart.
_MOST_NODES = 3000


#: Gives what weights give, without a bias, [N, D].
Products = Callable[[Tensor], Tensor]


def add_linear(
    part: LinearHops,
    own: Tensor,
    x: Any,
    edges: Edges,
    nodes: Mapping[str, Tensor],
    y: Tensor,
    run: TrainSettings,
) -> LinearGain:
    """Fit the linear part of a trained network, if the metric on validation nodes is higher with it.

    Args:
        part: Stays as it is if the metric is not higher.
        own: The logits of the network alone, [N, D].
        x: The features.
        edges: The edges.
        nodes: The nodes of each part of the split; those for testing decide nothing.
        y: The classes of all nodes.
        run: How the network was trained: its metric, and whether all classes count the same.
    """
    train, val = nodes["train"], nodes["val"]
    products = partial(part.products, x=x, edges=edges)
    analysis = Discriminant(products, part, train, y[train], priors=not run.class_weights)
    few = val[:: val.numel() // _MOST_NODES + 1]
    weight, bias = fit_discriminant(analysis, few, y[few])
    linear = products(weight) + bias
    share, factor = best_share(own[few], linear[few], y[few])
    before, after = (_scores(logits, nodes, y, run.metric) for logits in (own, own + factor * linear))
    if (after["val"] or 0.0) <= (before["val"] or 0.0):
        return LinearGain(part.hops, 0.0, before, before)
    part.set_weights(factor * weight, factor * bias)
    return LinearGain(part.hops, share, before, after)


def _scores(logits: Tensor, nodes: Mapping[str, Tensor], y: Tensor, metric: str) -> dict[str, float | None]:
    """A metric on each part of the split that has nodes."""
    task = Classification()
    return {
        name: task.measure(logits[index], y[index]).value(metric)
        for name, index in nodes.items()
        if index.numel()
    }


class Discriminant:
    """A linear discriminant analysis on the features of all hops.

    Args:
        products: What a linear model of these features gives.
        part: That model, for the shape of its weights.
        train: The training nodes.
        labels: Their classes.
        priors: Whether a class counts by its share of the training nodes; otherwise all count the same.
    """

    def __init__(
        self, products: Products, part: LinearHops, train: Tensor, labels: Tensor, *, priors: bool = True
    ) -> None:
        self._products, self._train, self._labels = products, train, labels
        zero, classes = torch.zeros_like(part.weight), part.out_channels
        self._shape = part.hops + 1, classes, zero.size(1)
        counts = torch.bincount(labels, minlength=classes).to(zero.dtype)
        seen = counts > 0
        self._share_of_class = F.one_hot(labels, classes).to(zero.dtype) / counts.clamp(min=1)
        means = self._transposed(self._share_of_class, zero).reshape(self._shape)  # [K + 1, D, C]
        overall = ((counts / len(labels))[:, None] * means).sum(1, keepdim=True)
        self._differences = torch.where(seen[:, None], means - overall, 0.0)
        self._middles = torch.where(seen[:, None], means + overall, 0.0) / 2
        # A hop whose features do not vary within the classes is left out.
        variances = self._variances(zero)
        self._scale = torch.where(variances > 0, variances.clamp(min=1e-30).rsqrt(), 0.0).view(-1, 1, 1)
        shares = ((counts + 0.5) / (len(labels) + 0.5 * classes)).log()
        self._priors = shares if priors else torch.where(seen, 0.0, shares)
        self._solution = torch.zeros_like(self._differences)

    def solve(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Weights and biases with a penalty, from where the last solution ended."""
        target = self._scale * self._differences
        found = self._solution
        rest = target - self._covariance(found, penalty)
        step = rest
        size = _by_class(rest, rest)
        for _ in range(_STEPS):
            image = self._covariance(step, penalty)
            length = size / _by_class(step, image).clamp(min=1e-30)
            found, rest = found + length * step, rest - length * image
            last, size = size, _by_class(rest, rest)
            step = rest + size / last.clamp(min=1e-30) * step
        self._solution = found
        weight = found * self._scale
        bias = self._priors - (self._middles.double() * weight.double()).sum((0, 2)).to(weight.dtype)
        return weight.flatten(0, 1), bias

    def outputs(self, weight: Tensor, bias: Tensor, nodes: Tensor) -> Tensor:
        """The logits of some nodes."""
        return self._products(weight)[nodes] + bias

    def _covariance(self, weight: Tensor, penalty: float) -> Tensor:
        """The covariance within the classes, scaled and penalised, times weights."""
        scaled = (weight * self._scale).flatten(0, 1)
        product = self._transposed(None, scaled).reshape(self._shape)
        return self._scale * product / len(self._labels) + penalty * weight

    def _transposed(self, rows: Tensor | None, weight: Tensor) -> Tensor:
        """The transposed features of the training nodes times rows; if there are none, times what the weights
        give, less the mean of each class.
        """
        weight = weight.detach().requires_grad_()
        with torch.enable_grad():
            out = self._products(weight)
        if rows is None:
            rows = self._centred(out.detach()[self._train])
        every = torch.zeros_like(out).index_copy_(0, self._train, rows)
        return torch.autograd.grad(out, weight, every)[0]

    def _centred(self, rows: Tensor) -> Tensor:
        """Rows of the training nodes without the mean of their class."""
        return rows - (self._share_of_class.t() @ rows)[self._labels]

    def _variances(self, zero: Tensor) -> Tensor:
        """About the mean variance of a column within the classes, of each hop."""
        generator = torch.Generator().manual_seed(0)
        total = zero.new_zeros(self._shape[0], dtype=torch.float64)
        shape = len(self._labels), self._shape[1]
        for _ in range(_PROBES):
            signs = torch.randint(2, shape, generator=generator).to(zero) * 2 - 1
            found = self._transposed(self._centred(signs), zero)
            total += found.double().square().reshape(self._shape[0], -1).mean(1)
        return (total / (_PROBES * len(self._labels))).to(zero.dtype)


def _by_class(left: Tensor, right: Tensor) -> Tensor:
    """The scalar product of each class's weights, as a factor of them."""
    return (left.double() * right.double()).sum((0, 2), keepdim=True).to(left.dtype)


def fit_discriminant(analysis: Discriminant, val: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and biases with the penalty that is best on validation nodes."""
    best, least = None, math.inf
    for penalty in _PENALTIES:
        weight, bias = analysis.solve(penalty)
        loss = cooled_loss(analysis.outputs(weight, bias, val), labels)
        if best is None or loss < least:
            best, least = (weight, bias), loss
    assert best is not None
    return best


def cooled_loss(outputs: Tensor, labels: Tensor) -> float:
    """The mean cross-entropy at the temperature that suits."""
    outputs = outputs.double()
    return F.cross_entropy(outputs / best_temperature(F.cross_entropy, outputs, labels), labels).item()


def best_share(own: Tensor, linear: Tensor, labels: Tensor) -> tuple[float, float]:
    """The share of linear logits beside those of a network, and the factor on them that gives it.

    Both are scaled to fit the labels first, so that a share means the same for each of them.
    """
    temperatures = [best_temperature(F.cross_entropy, logits, labels) for logits in (own, linear)]
    factor = temperatures[0] / temperatures[1]
    factors = {share: share / (1 - share) * factor for share in _SHARES}
    losses = {share: cooled_loss(own + factor * linear, labels) for share, factor in factors.items()}
    share = min(losses, key=losses.__getitem__)
    return share, factors[share]

"""The loss of a step beside what torch computes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_graph import SETTINGS, Parts, make_graph, make_model
from torch import Tensor, nn

from node2seq.train.fitter import Fitter, fit
from node2seq.train.settings import TrainSettings


def test_class_weights_make_every_class_count_the_same():
    data, _ = make_graph(90)
    assert isinstance(data.y, Tensor)
    order = torch.cat([torch.where(data.y == 0)[0][:18], torch.where(data.y == 1)[0][:2]])
    rest = torch.tensor(sorted(set(range(90)) - set(order.tolist())))
    skewed = Parts(order, rest[:20], rest[20:])
    weighted = fit(make_model(), data, skewed, replace(SETTINGS, class_weights=True, epochs=1))
    plain = fit(make_model(), data, skewed, replace(SETTINGS, epochs=1))
    logits = make_model().train()(data.x, data.edge_index)
    each = nn.functional.cross_entropy(logits[order], data.y[order], reduction="none")
    assert weighted.history[0].loss == pytest.approx(((each[:18].mean() + each[18:].mean()) / 2).item())
    assert plain.history[0].loss == pytest.approx(each.mean().item())


def one_step(settings: TrainSettings, views: int = 1) -> tuple[float, list[Tensor], Tensor, Tensor]:
    """The loss of a first step; the logits that it saw, the training nodes, and their labels."""
    data, split = make_graph()
    assert isinstance(data.y, Tensor)
    fitter, twin = Fitter(make_model(), data, split, settings), make_model().train()
    logits = [twin(data.x, data.edge_index).detach() for _ in range(views)]
    return fitter.step().loss, logits, split.train, data.y[split.train]


def test_smoothed_labels_are_those_of_torch():
    loss, (logits,), train, labels = one_step(replace(SETTINGS, label_smoothing=0.2))
    expected = nn.functional.cross_entropy(logits[train], labels, label_smoothing=0.2)
    assert loss == pytest.approx(expected.item(), rel=1e-6)


def test_views_are_pulled_to_their_sharpened_mean():
    settings = replace(SETTINGS, views=3, consistency=0.7, sharpening=0.4)
    loss, views, train, labels = one_step(settings, views=3)
    assert not torch.equal(views[0], views[1])
    mean = torch.stack([view.softmax(1) for view in views]).mean(0)
    sharp = mean ** (1 / 0.4) / (mean ** (1 / 0.4)).sum(1, keepdim=True)
    distances = [((view.softmax(1) - sharp) ** 2).sum(1).mean().item() for view in views]
    losses = [nn.functional.cross_entropy(view[train], labels).item() for view in views]
    assert loss == pytest.approx((sum(losses) + 0.7 * sum(distances)) / 3, rel=1e-6)

"""The loss of a step and the steps of Adam and NAdam beside torch's; averages of the weights."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from tiny_graph import SETTINGS, Parts, assert_same_weights, make_graph, make_model
from torch import Tensor, nn

from node2seq.train.fitter import Fitter, fit
from node2seq.train.inference import evaluate
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


def test_conv_weight_decay_reaches_the_node2seq_group_alone():
    data, split = make_graph()
    plain, decayed = make_model(), make_model()
    one = replace(SETTINGS, epochs=1, weight_decay=0.0)
    fit(plain, data, split, one)
    fit(decayed, data, split, replace(one, conv_weight_decay=100.0))
    assert torch.equal(plain.own.weight, decayed.own.weight)
    assert not torch.equal(plain.near.weight, decayed.near.weight)


@pytest.mark.parametrize(
    ("optimizer", "theirs", "close"),
    # NAdam of torch keeps its product of momenta in 32 bits.
    [("adam", torch.optim.Adam, 1e-12), ("nadam", torch.optim.NAdam, 1e-7)],
)
def test_steps_are_those_of_torch(optimizer, theirs, close):
    data, split = make_graph()
    assert data.x is not None
    assert isinstance(data.y, Tensor)
    data.x = data.x.double()
    ours, twin = make_model().double(), make_model().double()
    settings = replace(SETTINGS, optimizer=optimizer, conv_weight_decay=0.02)
    fitter = Fitter(ours, data, split, settings)
    groups = [
        {"params": twin.near.parameters(), "weight_decay": 0.02},
        {"params": twin.own.parameters(), "weight_decay": settings.weight_decay},
    ]
    reference = theirs(groups, lr=settings.lr)
    for _ in range(12):
        fitter.step()
        reference.zero_grad()
        nn.functional.cross_entropy(
            twin(data.x, data.edge_index)[split.train], data.y[split.train]
        ).backward()
        reference.step()
    for name, weight in twin.named_parameters():
        assert torch.allclose(ours.get_parameter(name), weight, rtol=0, atol=close), name


def test_averaged_weights_are_judged_and_kept():
    data, split = make_graph()
    settings = replace(SETTINGS, averaging=0.15)
    model, seen = make_model(), make_model()
    fitter = Fitter(seen, data, split, settings)
    average = {name: weight.detach().clone() for name, weight in seen.named_parameters()}
    kept = []
    for step in range(6):
        fitter.step()
        share = min(0.15, (1 + step) / (10 + step))
        for name, weight in seen.named_parameters():
            average[name] = share * average[name] + (1 - share) * weight.detach()
        kept.append({name: weight.clone() for name, weight in average.items()})
    result = fit(model, data, split, replace(settings, epochs=6))
    for name, weight in model.named_parameters():
        assert torch.allclose(weight, kept[result.best.epoch - 1][name], atol=1e-6), name
    assert result.val == evaluate(model, data, split.val)
    assert result.val.value("accuracy") == result.best.val_accuracy


def test_interrupted_averages_resume():
    data, split = make_graph()
    settings = replace(SETTINGS, averaging=0.9)
    whole, half = make_model(), make_model()
    expected = fit(whole, data, split, settings)
    first = Fitter(half, data, split, settings)
    for _ in range(7):
        first.step()
    model = make_model(seed=99)
    second = Fitter(model, data, split, settings)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    while not second.done:
        second.step()
    assert second.finish() == expected
    assert_same_weights(model, whole)

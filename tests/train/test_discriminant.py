"""The linear part of a trained network: the analysis of all hops' features, and what is added of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny_graph import make_graph
from torch import Tensor, nn

from node2seq.data import make_split
from node2seq.nn.models import ResidualGCN
from node2seq.nn.models.network import Edges
from node2seq.nn.models.residual import LinearHops
from node2seq.train import discriminant
from node2seq.train.discriminant import Discriminant, add_linear, best_share, cooled_loss, fit_discriminant
from node2seq.train.fitter import fit
from node2seq.train.inference import predict
from node2seq.train.many import Training, train_many
from node2seq.train.settings import BatchSettings, Recipe, TrainSettings

HOPS, CLASSES = 2, 3
DATA, PARTS = make_graph(300)
assert isinstance(DATA.x, Tensor)
assert isinstance(DATA.y, Tensor)
X, Y = DATA.x.double() * torch.tensor([1.0, 5.0, 0.2, 1.0, 1.0, 1.0, 3.0, 1.0]), DATA.y
QUICK = TrainSettings(epochs=3, lr=0.003)


def make_network() -> ResidualGCN:
    torch.manual_seed(0)
    return ResidualGCN(8, 8, CLASSES, linear_hops=HOPS)


def part_of(network: nn.Module | None) -> LinearHops:
    assert isinstance(network, ResidualGCN)
    assert network.linear is not None
    return network.linear


def analysis_of(labels: Tensor, **options: Any) -> tuple[Discriminant, Tensor]:
    """An analysis of the training nodes, and the features of all hops that it reads, [N, K + 1, C]."""
    network = make_network().double()
    products = partial(part_of(network).products, x=X, edges=Edges(DATA.edge_index))
    eye = torch.eye(8, dtype=torch.float64)
    by_hop = []
    for hop in range(HOPS + 1):  # one column at a time, as the logit of the first class
        columns = []
        for column in eye:
            weight = torch.zeros_like(part_of(network).weight)
            weight[hop * CLASSES] = column
            columns.append(products(weight)[:, 0])
        by_hop.append(torch.stack(columns, dim=1))
    analysis = Discriminant(products, part_of(network), PARTS.train, labels, **options)
    return analysis, torch.stack(by_hop, dim=1)


@pytest.mark.parametrize("penalty", [100.0, 0.1])
def test_weights_solve_the_equations_of_the_analysis(monkeypatch: pytest.MonkeyPatch, penalty: float):
    monkeypatch.setattr(discriminant, "_STEPS", 60)
    labels = Y[PARTS.train]
    analysis, by_hop = analysis_of(labels)
    weight, bias = analysis.solve(penalty)
    rows = by_hop[PARTS.train]
    means = torch.stack([rows[labels == c].mean(0) for c in range(CLASSES)])  # [D, K + 1, C]
    within = (rows - means[labels]).flatten(1)
    scale = analysis._scale.view(-1)
    variance = within.square().view(len(labels), HOPS + 1, -1).mean((0, 2))
    torch.testing.assert_close(scale.pow(-2), variance, rtol=0.5, atol=0)  # estimated by few probes
    wide = scale.repeat_interleave(8)
    covariance = wide[:, None] * (within.t() @ within / len(labels)) * wide
    covariance += penalty * torch.eye(len(wide), dtype=torch.float64)
    overall = rows.mean(0)
    expected = wide[:, None] * torch.linalg.solve(
        covariance, wide[:, None] * (means - overall).flatten(1).t()
    )
    found = weight.view(HOPS + 1, CLASSES, 8).movedim(1, 0).flatten(1).t()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    middles = (means + overall).flatten(1) / 2
    shares = torch.bincount(labels) + 0.5
    priors = (shares / shares.sum()).log()
    torch.testing.assert_close(bias, priors - (middles * expected.t()).sum(1), rtol=1e-6, atol=1e-6)


def test_few_steps_are_enough_to_classify(monkeypatch: pytest.MonkeyPatch):
    found = []
    for steps in (10, 60):
        monkeypatch.setattr(discriminant, "_STEPS", steps)
        analysis, _ = analysis_of(Y[PARTS.train])
        weight, bias = fit_discriminant(analysis, PARTS.val, Y[PARTS.val])
        found.append(analysis.outputs(weight, bias, PARTS.test).argmax(1))
    assert (found[0] == found[1]).double().mean() > 0.98
    assert (found[0] == Y[PARTS.test]).double().mean() > 0.9


@pytest.mark.parametrize("priors", [True, False])
def test_a_class_without_training_nodes_is_never_predicted(priors: bool):
    analysis, _ = analysis_of(Y[PARTS.train].clamp(max=1), priors=priors)
    outputs = analysis.outputs(*analysis.solve(1.0), PARTS.test)
    assert outputs.isfinite().all()
    assert set(outputs.argmax(1).tolist()) == {0, 1}


def test_classes_count_the_same_without_priors():
    labels = (torch.arange(len(PARTS.train)) > 2).long()  # three of the first class
    with_priors, without = (analysis_of(labels, priors=priors)[0].solve(1.0)[1] for priors in (True, False))
    assert (with_priors - without)[1] > (with_priors - without)[0]


def test_features_that_do_not_vary_are_left_out():
    network = make_network().double()
    edges = Edges(torch.empty(2, 0, dtype=torch.int64))
    products = partial(part_of(network).products, x=torch.ones_like(X), edges=edges)
    weight, bias = Discriminant(products, part_of(network), PARTS.train, Y[PARTS.train]).solve(0.01)
    assert not weight.any()
    assert bias.isfinite().all()


def test_the_share_is_that_of_the_lowest_loss():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 3
    truth = F.one_hot(labels, 3).double()
    own, other = (truth + torch.randn(600, 3, generator=generator) for _ in range(2))
    share, factor = best_share(own, 10 * other, labels)  # their scale does not count
    assert 0.3 <= share <= 0.7
    mixed = cooled_loss(own + factor * 10 * other, labels)
    assert mixed < min(cooled_loss(own, labels), cooled_loss(other, labels))
    useless = torch.randn(600, 3, generator=generator)
    _, factor = best_share(useless, other, labels)
    assert cooled_loss(useless + factor * other, labels) < 1.05 * cooled_loss(other, labels)


def added(y: Tensor, own: Tensor, **settings: Any) -> tuple[ResidualGCN, Any]:
    network = make_network().double()
    nodes = {"train": PARTS.train, "val": PARTS.val, "test": PARTS.test}
    run = replace(QUICK, **settings)
    return network, add_linear(part_of(network), own, X, Edges(DATA.edge_index), nodes, y, run)


def test_it_is_added_where_it_helps_and_left_out_where_not():
    network, gain = added(Y, torch.zeros(300, CLASSES, dtype=torch.float64))
    assert part_of(network).is_fitted
    assert gain.hops == HOPS
    assert gain.share > 0
    assert gain.after["val"] > 0.9 > gain.before["val"]
    perfect = 10 * F.one_hot(Y, CLASSES).double()
    network, gain = added(Y, perfect)
    assert not part_of(network).is_fitted
    assert gain.share == 0
    assert gain.before == gain.after == {"train": 1.0, "val": 1.0, "test": 1.0}


def test_labels_of_test_nodes_decide_nothing():
    other = Y.clone()
    other[PARTS.test] = (other[PARTS.test] + 1) % CLASSES
    own = torch.randn(300, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (one, first), (two, second) = (added(y, own) for y in (Y, other))
    assert part_of(one).is_fitted
    assert torch.equal(part_of(one).weight, part_of(two).weight)
    assert torch.equal(part_of(one).bias, part_of(two).bias)
    assert first.share == second.share
    assert first.after["val"] == second.after["val"]
    assert first.after["test"] != second.after["test"]


def test_a_training_ends_with_its_linear_part():
    model, plain = make_network(), ResidualGCN(8, 8, CLASSES)
    result = fit(model, DATA, PARTS, QUICK)
    assert result.linear is not None
    assert result.linear.share > 0
    assert result.test is not None
    measured = {"train": result.train, "val": result.val, "test": result.test}
    assert {name: part.value("accuracy") for name, part in measured.items()} == result.linear.after
    assert (result.linear.after["val"] or 0) > (result.linear.before["val"] or 0)
    assert result.best.val_accuracy == result.linear.before["val"], "the network alone chooses the epoch"
    with_part = predict(model, DATA)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "linear" not in k})
    alone = predict(plain, DATA)
    right = alone.argmax(1)[PARTS.test] == Y[PARTS.test]
    assert right.double().mean().item() == pytest.approx(result.linear.before["test"])
    assert not torch.equal(with_part, alone)
    assert fit(plain, DATA, PARTS, QUICK).linear is None


def training(seed: int, **kwargs: Any) -> Training:
    options = {"hidden_channels": 8, "linear_hops": HOPS, "dropout": 0.1}
    return Training("residual-gcn", Recipe(options, QUICK), make_split(Y, "60/20/20", seed), seed, **kwargs)


def test_each_run_has_a_part_of_its_own():
    together = train_many(DATA, [training(seed) for seed in (0, 1)], keep_models=True)
    for seed, outcome in enumerate(together):
        alone = train_many(DATA, [training(seed)], keep_models=True)[0]
        assert outcome.result is not None
        assert alone.result is not None
        assert outcome.result.linear == alone.result.linear
        for name, tensor in part_of(outcome.model).state_dict().items():
            torch.testing.assert_close(tensor, part_of(alone.model).state_dict()[name], rtol=1e-3, atol=1e-4)
    weights = [part_of(outcome.model).weight for outcome in together]
    assert not torch.equal(*weights)


def test_the_same_training_gives_the_same_bits():
    one, two = (train_many(DATA, [training(0)], keep_models=True)[0].model for _ in range(2))
    assert part_of(one).is_fitted
    assert torch.equal(part_of(one).weight, part_of(two).weight)


def test_cross_fitting_judges_the_network_alone():
    outcome = train_many(DATA, [training(0, cross_fit=True)])[0]
    assert outcome.result is not None
    assert outcome.result.linear is None


def test_nothing_is_added_for_numbers_and_after_batches():
    numbers = DATA.clone()
    numbers.y = X[:, 0].float()
    torch.manual_seed(0)
    model = ResidualGCN(8, 8, 1, linear_hops=HOPS)
    assert fit(model, numbers, PARTS, replace(QUICK, metric="r2")).linear is None
    model = make_network()
    batches = BatchSettings(batch_size=50, fanout=(5, 5))
    assert fit(model, DATA, PARTS, QUICK, batches=batches).linear is None
    assert not part_of(model).is_fitted

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
from node2seq.train.fitter import Fitter, fit
from node2seq.train.inference import embed, evaluate, predict
from node2seq.train.results import EpochRecord
from node2seq.train.settings import TrainSettings

SETTINGS = TrainSettings(epochs=15, lr=0.05)


@dataclass(frozen=True)
class Parts:
    train: Tensor
    val: Tensor
    test: Tensor


class Tiny(nn.Module):
    """Mean of the neighbours and a linear map; its noise is counted in the state, as our models' is."""

    step: Tensor

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_channels, out_channels)
        self.near = nn.Linear(in_channels, out_channels, bias=False)
        self.register_buffer("step", torch.tensor(0))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"node2seq": list(self.near.parameters()), "other": list(self.own.parameters())}

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        near = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.near(near)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            self.step += 1
            noise = torch.Generator().manual_seed(int(self.step))
            x = x * (torch.rand(x.shape, generator=noise) > 0.3)
        return self.own(x) + self.embed(x, edge_index)


def make_graph(n: int = 60, classes: int = 3) -> tuple[Data, Parts]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    x = torch.randn(n, 8, generator=generator) + nn.functional.one_hot(y, 8) * 4
    source = torch.randint(n, (4 * n,), generator=generator)
    step = classes * torch.randint(n, (4 * n,), generator=generator)  # neighbours have the same class
    edge_index = torch.stack([source, (source + step) % n])
    order = torch.randperm(n, generator=generator)
    return Data(x=x, edge_index=edge_index, y=y), Parts(order[:20], order[20:40], order[40:])


def make_model(seed: int = 0) -> Tiny:
    torch.manual_seed(seed)
    return Tiny(8, 3)


def assert_same_weights(a: nn.Module, b: nn.Module) -> None:
    left, right = a.state_dict(), b.state_dict()
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def test_fit_learns_and_leaves_the_best_weights_in_the_model():
    data, split = make_graph()
    seen: list[EpochRecord] = []
    model = make_model()
    result = fit(model, data, split, SETTINGS, on_epoch=seen.append)
    assert tuple(seen) == result.history
    assert len(seen) == 15
    assert seen[-1].loss < seen[0].loss
    assert result.val.accuracy > 0.8
    assert result.val.accuracy == result.best.val_accuracy
    assert result.test is not None
    assert result.test == evaluate(model, data, split.test)
    assert result.val == evaluate(model, data, split.val)


class Scripted(nn.Module):
    """Judges node 1 as told, epoch by epoch: by how much its class leads; it trains on node 0 in vain."""

    def __init__(self, leads: list[float]) -> None:
        super().__init__()
        self.leads = leads
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("epoch", torch.tensor(0))

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        if self.training:
            self.epoch += 1
        lead = self.leads[int(self.epoch) - 1]
        return torch.tensor([[0.0, 0.0], [lead, 0.0], [0.0, 0.0]]) + x * self.weight


@pytest.mark.parametrize(
    ("leads", "best"),
    [
        ([-1.0, 1.0, 2.0, 1.0], 3),  # a hit comes first, then the lower loss
        ([1.0, -9.0, 1.0], 1),  # the first of equals stays
        ([-2.0, -1.0, -1.5], 2),  # the loss decides where nothing is hit
    ],
)
def test_the_chosen_epoch_follows_the_one_rule(leads: list[float], best: int):
    data = Data(x=torch.ones(3, 2), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.tensor([1, 0, 0]))
    nodes = [torch.tensor([node]) for node in range(3)]
    model = Scripted(leads)
    result = fit(model, data, Parts(*nodes), TrainSettings(epochs=len(leads)))
    assert result.best.epoch == best
    assert int(model.epoch) == best  # its weights came back, too


def test_the_chosen_epoch_is_the_best_of_the_history():
    data, split = make_graph()
    result = fit(make_model(), data, split, SETTINGS)
    by_rule = min(result.history, key=lambda r: (-r.val_accuracy, r.val_loss, r.epoch))
    assert result.best == by_rule


def test_test_labels_change_nothing_but_the_test_figure():
    data, split = make_graph()
    other = data.clone()
    assert isinstance(other.y, Tensor)
    other.y[split.test] = (other.y[split.test] + 1) % 3
    model, twin = make_model(), make_model()
    result, blind = fit(model, data, split, SETTINGS), fit(twin, other, split, SETTINGS)
    assert_same_weights(model, twin)
    assert result.history == blind.history
    assert result.test != blind.test


@pytest.mark.parametrize("optimizer", ["adam", "nadam"])
@pytest.mark.parametrize("stop", [0, 1, 7, 14, 15])
def test_interrupted_and_resumed_is_bit_identical(stop: int, optimizer):
    data, split = make_graph()
    settings = replace(SETTINGS, optimizer=optimizer, conv_weight_decay=0.02)
    whole = make_model()
    expected = fit(whole, data, split, settings)

    first = Fitter(make_model(), data, split, settings)
    for _ in range(stop):
        first.step()
    state = copy.deepcopy(first.state_dict())
    model = make_model(seed=99)  # resuming must not depend on how the new model happened to start
    second = Fitter(model, data, split, settings)
    second.load_state_dict(state)
    while not second.done:
        second.step()
    if stop == 0:  # nothing had been learned, so only the weights count that were saved
        assert second.epoch == 15
    result = second.finish()
    assert result == expected
    assert_same_weights(model, whole)


def test_patience_stops_early():
    data, split = make_graph()
    settings = replace(SETTINGS, epochs=500, patience=5)
    result = fit(make_model(), data, split, settings)
    assert len(result.history) < 500
    assert len(result.history) - result.best.epoch == 5


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
    assert result.val.accuracy == result.best.val_accuracy


def test_interrupted_averages_go_on():
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


def test_predict_gives_probabilities_for_every_node_and_leaves_the_mode_alone():
    data, _ = make_graph()
    unlabelled = Data(x=data.x, edge_index=data.edge_index)
    model = make_model().train()
    probabilities = predict(model, unlabelled)
    assert probabilities.shape == (60, 3)
    assert torch.allclose(probabilities.sum(1), torch.ones(60))
    assert model.training
    assert int(model.step) == 0
    assert embed(model, unlabelled).shape == (60, 3)


def test_without_test_nodes_there_is_no_test_figure():
    data, split = make_graph()
    result = fit(make_model(), data, replace(split, test=split.test[:0]), SETTINGS)
    assert result.test is None


def test_a_class_without_training_nodes_is_a_warning():
    data, split = make_graph()
    assert isinstance(data.y, Tensor)
    known = split.train[data.y[split.train] != 2]
    result = fit(make_model(), data, replace(split, train=known), SETTINGS)
    assert result.warnings == ("No training node has class 2: the model cannot learn to predict it.",)
    single = split.train[data.y[split.train] == 0]
    result = fit(make_model(), data, replace(split, train=single), SETTINGS)
    assert result.warnings[0].startswith("All training nodes have the same class")


def spoil(data: Data, **changes) -> Data:
    changed = data.clone()
    for name, value in changes.items():
        changed[name] = value
    return changed


def with_value(x, value: float) -> Tensor:
    x = x.clone()
    x[3, 2] = value
    return x


BAD_GRAPHS = {
    "nan": (
        lambda d, s: (spoil(d, x=with_value(d.x, float("nan"))), s),
        "data.x[3, 2]=nan: 1 feature is not a finite number. Fill or drop them before training.",
    ),
    "infinite": (
        lambda d, s: (spoil(d, x=with_value(d.x, float("inf"))), s),
        "data.x[3, 2]=inf: 1 feature is not a finite number. Fill or drop them before training.",
    ),
    "no features": (
        lambda d, s: (spoil(d, x=None), s),
        "data.x=None: the model needs features and edges. Set data.x.",
    ),
    "no labels": (
        lambda d, s: (spoil(d, y=None), s),
        "data.y=None: training and measuring need labels. Set data.y, with -1 for unlabelled.",
    ),
    "float labels": (
        lambda d, s: (spoil(d, y=d.y.float()), s),
        "data.y of shape [60] and type torch.float32: each of the 60 nodes needs one whole number. "
        "Give class ids from 0 and -1 for unlabelled.",
    ),
    "label too high": (
        lambda d, s: (spoil(d, y=d.y + 1), s),
        "label 3: the model gives 3 classes, 0 to 2. Build the model with out_channels=4.",
    ),
    "empty train": (
        lambda d, s: (d, replace(s, train=s.train[:0])),
        "0 train nodes: there is nothing to train on. Give a split with at least one node in each part.",
    ),
    "empty validation": (
        lambda d, s: (d, replace(s, val=s.val[:0])),
        "0 val nodes: there is nothing to measure. Give a split with at least one node in each part.",
    ),
    "mask": (
        lambda d, s: (d, replace(s, train=torch.ones(60, dtype=torch.bool))),
        "the train nodes of type torch.bool and shape [60]: node indices are expected. "
        "Turn a mask into indices with mask.nonzero().view(-1).",
    ),
    "outside": (
        lambda d, s: (d, replace(s, test=torch.tensor([60]))),
        "test node 60: the nodes are 0 to 59. Make the split for this graph.",
    ),
    "unlabelled": (
        lambda d, s: (spoil(d, y=torch.full((60,), -1)), s),
        "train node 26: 20 of the train nodes have no label. Leave unlabelled nodes out of the split.",
    ),
    "overlap": (
        lambda d, s: (d, replace(s, train=torch.tensor([1]), test=torch.tensor([1]), val=torch.tensor([2]))),
        "node 1: it stands in the split more than once, so it would be measured on what it was trained on. "
        "Give each node one part at most.",
    ),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_bad_graphs(case: str):
    change, message = BAD_GRAPHS[case]
    data, split = change(*make_graph())
    with pytest.raises(Node2SeqError) as caught:
        fit(make_model(), data, split, SETTINGS)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs=0: training needs at least one epoch. Give 1 or more."),
        ({"lr": 0.0}, "lr=0.0: the learning rate must be positive. Try 0.01."),
        ({"lr": float("nan")}, "lr=nan: the learning rate must be positive. Try 0.01."),
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


def test_divergence_is_named():
    data, split = make_graph()
    with pytest.raises(
        Node2SeqError, match=r"lr=1e\+38: the loss became .* in epoch \d+\. Train with a lower"
    ):
        fit(make_model(), data, split, replace(SETTINGS, lr=1e38, epochs=50))


def test_a_model_without_one_row_per_node_is_named():
    data, split = make_graph()

    class Pooled(Tiny):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index).mean(0, keepdim=True)

    with pytest.raises(Node2SeqError, match=r"a model output of shape \[1, 3\]: the graph has 60 nodes"):
        fit(Pooled(8, 3), data, split, SETTINGS)


def test_a_model_without_embed_is_named():
    data, _ = make_graph()
    with pytest.raises(Node2SeqError, match="the model Linear: it has no embed method"):
        embed(nn.Linear(8, 3), data)

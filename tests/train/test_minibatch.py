"""Training on mini-batches: the full batch's where everything is drawn, the same bits however it is run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import in_ranks
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from node2seq import MODELS, Node2SeqError
from node2seq.data import Split
from node2seq.nn.models.network import Network, hops_of_network
from node2seq.ops import SparseRows
from node2seq.train import BatchSettings, Fitter, TrainSettings, batches, evaluate, fit, predict
from node2seq.train.batches import BatchGraph, with_fanout
from node2seq.train.settings import make_network

NODES, FEATURES, CLASSES = 90, 6, 3


@pytest.fixture(scope="module")
def data() -> Data:
    return in_ranks.graph()[0]


@pytest.fixture(scope="module")
def split() -> Split:
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(2))
    return Split(
        train=order[:50], val=order[50:70], test=order[70:], test_rest=order[70:], rule="given", seed=0
    )


def network(name: str = "node2seq", **options: Any) -> Network:
    torch.manual_seed(0)
    return make_network(name, FEATURES, CLASSES, {"hidden_channels": 8, **options}).double()


# Normalisation over a batch sees nodes that the full batch weighs otherwise.
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("gin", "lgcn", "mlp")])
def test_one_batch_of_everything_is_the_full_batch(name, data, split):
    """Dropout included: it is a function of the nodes' ids, wherever they stand in a batch."""
    settings = TrainSettings(epochs=4, averaging=0.5, label_smoothing=0.1, class_weights=True, views=2)
    full, model = fit(network(name), data, split, settings), network(name)
    batches = BatchSettings(50, (-1,) * hops_of_network(model))
    batched = fit(model, data, split, settings, batches=batches)
    for one, other in zip(full.history, batched.history, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-9)
        assert one.val_loss == pytest.approx(other.val_loss, rel=1e-9)
    assert full.best.epoch == batched.best.epoch


@pytest.mark.parametrize("workers", [0, 1])
def test_features_of_few_values_train_as_the_full_batch_does(data, split, workers):
    x = torch.zeros(NODES, 60, dtype=torch.float64)
    x[torch.arange(NODES), 20 * data.y + torch.arange(NODES) % 20] = 2.0
    words = Data(x=x, edge_index=data.edge_index, y=data.y)
    settings, made = TrainSettings(epochs=3), {"hidden_channels": 8, "input_dropout": 0.5}

    def model() -> Network:
        torch.manual_seed(0)
        return make_network("residual-node2seq", 60, CLASSES, made).double()

    assert isinstance(BatchGraph.of(model(), words).features(torch.arange(4)), SparseRows)
    hops = hops_of_network(model())
    full = fit(model(), words, split, settings)
    batched = fit(model(), words, split, settings, batches=BatchSettings(50, (-1,) * hops, workers))
    for one, other in zip(full.history, batched.history, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-9)
        assert one.val_loss == pytest.approx(other.val_loss, rel=1e-9)


SETTINGS = TrainSettings(epochs=6, lr=0.02)
BATCHES = BatchSettings(16, (4, 4, 4))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_ends_with_the_same_bits(data, split, workers):
    batches = BatchSettings(16, (4, 4, 4), workers)
    undisturbed = network()
    expected = fit(undisturbed, data, split, SETTINGS, batches=BATCHES, seed=3)
    first = Fitter(network(), data, split, SETTINGS, batches=batches, seed=3)
    for _ in range(3):
        first.step()
    state = {
        part: {key: value.clone() for key, value in values.items()}
        for part, values in first.state_dict().items()
    }
    model = network()
    second = Fitter(model, data, split, SETTINGS, batches=batches, seed=3)
    second.load_state_dict(state)
    while not second.done:
        second.step()
    found = second.finish()
    assert found.history == expected.history
    for (key, value), other in zip(
        model.state_dict().items(), undisturbed.state_dict().values(), strict=True
    ):
        assert torch.equal(value, other), key


def test_the_learning_rate_is_scaled_by_a_batch_s_share(data, split):
    batches = BatchSettings(512, (10, 10), scale_lr=True)
    assert batches.lr(0.01, 2048) == pytest.approx(0.0025)
    assert batches.lr(0.01, 100) == 0.01
    assert batches.lr(0.01, 10**9) == pytest.approx(0.001)  # the least
    assert BatchSettings(512, (10, 10)).lr(0.01, 2048) == 0.01
    scaled, plain = network(), network()
    fit(scaled, data, split, replace(SETTINGS, epochs=2), batches=replace(BATCHES, scale_lr=True))
    given = replace(SETTINGS, epochs=2, lr=SETTINGS.lr * (16 / 50))
    fit(plain, data, split, given, batches=BATCHES)
    for (name, value), other in zip(scaled.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


def test_without_a_fanout_small_graphs_are_read_whole(data, split, monkeypatch):
    asked, given = BatchSettings(16), BatchSettings(16, (-1, -1, -1))
    both = [fit(network(), data, split, SETTINGS, batches=one) for one in (asked, given)]
    assert both[0].history == both[1].history
    monkeypatch.setattr(batches, "CHUNK_EDGES", data.num_edges - 1)
    assert with_fanout(asked, network(), data.num_edges).fanout == (10, 10, 10)
    assert with_fanout(BATCHES, network(), data.num_edges) == BATCHES
    with pytest.raises(Node2SeqError, match="MLP: it reads no neighbours"):
        fit(network("mlp"), data, split, SETTINGS, batches=asked)


@pytest.mark.slow
def test_batches_learn_and_depend_on_the_seed(data, split):
    settings, without = TrainSettings(epochs=10, lr=0.03), {"input_dropout": 0.0, "dropout": 0.0}
    runs = [
        fit(network("node2seq", **without), data, split, settings, batches=BATCHES, seed=seed)
        for seed in (0, 1)
    ]
    assert runs[0].history != runs[1].history
    assert all((run.val.value("accuracy") or 0) > 0.7 for run in runs)


def test_edges_with_an_order_are_drawn_by_it(data):
    """The largest numbers first, as the layer sorts them."""
    order = torch.randperm(data.num_edges, generator=torch.Generator().manual_seed(4))
    ordered = Data(x=data.x, edge_index=data.edge_index, y=data.y, edge_order=order)
    graph = BatchGraph.of(network("node2seq", order="edge"), ordered)
    found = graph.sampler((2,)).sample_from_nodes(NodeSamplerInput(None, torch.arange(NODES)))
    assert found.edge is not None
    drawn = graph.carried["edge_order"](found.edge)
    for node in range(NODES):
        latest = order[data.edge_index[1] == node].sort(descending=True).values[:2]
        assert drawn[found.col == node].sort(descending=True).values.tolist() == latest.tolist()


def test_inference_by_layers_gives_what_one_pass_gives(data, split):
    model = network("residual-node2seq")
    both = [predict(model, data, by_layers=by_layers) for by_layers in (False, True)]
    torch.testing.assert_close(both[0], both[1], rtol=0, atol=1e-12)
    measured = [evaluate(model, data, split.test, by_layers=by_layers) for by_layers in (False, True)]
    assert measured[0].value("accuracy") == measured[1].value("accuracy")


def test_what_does_not_fit_is_refused_in_a_sentence(data, split):
    def train(batches: BatchSettings, **options: Any) -> None:
        fit(network(**options), data, split, SETTINGS, batches=batches)

    with pytest.raises(Node2SeqError, match="fanout 4,4: it has 2 numbers, and this network reads 3 hops"):
        train(BatchSettings(16, (4, 4)))
    with pytest.raises(Node2SeqError, match="hops=2: the nodes within several hops are chosen in the whole"):
        train(BATCHES, hops=2)
    for given, words in (((0, (4,)), "batch size 0"), ((4, (0,)), "fanout 0"), ((4, (-3,)), "fanout -3")):
        with pytest.raises(Node2SeqError, match=words):
            BatchSettings(*given)
    with pytest.raises(Node2SeqError, match="workers=-1"):
        BatchSettings(4, (4,), -1)

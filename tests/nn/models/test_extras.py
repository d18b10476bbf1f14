"""Own features apart and smoothed predictions, which every graph network of the tables can have."""

from typing import Any

import pytest
import torch

from node2seq.data import load
from node2seq.nn.models import MODELS, Node2SeqPlus
from node2seq.train.stacking import stack

NAMES = ("gcn", "gat", "cheby", "sgc", "lgcn", "gcn*")
DATA = load("karate")


def made(name: str, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return MODELS[name](DATA.num_features, 8, 4, **options)


@pytest.mark.parametrize("name", NAMES)
def test_own_features_add_a_prediction_that_no_edge_changes(name):
    few: dict[str, Any] = {"input_dropout": 0.1}
    plain, model = made(name, **few).eval(), made(name, own="apart", **few).eval()
    without = torch.empty(2, 0, dtype=torch.int64)
    assert plain.extras is None
    for edges in (DATA.edge_index, without):
        added = model(DATA.x, edges) - plain(DATA.x, edges)  # the layers are drawn first, so they are equal
        hidden = model.extras.lins[0](DATA.x).relu()
        torch.testing.assert_close(added, model.extras.lins[1](hidden))
    model.train()(DATA.x, DATA.edge_index).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.extras.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_smoothing_spreads_the_sum_over_the_graph(name):
    plain, model = made(name, own="apart").eval(), made(name, own="apart", smoothing=3, teleport=0.2).eval()
    smoothed = model.extras.smooth(plain(DATA.x, DATA.edge_index), DATA.edge_index)
    torch.testing.assert_close(model(DATA.x, DATA.edge_index), smoothed)


def test_runs_side_by_side_have_extras_of_their_own():
    options = {"own": "apart", "smoothing": 2}
    models = [made("gcn", seed, dropout=0.1 * seed, **options).eval() for seed in (1, 2)]
    together = stack(models).eval()(DATA.x, DATA.edge_index)
    torch.testing.assert_close(together, torch.stack([model(DATA.x, DATA.edge_index) for model in models]))


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_dense_layer_sees_no_neighbours(position):
    torch.manual_seed(0)
    model = Node2SeqPlus(DATA.num_features, 8, 4, position=position, layer="dense").eval()
    special = model.convs[position - 1]
    assert isinstance(special, torch.nn.Linear)
    assert model.parameter_groups()["node2seq"] == list(special.parameters())
    model(DATA.x, DATA.edge_index).sum().backward()
    assert special.weight.grad is not None
    stacked = stack([model, model]).eval()
    torch.testing.assert_close(stacked(DATA.x, DATA.edge_index)[1], model(DATA.x, DATA.edge_index))

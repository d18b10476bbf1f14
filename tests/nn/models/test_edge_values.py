"""Networks on graphs whose edges carry something, and their training."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq import MODELS, Node2SeqError
from node2seq.train import TrainSettings, evaluate, fit, predict
from node2seq.train.inputs import edge_dim_of
from node2seq.train.many import Training, train_many
from node2seq.train.settings import Recipe, option_types
from node2seq.train.stacking import stack

WEIGHTED = sorted(name for name, network in MODELS.items() if "edge_weight" in network.carried)
WITH_ATTRIBUTES = sorted(name for name, network in MODELS.items() if "edge_attr" in network.carried)


def graph(seed: int = 0) -> Any:
    """Neighbours of a node's own class have large weights, and attributes that tell."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (60,), generator=generator)
    edge_index = torch.randint(60, (2, 400), generator=generator)
    same = (y[edge_index[0]] == y[edge_index[1]]).float()
    x = torch.nn.functional.one_hot(y, 3).float() + torch.randn(60, 3, generator=generator)
    attr = torch.stack([same, torch.rand(400, generator=generator)], dim=1)
    return Data(x=x, edge_index=edge_index, y=y, edge_weight=0.05 + same, edge_attr=attr)


class Parts:
    """A split of the sixty nodes."""

    train, val, test = torch.arange(30), torch.arange(30, 45), torch.arange(45, 60)


def carried(name: str, data: Data) -> dict[str, Tensor]:
    return {key: data[key] for key in MODELS[name].carried if key in data}  # no order, which sorts alone


def make(name: str, **options: Any) -> Any:
    torch.manual_seed(1)
    edge_dim = 2 if name in WITH_ATTRIBUTES else None
    return MODELS[name](3, 8, 3, edge_dim=edge_dim, **options)


def test_which_networks_take_what() -> None:
    assert {*WEIGHTED} >= {"node2seq", "node2seq-plus", "gcn", "sgc", "cheby", "gcn*", "residual-node2seq"}
    assert {*WITH_ATTRIBUTES} >= {"node2seq", "node2seq-plus", "gat", "gin", "residual-node2seq"}
    for name in ("lgcn", "mlp"):
        assert not MODELS[name].carried


@pytest.mark.parametrize("name", sorted({*WEIGHTED, *WITH_ATTRIBUTES}))
def test_what_edges_carry_counts_and_gets_a_gradient(name: str) -> None:
    data, model = graph(), make(name).eval()
    given = {key: values.clone().requires_grad_() for key, values in carried(name, data).items()}
    out = model(data.x, data.edge_index, **given)
    wanted = [*given.values(), *model.parameters()]
    for grad in torch.autograd.grad(out.sin().sum(), wanted):
        assert grad.isfinite().all()
        assert grad.abs().max() > 0
    other = {key: values.flip(0) for key, values in given.items()}
    assert not torch.allclose(model(data.x, data.edge_index, **other), out)
    embedding = model.embed(data.x, data.edge_index, **given)
    assert embedding.shape[0] == 60


@pytest.mark.parametrize("name", sorted({*WEIGHTED, *WITH_ATTRIBUTES}))
def test_several_runs_at_once(name: str) -> None:
    data, models = graph(), [make(name).double().eval() for _ in range(2)]
    for parameter in models[1].parameters():
        parameter.data = parameter.data + 0.1
    given = {key: values.double() for key, values in carried(name, data).items()}
    together = stack(models).eval()(data.x.double(), data.edge_index, **given)
    for model, out in zip(models, together, strict=True):
        assert torch.allclose(model(data.x.double(), data.edge_index, **given), out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_a_network_does_not_take_is_refused(name: str) -> None:
    data, model = graph(), MODELS[name](3, 8, 3)
    for key, takers in (("edge_weight", WEIGHTED), ("edge_attr", WITH_ATTRIBUTES)):
        if name in takers:
            continue
        with pytest.raises(Node2SeqError, match=f"{key} for {type(model).__name__}.*Node2Seq") as caught:
            model(data.x, data.edge_index, **{key: data[key]})
        assert MODELS[takers[0]].__name__ in str(caught.value)
        alone = Data(x=data.x, edge_index=data.edge_index, y=data.y, **{key: data[key]})
        with pytest.raises(Node2SeqError, match=key):
            fit(model, alone, Parts(), TrainSettings(epochs=1, lr=0.01))
    if name not in WITH_ATTRIBUTES:
        with pytest.raises(Node2SeqError, match="edge_attr"):
            MODELS[name](3, 8, 3, edge_dim=2)


@pytest.mark.parametrize("name", WITH_ATTRIBUTES)
def test_attributes_and_edge_dim_go_together(name: str) -> None:
    data = graph()
    with pytest.raises(Node2SeqError, match="no edge_attr"):
        make(name)(data.x, data.edge_index)
    with pytest.raises(Node2SeqError, match="edge_dim=None"):
        MODELS[name](3, 8, 3)(data.x, data.edge_index, edge_attr=data.edge_attr)


def test_a_gcn_layer_in_the_place_of_node2seq_reads_no_attributes() -> None:
    with pytest.raises(Node2SeqError, match="layer='gcn'"):
        MODELS["node2seq-plus"](3, 8, 3, edge_dim=2, layer="gcn")


def test_smoothing_goes_by_the_weights() -> None:
    data = graph()
    model: Any = MODELS["node2seq-plus"](3, 8, 3, smoothing=2).eval()
    weighted = model(data.x, data.edge_index, data.edge_weight)
    x = torch.randn(60, 3)
    out = model.smooth(x, data.edge_index, data.edge_weight)
    assert not torch.allclose(out, model.smooth(x, data.edge_index))
    assert weighted.isfinite().all()


@pytest.mark.parametrize("name", ["node2seq", "gcn", "gat", "gin"])
def test_training_and_inference_read_the_graph_s_values(name: str) -> None:
    data = graph()
    for key in {"edge_weight", "edge_attr"} - {*MODELS[name].carried}:
        del data[key]
    model = make(name, **{key: 0.0 for key in option_types(name) if "dropout" in key})
    result = fit(model, data, Parts(), TrainSettings(epochs=30, lr=0.05))
    assert result.history[-1].loss < 0.8 * result.history[0].loss
    out = predict(model, data)
    other = data.clone()
    for key in carried(name, data):
        other[key] = other[key].flip(0)
    assert not torch.allclose(predict(model, other), out)
    assert evaluate(model, data, Parts().test).value("accuracy")
    recipe = Recipe(options={"hidden_channels": 8}, settings=TrainSettings(epochs=5, lr=0.05))
    outcomes = train_many(data, [Training(name, recipe, Parts(), seed) for seed in (0, 1)])
    assert all(outcome.error is None for outcome in outcomes)


def test_missing_values_are_named() -> None:
    data = graph()
    del data.edge_attr
    data.edge_weight[7] = torch.nan
    with pytest.raises(Node2SeqError, match=r"data.edge_weight\[7\]"):
        fit(MODELS["gcn"](3, 8, 3), data, Parts(), TrainSettings(epochs=1, lr=0.01))


def test_other_models_get_what_they_have_arguments_for() -> None:
    seen: list[tuple] = []

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(3, 3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            seen.append((edge_index.shape, edge_weight))
            return self.lin(x)

    fit(Own(), graph(), Parts(), TrainSettings(epochs=1, lr=0.01))
    assert all(weight is not None for _, weight in seen)


def test_how_many_attributes_there_are() -> None:
    data = graph()
    assert edge_dim_of(data) == 2
    data.edge_attr = data.edge_attr[:, 0]
    assert edge_dim_of(data) == 1
    data.edge_attr = None
    assert edge_dim_of(data) is None

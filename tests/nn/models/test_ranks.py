"""Networks with ranks, and with an order that the edges give."""

from typing import Any

import pytest
import torch
from rounding import assert_same_up_to_rounding
from torch import Tensor

from node2seq import MODELS, Node2SeqError
from node2seq.train.stacking import stack

NAMES = sorted(name for name, network in MODELS.items() if "edge_order" in network.carried)
X = torch.randn(20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(20, (2, 90), generator=torch.Generator().manual_seed(1))
TIMES = torch.randperm(90, generator=torch.Generator().manual_seed(2)) + 1_600_000_000


def make(name: str, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return MODELS[name](6, 8, 3, readout="ranks", **options).double().eval()


def test_which_networks_take_an_order() -> None:
    assert NAMES == ["node2seq", "node2seq-plus", "residual-node2seq"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [{}, {"scores": "shared", "temperature": 0.5}, {"soft": False}, {"score_channels": 3}, {"order": "edge"}],
    ids=str,
)
def test_every_parameter_learns_alone_and_among_runs(name: str, options: dict[str, Any]) -> None:
    order: dict[str, Tensor] = {"edge_order": TIMES} if "order" in options else {}
    models = [make(name, seed, **options) for seed in (0, 1)]
    outputs = [model(X, EDGES, **order) for model in models]
    for model, out in zip(models, outputs, strict=True):
        for grad in torch.autograd.grad(out.sin().sum(), list(model.parameters())):
            assert grad.abs().max() > 0
    assert_same_up_to_rounding(stack(models)(X, EDGES, **order), torch.stack(outputs), 100)
    assert models[0].embed(X, EDGES, **order).size(0) == 20


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_edges_counts(name: str) -> None:
    model = make(name, order="edge", self_position="last")
    out = model(X, EDGES, edge_order=TIMES)
    assert not torch.allclose(model(X, EDGES, edge_order=TIMES.flip(0)), out)
    shuffled = torch.randperm(90)
    assert_same_up_to_rounding(model(X, EDGES[:, shuffled], edge_order=TIMES[shuffled]), out, 100)
    with pytest.raises(Node2SeqError, match="no edge_order"):
        model(X, EDGES)
    with pytest.raises(Node2SeqError, match="make the layer with order='edge'"):
        make(name)(X, EDGES, edge_order=TIMES)


def test_other_networks_name_those_that_take_an_order() -> None:
    class Other(MODELS["node2seq"]):
        """Of another package: not one to advise."""

    with pytest.raises(Node2SeqError, match=r"edge_order for GCN.*Node2Seq, Node2SeqPlus, ResidualNode2Seq"):
        MODELS["gcn"](6, 8, 3)(X.float(), EDGES, edge_order=TIMES)

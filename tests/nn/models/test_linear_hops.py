"""The linear model beside a network: a sum over hops, silent until it is fitted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from node2seq import Node2SeqError, ops
from node2seq.data import load
from node2seq.nn.models import MODELS
from node2seq.nn.models.network import Edges, hops_of_network
from node2seq.nn.models.residual import LinearHops
from node2seq.train.stacking import stack, unstack

DATA, CLASSES = load("karate"), 4
assert DATA.x is not None
assert DATA.edge_index is not None
X, EDGES = DATA.x.double(), DATA.edge_index


def made(seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return MODELS["residual-gcn"](X.size(1), 8, CLASSES, **options).double().eval()


def fitted(seed: int = 0, hops: int = 3, **options: Any) -> Any:
    network = made(seed, linear_hops=hops, **options)
    generator = torch.Generator().manual_seed(seed + 1)
    weight = torch.randn((hops + 1) * CLASSES, X.size(1), generator=generator, dtype=torch.float64)
    network.linear.set_weights(weight, torch.randn(CLASSES, generator=generator, dtype=torch.float64))
    return network


def literal(part: LinearHops) -> Tensor:
    """The sum over hops with dense matrices."""
    with_loops = torch.eye(X.size(0), dtype=torch.float64)
    source, target = EDGES
    with_loops[target, source] = 1.0
    root = with_loops.sum(1).rsqrt()
    normalized = root[:, None] * with_loops * root
    total, spread = part.bias.expand(X.size(0), -1), X
    for weight in part.weight.split(part.out_channels):
        total, spread = total + spread @ weight.t(), normalized @ spread
    return total


@pytest.mark.parametrize("hops", [1, 4])
@pytest.mark.parametrize("features", ["dense", "sparse"])
def test_a_fitted_part_adds_the_sum_over_hops(hops: int, features: str):
    network = fitted(hops=hops)
    x = X if features == "dense" else ops.sparse_rows(X)
    assert isinstance(x, Tensor if features == "dense" else ops.SparseRows)
    added = network(x, EDGES) - made()(X, EDGES)
    torch.testing.assert_close(added, literal(network.linear), rtol=0, atol=1e-10)


def test_nothing_is_added_before_it_is_fitted():
    plain, network = made(), made(linear_hops=4)
    assert torch.equal(network(X, EDGES), plain(X, EDGES))
    assert not network.linear.is_fitted
    assert hops_of_network(network) == hops_of_network(plain) == 2
    assert [p.shape for p in network.parameters()] == [p.shape for p in plain.parameters()]
    assert hops_of_network(fitted(hops=4)) == 4
    assert hops_of_network(fitted(hops=4, num_layers=5)) == 5


def test_weights_are_kept_and_forgotten():
    network, other = fitted(), made(linear_hops=3)
    expected = network(X, EDGES)
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(X, EDGES), expected)
    other.linear.reset_parameters()
    assert torch.equal(other(X, EDGES), made()(X, EDGES))
    other.linear.set_weights(torch.zeros_like(other.linear.weight), torch.ones(CLASSES))
    assert torch.equal(other(X, EDGES), made()(X, EDGES) + 1), "features that say nothing leave the bias"
    assert str(network.linear) == "LinearHops(\n  hops=3, is_fitted=True\n  (sum): NormalizedSum()\n)"
    assert made().linear is None


def test_runs_side_by_side_have_weights_of_their_own():
    models = [fitted(seed) for seed in (1, 2)]
    together = stack(models).eval()
    expected = torch.stack([model(X, EDGES) for model in models])
    torch.testing.assert_close(together(X, EDGES), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(unstack(together, 1)(X, EDGES), expected[1], rtol=0, atol=1e-10)
    with pytest.raises(Node2SeqError, match="is_fitted"):
        stack([models[0], made(2, linear_hops=3)])


def test_it_is_compiled_and_exported_with_the_network():
    network, inputs = fitted(), (X, EDGES)
    expected = network(*inputs)
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), expected, rtol=0, atol=1e-10)
    exported = torch.export.export(network, inputs)
    torch.testing.assert_close(exported.module()(*inputs), expected, rtol=0, atol=1e-10)


def test_products_are_those_of_other_weights():
    network, other = made(linear_hops=2), fitted(3, hops=2)
    weight = other.linear.weight
    products = network.linear.products(weight, X, Edges(EDGES))
    torch.testing.assert_close(products, literal(other.linear) - other.linear.bias, rtol=0, atol=1e-10)


def test_options_that_make_no_sense_are_errors():
    with pytest.raises(Node2SeqError, match="linear_hops=-1: it is from how far features are read"):
        made(linear_hops=-1)
    with pytest.raises(Node2SeqError, match="linear_hops=2 with in_channels=-1"):
        MODELS["residual-gcn"](-1, 8, CLASSES, linear_hops=2)

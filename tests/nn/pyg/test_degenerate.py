"""Graphs without edges, without nodes, with isolated nodes: finite outputs and gradients."""

import itertools

import pytest
import torch
from pyg_cases import CHANNELS, features, layer
from rounding import assert_same_up_to_rounding

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.models import Node2Seq

OPTIONS = [
    {
        "readout": readout,
        "hops": hops,
        "kernel_size": kernel_size,
        "backend": backend,
        "add_self_loops": loops,
    }
    for readout, hops, kernel_size, backend, loops in itertools.product(
        ["max", "mean", "sum"], [1, 2], [1, 3], ["eager", "reference"], [True, False]
    )
]
NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


def _root(conv, x):
    """What an empty sequence leaves: x̄ W2 + b."""
    return conv.lin_root(conv.lin(x)) + conv.bias


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("listened", [False, True])
def test_without_edges(options, listened):
    conv = layer(**options)
    if listened:
        conv.register_message_forward_hook(lambda *_: None)
    x = features(4).requires_grad_()
    out = conv(x, NO_EDGES)
    expected = _root(conv, x)
    if options["add_self_loops"]:  # one window over the node itself, zeros behind it
        expected = expected + conv.lin(x) @ conv.weight[0]
    assert_same_up_to_rounding(out, expected)
    (grad,) = torch.autograd.grad(out.sum(), x)
    (expected_grad,) = torch.autograd.grad(expected.sum(), x)
    assert_same_up_to_rounding(grad, expected_grad)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("listened", [False, True])
def test_without_nodes(options, listened):
    conv = layer(**options)
    if listened:
        conv.register_message_forward_hook(lambda *_: None)
    out, trace = conv(torch.empty(0, CHANNELS), NO_EDGES, return_trace=True)
    assert out.shape == (0, 4)
    assert trace.ptr.tolist() == [0]
    out.sum().backward()
    assert all(p.grad is not None and not bool(p.grad.count_nonzero()) for p in conv.parameters())


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_isolated_nodes(options):
    """Nodes without edges get what they get in a graph without edges, whatever the others do."""
    conv = layer(**options)
    x = features(6).requires_grad_()
    edges = torch.tensor([[1, 2, 1], [2, 1, 5]])  # 0, 3 and 4 are isolated
    out = conv(x, edges)
    assert_same_up_to_rounding(out[[0, 3, 4]], conv(x, NO_EDGES)[[0, 3, 4]])
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    assert bool(out.isfinite().all())
    assert bool(grad.isfinite().all())
    assert bool((grad != 0).any(1).all())


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_value_that_is_not_finite_stays_with_those_who_see_it(options, bad):
    """Sequences lie one behind the other in memory: a short one must not read its neighbour's rows."""
    conv = layer(**{**options, "kernel_size": 10})
    x = features(6)
    edges = torch.tensor([[0, 1, 2, 3, 5, 4], [3, 3, 3, 3, 3, 4]])  # 4 is its own neighbour alone
    expected = conv(x, edges)
    x[4] = bad
    x.requires_grad_()
    out = conv(x, edges)
    others = [0, 1, 2, 3, 5]
    assert_same_up_to_rounding(out[others], expected[others])
    (grad,) = torch.autograd.grad(out[others].sum(), x)
    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize(("sources", "targets"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("readout", ["max", "mean", "sum", "ranks"])
@pytest.mark.parametrize("backend", ["eager", "reference", pytest.param("native", marks=pytest.mark.slow)])
def test_one_side_without_nodes(sources, targets, loops, readout, backend):
    conv = layer((5, 3), add_self_loops=loops, readout=readout, backend=backend)
    x_dst = features(targets, 3, seed=1)
    out = conv((features(sources), x_dst), NO_EDGES)
    assert conv.lin_dst is not None
    expected = conv.lin_root(conv.lin_dst(x_dst)) + conv.bias
    assert_same_up_to_rounding(out, expected)
    out.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "reference", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("nodes", [0, 1, 4])
def test_gcn_layer_and_network(nodes, backend):
    torch.manual_seed(0)
    conv = GCNConv(CHANNELS, 4, backend=backend)
    x = features(nodes)
    assert_same_up_to_rounding(conv(x, NO_EDGES), conv.lin(x) + conv.bias)
    model = Node2Seq(CHANNELS, 4, 3, hops=2, backend=backend).eval()
    out = model(x, NO_EDGES)
    assert out.shape == (nodes, 3)
    assert bool(out.isfinite().all())
    out.sum().backward()

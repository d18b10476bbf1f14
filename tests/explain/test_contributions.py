"""Contributions sum to the layer's output, for every node and every readout."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from node2seq import Node2SeqConv
from node2seq.data import load
from node2seq.explain import contributions, recorded
from node2seq.nn.conv.ranks import Call

READOUTS: dict[str, dict[str, Any]] = {
    "max": {"readout": "max"},
    "mean": {"readout": "mean"},
    "sum": {"readout": "sum"},
    "soft ranks": {"readout": "ranks"},
    "hard ranks": {"readout": "ranks", "soft": False},
}
CARRIED: list[dict[str, Any]] = [
    {"readout": "max", "hops": 2, "threshold": 0.5},
    {"readout": "mean", "hops": 2, "nonlocal_order": "local-first", "root": "input"},
    {"readout": "sum", "order": "edge", "self_position": "last", "taps": "depthwise"},
    {"readout": "max", "order": "edge", "self_position": "none", "root": "none", "bias": False},
    {"readout": "ranks", "heads": 2, "hops": 2},
    {"readout": "ranks", "scores": "shared", "taps": "scalar"},
    {"readout": "ranks", "heads": 3, "taps": "scalar"},
    {"readout": "ranks", "order": "degree"},
    {"readout": "mean", "order": "random", "flow": "target_to_source"},
    {"readout": "max", "kernel_size": 7, "add_self_loops": False},
]


def call_of(conv: Node2SeqConv, *given: Any, **named: Any) -> Call:
    with torch.no_grad(), recorded(conv) as calls:
        conv(*given, **named)
    return calls[""]


def relative_error(conv: Node2SeqConv, call: Call) -> float:
    """The largest difference at a node, over the largest output of that node."""
    found = contributions(conv, call).total()
    size = call.out.abs().amax(1).double().clamp(min=1e-30)
    return float(((found - call.out).abs().amax(1) / size).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cora-r", "squirrel"])
def test_they_sum_to_the_output_of_every_node_of_real_graphs(real_data, name: str):
    data = real_data(name, load)
    for about in READOUTS.values():
        for dtype, most in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
            torch.manual_seed(0)
            conv = Node2SeqConv(data.num_features, 8, **about).to(dtype)
            torch.nn.init.normal_(conv.bias)  # pyright: ignore[reportArgumentType]
            call = call_of(conv, data.x.to(dtype), data.edge_index)
            assert call.out.abs().max() > 0.1
            assert relative_error(conv, call) < most, (about, dtype)


@pytest.mark.parametrize("about", CARRIED, ids=str)
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_they_sum_with_every_option_and_with_what_edges_carry(about: dict[str, Any], backend: str):
    torch.manual_seed(0)
    data = load("karate")
    x, edge_index = torch.randn(34, 9).double(), data.edge_index
    assert edge_index is not None
    edge_index = torch.cat([edge_index, edge_index[:, :5], torch.tensor([[3, 4], [3, 4]])], dim=1)
    edges = edge_index.size(1)
    carried: dict[str, Any] = {"edge_order": torch.rand(edges)} if about.get("order") == "edge" else {}
    bare = Node2SeqConv(9, 6, **about, backend=backend).double()
    assert relative_error(bare, call_of(bare, x, edge_index, **carried)) < 1e-12
    conv = Node2SeqConv(9, 6, **about, edge_dim=2, backend=backend).double()
    values = torch.randn(edges).double(), torch.randn(edges, 2).double()
    call = call_of(conv, x, edge_index, *values, **carried)
    assert relative_error(conv, call) < 1e-12
    # Some nodes, in another order, are the same as all of them.
    nodes = torch.tensor([33, 0, 7])
    some, every = contributions(conv, call, nodes), contributions(conv, call)
    torch.testing.assert_close(some.total(), every.total()[nodes])
    assert call.out.shape == every.own.shape


def test_a_window_that_did_not_win_adds_nothing():
    torch.manual_seed(0)
    conv = Node2SeqConv(3, 4, kernel_size=2, root="none", bias=False).double()
    edge_index = torch.tensor([[1, 2, 3, 4, 5], [0, 0, 0, 0, 0]])
    call = call_of(conv, torch.randn(6, 3).double(), edge_index)
    found = contributions(conv, call, torch.tensor([0]))
    assert call.trace.winner is not None
    for channel, first in enumerate(call.trace.winner[0].tolist()):
        heard = found.terms[:, channel].nonzero().view(-1).tolist()
        assert heard == [first, first + 1]

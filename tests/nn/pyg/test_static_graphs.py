"""Many feature matrices on one graph, [B, N, C]: each gets what it gets alone."""

import pytest
import torch
from pyg_cases import EDGES, features, gradients, layer
from rounding import assert_same_up_to_rounding
from torch_geometric.utils import to_torch_csr_tensor

from node2seq import MODELS, Node2SeqConv
from node2seq.errors import Node2SeqError

X = torch.stack([features(seed=seed) for seed in range(3)])
OPTIONS = [
    {},
    {"readout": "mean"},
    {"readout": "sum", "root": "input"},
    {"root": "none"},
    {"hops": 2, "threshold": 0.5},
    {"order": "degree"},
    {"order": "random"},
    {"order": "random", "hops": 2},
    {"taps": "depthwise"},
    {"flow": "target_to_source"},
]


@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize(
    "backend", ["auto", "eager", "reference", pytest.param("native", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_gets_what_it_gets_alone(options, backend, listened):
    conv = layer(backend=backend, **options)
    if listened:
        conv.register_message_forward_hook(lambda *_: None)
    x = X.clone().requires_grad_()
    out = conv(x, EDGES)
    assert out.shape == (3, 9, 4)
    expected = torch.stack([conv(one, EDGES) for one in X])
    assert_same_up_to_rounding(out, expected)
    assert_same_up_to_rounding(gradients(conv, out), gradients(conv, expected), roundings=16)


@pytest.mark.parametrize("in_channels", [-1, 5])
def test_lazy_sizes_and_matrices(in_channels):
    torch.manual_seed(0)
    conv = Node2SeqConv(in_channels, 4)
    out = conv(X, EDGES)
    merged = EDGES.unique(dim=1)
    assert torch.equal(conv(X, to_torch_csr_tensor(merged.flip(0), size=(9, 9))), out)
    assert_same_up_to_rounding(out[1], conv(X[1], EDGES))


def test_bipartite():
    conv, edges = layer((5, 3)), EDGES[:, EDGES[1] < 6]
    x_dst = torch.stack([features(6, 3, seed=seed) for seed in range(3)])
    out = conv((X, x_dst), edges)
    assert_same_up_to_rounding(out, torch.stack([conv(pair, edges) for pair in zip(X, x_dst, strict=True)]))
    with pytest.raises(Node2SeqError, match="3 graphs' sources and 2 graphs' targets"):
        conv((X, x_dst[:2]), edges)


def test_edges_that_carry_something():
    conv = layer(edge_dim=2)
    generator = torch.Generator().manual_seed(0)
    weight, attr = (
        torch.rand(EDGES.size(1), generator=generator),
        torch.randn(EDGES.size(1), 2, generator=generator),
    )
    out = conv(X, EDGES, weight, attr)
    assert_same_up_to_rounding(out, torch.stack([conv(one, EDGES, weight, attr) for one in X]))
    _, trace = conv(X, EDGES, weight, attr, return_trace=True)
    for number, one in enumerate(X):
        _, alone = conv(one, EDGES, weight, attr, return_trace=True)
        start, end = trace.ptr[9 * number], trace.ptr[9 * number + 9]
        assert torch.equal(trace.edge[start:end], alone.edge)
    conv.register_message_forward_hook(lambda *_: None)
    with pytest.raises(Node2SeqError, match="single messages of 3 graphs"):
        conv(X, EDGES, weight, attr)


def test_hooks_see_a_message_for_each_edge_of_each_graph():
    conv, seen = layer(), []
    conv.register_message_forward_hook(lambda _module, _inputs, out: seen.append(out))
    conv(X, EDGES)
    assert seen[0].shape == (3 * EDGES.size(1), 4)
    projected = conv.lin(X)[:, EDGES[0]].flatten(0, 1)
    assert_same_up_to_rounding(seen[0], projected)


def test_the_trace_is_that_of_one_graph_of_all_of_them():
    conv = layer()
    _, trace = conv(X, EDGES, return_trace=True)
    for number, one in enumerate(X):
        _, alone = conv(one, EDGES, return_trace=True)
        start, end = trace.ptr[9 * number], trace.ptr[9 * number + 9]
        assert torch.equal(trace.index[start:end] - 9 * number, alone.index)
        assert torch.equal(trace.winner[9 * number : 9 * number + 9], alone.winner)


@pytest.mark.parametrize("shape", [(9,), (2, 2, 9, 5)])
def test_other_shapes_are_errors(shape):
    with pytest.raises(
        Node2SeqError, match=r"\[num_nodes, channels\] or \[num_graphs, num_nodes, channels\]"
    ):
        layer()(torch.zeros(shape), EDGES)


@pytest.mark.parametrize("name", MODELS)
def test_networks(name):
    torch.manual_seed(0)
    model = MODELS[name](5, 8, 3).eval()
    out = model(X, EDGES)
    assert_same_up_to_rounding(out, torch.stack([model(one, EDGES) for one in X]), roundings=32)
    model.train()
    out = model(X, EDGES)
    assert out.shape == (3, 9, 3)
    gradients(model, out)

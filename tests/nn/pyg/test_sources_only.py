"""Layers without own features, and bipartite graphs whose targets have no features: ``(x, None)``."""

import pytest
import torch
from pyg_cases import EDGES, features, gradients, layer
from rounding import assert_same_up_to_rounding
from torch_geometric.utils import to_torch_csr_tensor

from node2seq import Node2SeqConv
from node2seq.errors import Node2SeqError

BIPARTITE = EDGES[:, EDGES[1] < 6].unique(dim=1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize("options", [{}, {"readout": "mean"}, {"hops": 2}, {"order": "degree"}], ids=str)
def test_without_own_features(options, listened, bias):
    with_root = layer(root="input", bias=bias, **options)
    conv = layer(root="none", bias=bias, **options)
    assert conv.lin_root is None
    conv.load_state_dict({k: v for k, v in with_root.state_dict().items() if k != "lin_root.weight"})
    if listened:
        conv.register_message_forward_hook(lambda *_: None)
    with torch.no_grad():
        with_root.lin_root.weight.zero_()
    out = conv(features(), EDGES)
    assert_same_up_to_rounding(out, with_root(features(), EDGES))
    assert all(bool(grad.any()) for grad in gradients(conv, out).values())
    conv.reset_parameters()


@pytest.mark.parametrize("in_channels", [5, (5, 3), -1, (-1, -1)])
@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize("order", ["degree", "random"])
def test_targets_without_features(order, listened, in_channels):
    conv = layer(in_channels, order=order, root="none", add_self_loops=False)
    if listened:
        conv.register_message_forward_hook(lambda *_: None)
    x = features()
    out, trace = conv((x, None), BIPARTITE, size=(9, 6), return_trace=True)
    assert out.shape == (6, 4)
    # The order asks nothing of the targets, so any features of theirs give the same.
    x_dst = features(6, 3 if isinstance(in_channels, tuple) else 5, seed=1)
    expected, expected_trace = conv((x, x_dst), BIPARTITE, return_trace=True)
    assert torch.equal(out, expected)
    assert torch.equal(trace.index, expected_trace.index)
    found = torch.autograd.grad(out.sum(), [conv.lin.weight, conv.weight])
    assert all(bool(grad.any()) for grad in found)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_the_number_of_targets(flow):
    """From the size; else there are as many targets as sources, as PyG assumes; a matrix has its own size."""
    conv = layer(order="degree", root="none", add_self_loops=False, flow=flow)
    forward = flow == "source_to_target"
    edges = BIPARTITE if forward else BIPARTITE.flip(0)
    x = (features(), None) if forward else (None, features())
    size = (9, 6) if forward else (6, 9)
    assert conv(x, edges).shape == (9, 4)
    assert_same_up_to_rounding(conv(x, edges)[:6], conv(x, edges, size=size))
    if forward:
        adjacency = to_torch_csr_tensor(BIPARTITE.flip(0), size=(6, 9))
        assert torch.equal(conv(x, adjacency), conv(x, edges, size=size))
    with pytest.raises(Node2SeqError, match="target id 5"):
        conv(x, edges, size=(9, 5) if forward else (5, 9))


def test_self_entries_of_targets_without_features():
    conv = layer(order="degree", root="none")
    _, trace = conv((features(), None), BIPARTITE, size=(9, 6), return_trace=True)
    for node in range(6):
        assert node in trace.index[trace.ptr[node] : trace.ptr[node + 1]]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"order": "degree"}, "root='projected' adds each target's own features"),
        ({"order": "degree", "root": "input"}, "root='input' adds each target's own features"),
        ({"root": "none"}, "order='attention' scores its sources against each target's features"),
        ({"order": "random", "root": "none", "hops": 2}, "hops=2 chooses neighbours by their scores"),
    ],
)
def test_what_needs_the_targets_says_so(options, reason):
    conv = Node2SeqConv((5, 3), 4, add_self_loops=False, **options)
    with pytest.raises(Node2SeqError) as error:
        conv((features(), None), BIPARTITE, size=(9, 6))
    assert reason in str(error.value)
    assert "order='degree', 'random' or 'edge'" in str(error.value)
    assert "root='none'" in str(error.value)


def test_sources_without_features_are_an_error():
    conv = layer(order="degree", root="none", add_self_loops=False)
    with pytest.raises(Node2SeqError, match="Pass the source nodes' features"):
        conv((None, features()), BIPARTITE)

"""``return_attention_weights``: which edges the layer convolved over, and their scores."""

import pytest
import torch
from pyg_cases import EDGES, NODES, features, layer
from rounding import assert_same_up_to_rounding
from torch_geometric.utils import add_remaining_self_loops, to_torch_csr_tensor

from node2seq import Node2SeqConv


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_edges_and_scores(flow, loops):
    conv = layer(flow=flow, add_self_loops=loops)
    out, (edges, scores) = conv(features(), EDGES, return_attention_weights=True)
    assert torch.equal(out, conv(features(), EDGES))
    given = EDGES.unique(dim=1)
    given = add_remaining_self_loops(given, num_nodes=NODES)[0] if loops else given
    assert sorted(edges.t().tolist()) == sorted(given.t().tolist())
    projected = conv.lin(features())
    assert_same_up_to_rounding(scores, (projected[edges[0]] * projected[edges[1]]).sum(-1).detach())


def test_each_targets_edges_stand_together_best_first():
    conv = layer()
    _, trace = conv(features(), EDGES, return_trace=True)
    _, (edges, scores) = conv(features(), EDGES, return_attention_weights=True)
    assert torch.equal(edges[0], trace.index)
    assert torch.equal(edges[1], torch.repeat_interleave(torch.arange(NODES), trace.ptr.diff()))
    assert torch.equal(scores, trace.scores)


def test_nonlocal_nodes_are_edges_too():
    conv = layer(hops=2, threshold=0.5)
    out, trace, (edges, scores) = conv(features(), EDGES, return_trace=True, return_attention_weights=True)
    assert out.shape == (NODES, 4)
    assert torch.equal(edges[0], trace.index)
    known = set(map(tuple, EDGES.t().tolist())) | {(node, node) for node in range(NODES)}
    found = list(map(tuple, edges.t().tolist()))
    assert [edge not in known for edge in found] == trace.is_nonlocal.tolist()
    assert torch.equal(scores, trace.scores)
    assert trace.is_nonlocal.any()


def test_a_sparse_adjacency_gives_edges_too():
    conv, merged = layer(), EDGES.unique(dim=1)
    _, (expected, expected_scores) = conv(features(), merged, return_attention_weights=True)
    adjacency = to_torch_csr_tensor(merged.flip(0), size=(NODES, NODES))
    _, (edges, scores) = conv(features(), adjacency, return_attention_weights=True)
    assert torch.equal(edges, expected)
    assert torch.equal(scores, expected_scores)


def test_a_bipartite_graph():
    conv = layer((5, 3), add_self_loops=False)
    edges = EDGES[:, EDGES[1] < 6].unique(dim=1)
    x = (features(), features(6, 3, seed=1))
    _, (found, scores) = conv(x, edges, return_attention_weights=True)
    assert conv.lin_dst is not None
    expected = (conv.lin(x[0])[found[0]] * conv.lin_dst(x[1])[found[1]]).sum(-1)
    assert_same_up_to_rounding(scores, expected.detach())


def test_several_graphs_of_a_batch():
    conv, x = layer(), torch.stack([features(), features(seed=1)])
    _, (edges, scores) = conv(x, EDGES, return_attention_weights=True)
    _, (second, second_scores) = conv(x[1], EDGES, return_attention_weights=True)
    entries = second.size(1)
    assert torch.equal(edges[:, entries:] - NODES, second)
    assert torch.equal(scores[entries:], second_scores)


def test_what_is_compiled_runs_uncompiled():
    """How many edges are left when duplicates are merged is not known to the compiler."""
    conv = Node2SeqConv(5, 4)
    compiled = torch.compile(conv, backend="aot_eager")
    out, (edges, scores) = compiled(features(), EDGES, return_attention_weights=True)
    expected, (expected_edges, expected_scores) = conv(features(), EDGES, return_attention_weights=True)
    assert torch.equal(out, expected)
    assert torch.equal(edges, expected_edges)
    assert torch.equal(scores, expected_scores)

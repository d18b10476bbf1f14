"""LGCL's per-channel selection against a dense, literal one."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import to_dense_adj

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.lgcl import LGCL


def some_graph(nodes: int = 30, edges: int = 120) -> Tensor:
    edge_index = torch.randint(nodes - 2, (2, edges), generator=torch.Generator().manual_seed(5))
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    return torch.cat([edge_index, edge_index.flip(0)], dim=1).unique(dim=1)


def normalized_adjacency(edge_index: Tensor, nodes: int) -> Tensor:
    dense = to_dense_adj(edge_index, max_num_nodes=nodes)[0].double() + torch.eye(nodes)
    scale = dense.sum(dim=1).rsqrt()
    return scale[:, None] * dense * scale


def dense_largest(x: Tensor, adjacency: Tensor, k: int) -> Tensor:
    """As the public code does it: every node times every node, zeros where there is no edge."""
    table = adjacency[:, :, None] * x[None]  # [N, N, C]
    return table.topk(k, dim=1).values


def sequences_with_loops(edge_index: Tensor, nodes: int) -> ops.Sequences:
    source, target = edge_index
    return ops.build_sequences(source, target, nodes, nodes, add_self_loops=True, merge_duplicates=False)


@pytest.mark.parametrize("backend", ops.BACKENDS)
@pytest.mark.parametrize("k", [1, 4, 8])
def test_the_largest_values_are_those_of_a_dense_table(backend: str, k: int) -> None:
    edge_index, nodes = some_graph(), 30
    sequences = sequences_with_loops(edge_index, nodes)
    assert int(sequences.rows.length().max()) > 8 > int(sequences.rows.length().min())
    weight = sequences.gcn_weights(torch.float64)
    results = []
    for literal in (False, True):
        x = torch.randn(nodes, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        x.requires_grad_()
        if literal:
            out = dense_largest(x, normalized_adjacency(edge_index, nodes), k)
        else:
            out = ops.BACKENDS[backend].largest(x, sequences, weight, k)
        (out * torch.arange(out.numel()).view_as(out)).sum().backward()
        results.append((out, x.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("backend", ops.BACKENDS)
def test_the_one_largest_value_is_that_of_the_same_neighbour_as_the_first_of_several(backend: str) -> None:
    sequences = sequences_with_loops(some_graph(), 30)
    weight = torch.ones(sequences.rows.num_entries)
    results = []
    for k in (1, 2):
        x = torch.randint(3, (30, 6), generator=torch.Generator().manual_seed(2)).float().requires_grad_()
        first = ops.BACKENDS[backend].largest(x, sequences, weight, k)[:, 0]
        (first * torch.arange(first.numel()).view_as(first)).sum().backward()
        results.append((first.detach(), x.grad))
    for one, of_several in zip(*results, strict=True):
        assert torch.equal(one, of_several)


def test_long_rows_are_sorted_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index, nodes = some_graph(), 30
    sequences = sequences_with_loops(edge_index, nodes)
    weight = sequences.gcn_weights(torch.float32)
    x = torch.randn(nodes, 6)
    whole = ops.BACKENDS["eager"].largest(x, sequences, weight, 8)
    monkeypatch.setattr(import_module("node2seq.ops.eager.largest"), "_VALUES_PER_BLOCK", 100)
    assert torch.equal(ops.BACKENDS["eager"].largest(x, sequences, weight, 8), whole)


@pytest.mark.parametrize("backend", ops.BACKENDS)
@pytest.mark.parametrize("lost", [torch.inf, torch.nan])
def test_a_lost_value_stays_in_its_rows(backend: str, lost: float) -> None:
    rows = ops.Rows.from_lengths(torch.tensor([5, 6]))  # sorted together, the first one padded
    assert [width for _, _, width in rows.groups] == [6]
    x = torch.ones(11, 2)
    x[5] = lost
    out = ops.BACKENDS[backend].largest(x, ops.Sequences(rows, torch.arange(11), 11), torch.ones(11), 3)
    assert out[0].eq(1).all()


def test_the_layer_is_the_description_word_for_word() -> None:
    edge_index, nodes = some_graph(), 30
    layer = LGCL(6, 8).double().eval()
    assert layer.norm.running_mean is not None
    layer.norm.running_mean.normal_()
    x = torch.randn(nodes, 6, dtype=torch.float64)
    values = dense_largest(x, normalized_adjacency(edge_index, nodes), 8)
    sequence = torch.cat([x[:, None], values], dim=1).transpose(1, 2)
    assert sequence.shape == (nodes, 6, 9)
    hidden = F.conv1d(sequence, layer.conv1.weight, layer.conv1.bias)
    assert hidden.shape == (nodes, 7, 5)
    out = F.conv1d(hidden, layer.conv2.weight).squeeze(-1)
    torch.testing.assert_close(layer(x, edge_index), layer.norm(out), atol=1e-10, rtol=1e-10)


def test_an_odd_k_is_refused() -> None:
    with pytest.raises(Node2SeqError, match="k=7"):
        LGCL(6, 8, 7)

"""Every form in which edges and features are handed over gives the same output."""

from typing import Any

import pytest
import torch
import torch_geometric.nn
from pyg_cases import EDGES, NODES, features, gradients, layer
from rounding import assert_same_layer, assert_same_up_to_rounding
from torch_geometric import EdgeIndex
from torch_geometric.testing import assert_module
from torch_geometric.typing import WITH_TORCH_SPARSE
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.inputs import SparseTensor

OPTIONS = [
    {},
    {"readout": "mean"},
    {"readout": "sum", "kernel_size": 5},
    {"hops": 2, "threshold": 0.5},
    {"hops": 3, "threshold": 1.0, "nonlocal_order": "local-first"},
    {"add_self_loops": False},
    {"backend": "reference"},
]


def _uncoalesced(edge_index, size):
    return torch.sparse_coo_tensor(edge_index, torch.ones(edge_index.size(1)), size)


def _sparse_tensor(edge_index, size):
    if not WITH_TORCH_SPARSE:
        pytest.skip("torch_sparse is not installed: SparseTensor cannot be tried")
    return SparseTensor.from_edge_index(edge_index, sparse_sizes=size)


# Each is given the flipped edges: a sparse adjacency has a row for each target.
SPARSE = {
    "csr": lambda edges, size: to_torch_csr_tensor(edges, size=size),
    "csc": lambda edges, size: to_torch_csc_tensor(edges, size=size),
    "coo": lambda edges, size: to_torch_coo_tensor(edges, size=size),
    "coo, not coalesced": _uncoalesced,
    "SparseTensor": _sparse_tensor,
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_assert_module(options):
    conv = layer(**options)
    assert_module(conv, features(), EDGES, expected_size=(NODES, 4))


@pytest.mark.parametrize("options", [{}, {"readout": "sum"}, {"add_self_loops": False}], ids=str)
def test_assert_module_on_a_bipartite_graph(options):
    conv = layer((5, 3), **options)
    edges = EDGES[:, EDGES[1] < 6]
    x = (features(), features(6, 3, seed=1))
    assert_module(conv, x, edges, expected_size=(6, 4))
    assert_module(conv, x, edges, expected_size=(6, 4), size=(9, 6))


def test_assert_module_of_the_gcn_layer():
    torch.manual_seed(0)
    # PyG's own layer counts duplicates and self loops otherwise in a sparse matrix than in an edge index.
    edges = EDGES[:, EDGES[0] != EDGES[1]].unique(dim=1)
    assert_module(GCNConv(5, 4), features(), edges, expected_size=(NODES, 4))


@pytest.mark.parametrize("way", ["fused", "listened", "weighted", "improved", "no self loops", "no bias"])
def test_the_gcn_layer_gives_what_pygs_gives(way):
    options: dict[str, Any] = {
        "improved": {"improved": True},
        "no self loops": {"add_self_loops": False},
        "no bias": {"bias": False},
    }.get(way, {})
    torch.manual_seed(0)
    theirs = torch_geometric.nn.GCNConv(5, 4, **options)
    ours = GCNConv(5, 4, **options)
    ours.load_state_dict(theirs.state_dict())
    seen = []
    if way == "listened":
        ours.register_message_forward_hook(lambda _module, _inputs, out: seen.append(out))
    weight = (torch.rand(EDGES.size(1)),) if way == "weighted" else ()
    out, expected = ours(features(), EDGES, *weight), theirs(features(), EDGES, *weight)
    assert_same_up_to_rounding(out, expected)
    assert_same_up_to_rounding(gradients(ours, out), gradients(theirs, expected))
    assert len(seen) == (way == "listened")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("listened", [False, True])
def test_integer_types_of_edge_index(dtype, listened):
    conv = layer()
    expected = conv(features(), EDGES, return_trace=True)
    if listened:
        conv.register_message_forward_hook(lambda *_: None)
    found = conv(features(), EDGES.to(dtype), return_trace=True)
    assert_same_layer(found, expected)  # heard, messages and own features are multiplied otherwise
    assert torch.equal(found[0], conv(features(), EDGES))


def test_32_bit_ids_of_a_graph_whose_pairs_need_64_bits():
    nodes = 70_000
    x = features(nodes, 2)
    edges = torch.tensor([[69_999, 3, 69_998, 5], [69_999, 69_999, 69_999, 4]])
    conv = layer(2)
    expected = conv(x, edges)
    assert torch.equal(conv(x, edges.int()), expected)
    conv.register_message_forward_hook(lambda *_: None)
    assert_same_up_to_rounding(conv(x, edges.int()), expected)


@pytest.mark.parametrize("sort_order", [None, "row", "col"])
@pytest.mark.parametrize("listened", [False, True])
def test_edge_index_class(sort_order, listened):
    conv = layer()
    order = {None: slice(None), "row": EDGES[0].argsort(), "col": EDGES[1].argsort()}[sort_order]
    edges = EdgeIndex(EDGES[:, order], sparse_size=(NODES, NODES), sort_order=sort_order)  # pyright: ignore[reportCallIssue]
    expected = conv(features(), EDGES, return_trace=True)
    if listened:
        conv.register_message_forward_hook(lambda *_: None)
    found = conv(features(), edges, return_trace=True)
    assert type(found[0]) is torch.Tensor
    assert_same_layer(found, expected)
    if not listened:  # sorted anew, so the same operations
        assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize("form", SPARSE)
@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize("hops", [1, 2])
def test_sparse_adjacency(form, listened, hops):
    conv = layer(hops=hops)
    expected = conv(features(), EDGES, return_trace=True)
    if listened:
        conv.register_message_forward_hook(lambda *_: None)
    adj_t = SPARSE[form](EDGES.flip(0), (NODES, NODES))
    assert_same_layer(conv(features(), adj_t, return_trace=True), expected)


@pytest.mark.parametrize("form", SPARSE)
def test_sparse_adjacency_of_a_bipartite_graph(form):
    conv = layer((5, 3))
    edges = EDGES[:, EDGES[1] < 6]
    x = (features(), features(6, 3, seed=1))
    adj_t = SPARSE[form](edges.flip(0), (6, 9))
    assert torch.equal(conv(x, adj_t), conv(x, edges))


def test_a_tuple_of_the_same_features_is_the_square_graph():
    conv, x = layer(), features()
    assert torch.equal(conv((x, x), EDGES), conv(x, EDGES))
    # Own features that are no row of the key take a product of their own.
    assert_same_up_to_rounding(conv((x, x.clone()), EDGES), conv(x, EDGES))
    assert torch.equal(conv(x, EDGES, size=(NODES, NODES)), conv(x, EDGES))


@pytest.mark.parametrize("readout", ["max", "mean", "sum"])
def test_a_sampled_block_is_the_first_rows_of_the_square_graph(readout):
    """Targets are the first sources: their outputs are those of the whole graph, self entries included."""
    conv, x = layer(readout=readout), features()
    block = EDGES[:, EDGES[1] < 4]
    expected = conv(x, EDGES)[:4]
    assert_same_up_to_rounding(conv((x, x[:4]), block), expected)
    assert_same_up_to_rounding(conv((x, x[:4]), block, size=(9, 4)), expected)


def test_more_targets_than_sources():
    """Targets past the sources have no self entry; without edges their sequence is empty."""
    conv = layer((5, 3))
    edges = torch.tensor([[0, 1, 1, 2], [5, 5, 0, 1]])
    out, trace = conv((features(3), features(6, 3, seed=1)), edges, return_trace=True)
    assert trace.ptr.tolist() == [0, 2, 4, 5, 5, 5, 7]
    assert [set(trace.index[a:b].tolist()) for a, b in zip(trace.ptr, trace.ptr[1:], strict=False)] == [
        {0, 1},
        {1, 2},
        {2},
        set(),
        set(),
        {0, 1},
    ]
    # An empty sequence reads out zero: what remains is the root and the bias.
    target = features(6, 3, seed=1)
    assert conv.lin_dst is not None
    root = conv.lin_root(conv.lin_dst(target)) + conv.bias
    assert_same_up_to_rounding(out[3:5], root[3:5])


def test_bipartite_scores_pair_the_targets_projection_with_the_sources():
    conv = layer((5, 3), add_self_loops=False)
    x_src, x_dst = features(), features(6, 3, seed=1)
    edges = EDGES[:, EDGES[1] < 6].unique(dim=1)
    _, trace = conv((x_src, x_dst), edges, return_trace=True)
    assert conv.lin_dst is not None
    scores = conv.lin_dst(x_dst) @ conv.lin(x_src).t()
    for i in range(6):
        sources = edges[0][edges[1] == i]
        expected = sources[scores[i, sources].argsort(descending=True)]
        assert trace.index[trace.ptr[i] : trace.ptr[i + 1]].tolist() == expected.tolist()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("listened", [False, True])
def test_flow_target_to_source_reads_the_edges_the_other_way(options, listened):
    conv, flipped = layer(**options), layer(flow="target_to_source", **options)
    expected = conv(features(), EDGES)
    if listened:
        flipped.register_message_forward_hook(lambda *_: None)
    assert_same_up_to_rounding(flipped(features(), EDGES.flip(0)), expected)


@pytest.mark.parametrize("listened", [False, True])
def test_flow_target_to_source_on_a_bipartite_graph(listened):
    """Pairs keep the order of edge_index's rows: under this flow the second side sends."""
    conv, flipped = layer((5, 3)), layer((3, 5), flow="target_to_source")
    flipped.load_state_dict(conv.state_dict())
    edges = EDGES[:, EDGES[1] < 6]
    x_src, x_dst = features(), features(6, 3, seed=1)
    expected = conv((x_src, x_dst), edges, size=(9, 6))
    if listened:
        flipped.register_message_forward_hook(lambda *_: None)
    out = flipped((x_dst, x_src), edges.flip(0), size=(6, 9))
    assert_same_up_to_rounding(out, expected)
    gradients(flipped, out)

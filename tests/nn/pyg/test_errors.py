"""Bad input raises an error that names the value, the reason and the cure: each text as a whole."""

import pytest
import torch
from pyg_cases import EDGES, features, layer

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.node2seq import Node2SeqConv


def _text(call, *args, **kwargs) -> str:
    with pytest.raises(Node2SeqError) as caught:
        call(*args, **kwargs)
    error = caught.value
    assert isinstance(error, ValueError)
    assert str(error) == f"{error.given}: {error.reason}. {error.cure}."
    return str(error)


CONSTRUCTION = [
    (
        {"kernel_size": 0},
        "kernel_size=0: it is the number of taps of the convolution, at least 1. "
        "Pass a whole number from 1 up.",
    ),
    (
        {"kernel_size": 2.5},
        "kernel_size=2.5: it is the number of taps of the convolution, at least 1. "
        "Pass a whole number from 1 up.",
    ),
    (
        {"hops": 0},
        "hops=0: it is how far away neighbours may be, at least 1. Pass a whole number from 1 up.",
    ),
    (
        {"hops": True},
        "hops=True: it is how far away neighbours may be, at least 1. Pass a whole number from 1 up.",
    ),
    (
        {"out_channels": 0},
        "out_channels=0: it is the size of each output sample, at least 1. Pass a whole number from 1 up.",
    ),
    (
        {"readout": "median"},
        "readout='median': there is no such choice. Choose one of 'max', 'mean', 'sum', 'ranks'.",
    ),
    (
        {"root": "own"},
        "root='own': there is no such choice. Choose one of 'projected', 'input', 'none'.",
    ),
    (
        {"nonlocal_order": "last"},
        "nonlocal_order='last': there is no such choice. Choose one of 'joint', 'local-first'.",
    ),
    (
        {"hops": 2, "max_candidates": 0},
        "max_candidates=0: it is how many nodes further away are looked at for each node. "
        "Pass a whole number from 1 up, or None for all of them.",
    ),
    (
        {"max_candidates": 8},
        "max_candidates=8 with hops=1: no nodes further away are looked at. Pass hops=2 or more.",
    ),
    (
        {"order": "age"},
        "order='age': there is no such choice. Choose one of 'attention', 'degree', 'random', 'edge'.",
    ),
    (
        {"threshold": float("nan")},
        "threshold=nan: scores are compared with it. Pass a number, such as 0.0.",
    ),
    ({"threshold": "0"}, "threshold='0': scores are compared with it. Pass a number, such as 0.0."),
    (
        {"aggr": "max"},
        "aggr: the windows of the sorted sequence are combined by readout. Pass readout instead.",
    ),
    (
        {"decomposed_layers": 2},
        "decomposed_layers=2: the order of the neighbours depends on all channels together. Leave it out.",
    ),
]


@pytest.mark.parametrize(("options", "text"), CONSTRUCTION, ids=lambda value: str(value)[:30])
def test_construction(options, text):
    assert _text(Node2SeqConv, **{"in_channels": 5, "out_channels": 4, **options}) == text


@pytest.mark.parametrize("in_channels", [0, -2, 2.0, "5", (5,), (5, 3, 1), (5, 0)])
def test_in_channels(in_channels):
    assert _text(Node2SeqConv, in_channels, 4) == (
        f"in_channels={in_channels!r}: it is the size of each input sample, or one for sources and one for "
        "targets. Pass a whole number from 1 up, -1 to take it from the first input, or a tuple of two such."
    )


@pytest.mark.parametrize("module", [Node2SeqConv, GCNConv])
def test_unknown_backend(module):
    choices = ", ".join(repr(name) for name in ops.BACKEND_NAMES)
    assert _text(module, 5, 4, backend="magic") == (
        f"backend='magic': there is no such choice. Choose one of {choices}."
    )


EAGER_CANNOT = (
    "backend='eager': its grouped sorts depend on values and cannot be exported. "
    "Use backend='auto' or 'reference' here."
)


def test_an_explicit_backend_that_cannot_run_is_an_error_while_exporting():
    text = _text(torch.export.export, layer(backend="eager"), (features(), EDGES))
    assert text == EAGER_CANNOT


def test_an_explicit_backend_that_cannot_run_is_an_error_of_a_compiled_layer():
    pytest.importorskip("triton")
    compiled = torch.compile(layer(backend="triton"), fullgraph=True, backend="eager")
    assert _text(compiled, features(), EDGES) == (
        "backend='triton' with torch.float32 features on cpu: its kernels work in float32 on an NVIDIA GPU. "
        "Use backend='auto', which takes another backend where it has to."
    )


def test_node_ids_are_checked_in_a_compiled_layer():
    compiled = torch.compile(layer(), fullgraph=True, backend="aot_eager")
    compiled(features(), EDGES.clone())
    assert _text(compiled, features(), EDGES + 3).startswith("edge_index holds the source id 9: there are")


LAYERS = [layer, lambda: GCNConv(5, 4)]
EDGE_CASES = [
    (
        EDGES + torch.tensor([[3], [0]]),
        "edge_index holds the source id 9: there are only 9 source nodes, numbered from 0. Remove that edge, "
        "or pass a feature row for every node (bipartite graphs: a tuple of two).",
    ),
    (
        EDGES + torch.tensor([[0], [4]]),
        "edge_index holds the target id 9: there are only 9 target nodes, numbered from 0. Remove that edge, "
        "or pass a feature row for every node (bipartite graphs: a tuple of two).",
    ),
    (
        EDGES - torch.tensor([[1], [0]]),
        "edge_index holds the source id -1: node ids cannot be negative. "
        "Number the 9 source nodes from 0 to 8.",
    ),
    (
        EDGES - torch.tensor([[0], [2]]),
        "edge_index holds the target id -2: node ids cannot be negative. "
        "Number the 9 target nodes from 0 to 8.",
    ),
    (
        EDGES.float(),
        "edge_index has dtype torch.float32: node ids are whole numbers. Pass edge_index.long().",
    ),
    (EDGES.bool(), "edge_index has dtype torch.bool: node ids are whole numbers. Pass edge_index.long()."),
    (
        EDGES.t(),
        "edge_index has shape [15, 2]: it holds a row of source ids and a row of target ids. "
        "Pass shape [2, num_edges]; a list of pairs needs .t().contiguous().",
    ),
    (
        EDGES[0],
        "edge_index has shape [15]: it holds a row of source ids and a row of target ids. "
        "Pass shape [2, num_edges]; a list of pairs needs .t().contiguous().",
    ),
]


@pytest.mark.parametrize(("edges", "text"), EDGE_CASES, ids=lambda value: str(value)[:42])
@pytest.mark.parametrize("make", LAYERS, ids=["Node2SeqConv", "GCNConv"])
def test_edges(make, edges, text):
    conv = make()
    assert _text(conv, features(), edges) == text
    assert _text(conv, features(), edges) == text  # a plan that could not be built is not kept


def test_edges_of_a_bipartite_graph_are_checked_against_their_own_side():
    conv = layer((5, 3))
    x = (features(6), features(9, 3))
    conv(x, torch.tensor([[5], [8]]))
    assert _text(conv, x, torch.tensor([[6], [0]])) == (
        "edge_index holds the source id 6: there are only 6 source nodes, numbered from 0. Remove that edge, "
        "or pass a feature row for every node (bipartite graphs: a tuple of two)."
    )


def test_edges_that_are_no_tensor():
    assert _text(layer(), features(), EDGES.tolist()) == (
        "edge_index is a list: edges are a tensor of node ids or a sparse matrix. "
        "Pass an integer tensor of shape [2, num_edges], such as torch.tensor(edges).t()."
    )


def test_a_sparse_adjacency_of_the_wrong_shape():
    adj = torch.sparse_coo_tensor(EDGES, torch.ones(15), (9, 10)).coalesce()
    assert _text(layer(), features(), adj) == (
        "a sparse adjacency of shape [9, 10]: there are 9 target and 9 source nodes. "
        "Pass adj_t, which has a row for each target and a column for each source."
    )


def test_a_sparse_adjacency_against_the_flow():
    adj = torch.sparse_coo_tensor(EDGES, torch.ones(15), (9, 9)).coalesce()
    assert _text(layer(flow="target_to_source"), features(), adj) == (
        "flow='target_to_source' with a sparse adjacency: a sparse adjacency has a row for each target "
        "already. Pass the transposed matrix to a layer with flow='source_to_target'."
    )


def test_several_hops_need_a_square_graph():
    conv = layer((5, 3), hops=2)
    assert _text(conv, (features(9), features(6, 3)), EDGES) == (
        "hops=2 on a graph of 9 source and 6 target nodes: paths of several edges need the same nodes on "
        "both sides. Use hops=1 on bipartite graphs and sampled blocks."
    )


NEEDED = (
    "root='projected' adds each target's own features. Pass the target nodes' features too, or make a layer "
    "of one hop with order='degree', 'random' or 'edge' and root='none'."
)
MATRIX = (
    "node features are a matrix, or one for each of several graphs with the same edges. "
    "Pass shape [num_nodes, channels] or [num_graphs, num_nodes, channels]."
)
FEATURES = [
    (
        features(channels=3),
        "x has 3 channels: the layer projects it from 5. Pass 5 channels, or make the layer with another "
        "in_channels: a tuple of two where sources and targets differ.",
    ),
    (
        (features(), features(channels=3)),
        "x_target has 3 channels: the layer projects it from 5. Pass 5 channels, or make the layer with "
        "another in_channels: a tuple of two where sources and targets differ.",
    ),
    ((features(), None), f"x=(Tensor, None): {NEEDED}"),
    (
        (None, features()),
        "x=(None, Tensor): the sources' features are what is convolved. Pass the source nodes' features.",
    ),
    (
        (features(),),
        "x is a tuple of 1: a graph has one kind of nodes, or sources and targets. "
        "Pass a tensor, or a tuple of two.",
    ),
    (features().long(), "x has dtype torch.int64: features are multiplied with weights. Pass x.float()."),
    (
        features()[None, None],
        f"x is a tensor of shape [1, 1, 9, 5]: {MATRIX}",
    ),
    (
        features()[:, 0],
        f"x is a tensor of shape [9]: {MATRIX}",
    ),
    (features().numpy(), f"x is ndarray: {MATRIX}"),
]


@pytest.mark.parametrize(("x", "text"), FEATURES, ids=[text[:28] for _, text in FEATURES])
def test_features(x, text):
    assert _text(layer(), x, EDGES) == text


def test_features_of_a_lazy_layer_that_both_sides_share():
    conv = Node2SeqConv(-1, 4)
    assert _text(conv, (features(), features(channels=3)), EDGES).startswith("x_target has 3 channels: ")
    conv(features(), EDGES)  # nothing was initialised by the failed call
    assert _text(conv, features(channels=3), EDGES).startswith(
        "x has 3 channels: the layer projects it from 5"
    )


def test_the_missing_side_is_named_by_the_flow():
    conv = layer(flow="target_to_source")
    assert _text(conv, (None, features()), EDGES) == (f"x=(None, Tensor): {NEEDED}")


def test_size_that_does_not_match_the_features():
    assert _text(layer(), features(), EDGES, size=(9, 10)) == (
        "size=(9, 10): there are features for 9 target nodes, not 10. "
        "Pass one feature row per node, or leave size out."
    )


@pytest.mark.parametrize("value", [torch.rand(300_000), torch.full((2,), 9.0)])
def test_weights_of_other_edges(value):
    assert _text(layer(), features(), EDGES, value) == (
        f"edge_weight has shape {list(value.shape)}: there are {EDGES.size(1)} edges. "
        "Pass shape [num_edges], in the order of edge_index."
    )


def test_the_size_after_the_edges():
    assert _text(layer(), features(), EDGES, (9, 9)) == (
        "edge_weight is a tuple: it is a tensor with a row for each edge. "
        "Pass a tensor; the number of nodes goes by name, as size=(num_sources, num_targets)."
    )
    layer()(features(), EDGES, None)  # no weights


@pytest.mark.parametrize(
    ("size", "given"),
    [
        (torch.full((2,), 9.0), "size of type Tensor"),
        (torch.rand(300_000), "size of type Tensor"),
        (9, "size of type int"),
        ((9, 9, 9), "size of length 3"),
        ((), "size of length 0"),
        ((9.0, 9), "size with a float"),
        ((9, torch.tensor(9)), "size with a Tensor"),
        ((True, 9), "size with a bool"),
    ],
)
def test_size_that_is_no_pair_of_numbers(size, given):
    assert _text(layer(), features(), EDGES, size=size) == (
        f"{given}: it is the number of nodes on each side. Pass two whole numbers; each may be None."
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_features_that_are_not_finite_with_validate(value):
    x = features()
    x[3, 1] = value
    assert _text(layer(validate=True), x, EDGES) == (
        f"x[3, 1] is {value}: features have to be finite, or every score that they enter is lost. "
        "Replace missing values before training, for instance with torch.nan_to_num."
    )
    layer()(x, EDGES)  # not looked for unless asked to: it would wait for a GPU
    layer(validate=True)(features(), EDGES)


def test_validate_names_the_side_of_a_bipartite_graph():
    x_dst = features(channels=3)
    x_dst[2, 0] = torch.nan
    text = _text(layer((5, 3), validate=True), (features(), x_dst), EDGES)
    assert text.startswith("x_target[2, 0] is nan: ")

"""What PyTorch Geometric's own tests ask of GATConv, GCNConv and SAGEConv, asked of Node2SeqConv.

What differs, and why; each has its test below under the same name.

==========================  ===========================================================================
duplicate edges             An edge that is listed twice counts once, since a node stands in a sequence
                            once. PyG adds it twice. With weights or attributes each is an entry here too.
attention weights           Scores, not a softmax, and the edges in the order of the sequences: the order
                            is what the layer makes of them. Always ``(edge_index, scores)``, also for a
                            sparse adjacency; no heads.
targets without features    ``(x, None)`` needs ``root="none"``, a fixed order and one hop. Otherwise the
                            targets' features are the query, or are added.
aggregation                 ``aggr`` and ``decomposed_layers`` are errors: the windows of a sequence are
                            combined by ``readout``, and the order depends on all channels.
several hops                Only on graphs with the same nodes on both sides.
ids out of range            An error that names the id, not PyTorch's index error.
TorchScript                 ``torch.jit.script`` and ``torch.jit.trace`` are errors that name
                            ``torch.export``: PyTorch has deprecated the first, and the second would
                            record one graph. ``torch.compile``, ``torch.export`` and ONNX work.
ties                        Equal scores are ordered by node id at last, so renumbering nodes may swap
                            equals.
==========================  ===========================================================================
"""

import copy
import itertools
import pickle
from typing import Any

import pytest
import torch
from packaged import packaged
from rounding import assert_same_up_to_rounding
from torch_geometric import EdgeIndex
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GATConv, MessagePassing, to_hetero
from torch_geometric.testing import assert_module
from torch_geometric.typing import (
    WITH_TORCH_SPARSE,
    SparseTensor,  # pyright: ignore[reportAttributeAccessIssue]
)
from torch_geometric.utils import (
    add_remaining_self_loops,
    to_torch_coo_tensor,
    to_torch_csc_tensor,
    to_torch_csr_tensor,
    trim_to_layer,
)

from node2seq import Node2SeqConv
from node2seq.errors import Node2SeqError

# Four papers in a ring with a chord, as a user would type them in.
RING = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 0]])
# Four sources, two targets.
FANS = torch.tensor([[0, 1, 2, 3, 1], [0, 0, 1, 1, 1]])
EVERY_READOUT = pytest.mark.parametrize("readout", ["max", "mean", "sum"])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(12)


def ring_features(channels: int = 8) -> torch.Tensor:
    return torch.randn(4, channels)


def forms(edges: torch.Tensor, size: tuple[int, int]) -> dict[str, Any]:
    """One graph in every form that PyG knows: ``size`` counts sources, then targets."""
    transposed, shape = edges.flip(0), (size[1], size[0])
    found: dict[str, Any] = {
        "int32": edges.int(),
        "EdgeIndex": EdgeIndex(edges, sparse_size=size),  # pyright: ignore[reportCallIssue]
        "COO": to_torch_coo_tensor(transposed, size=shape),
        "CSR": to_torch_csr_tensor(transposed, size=shape),
        "CSC": to_torch_csc_tensor(transposed, size=shape),
    }
    if WITH_TORCH_SPARSE:
        found["SparseTensor"] = SparseTensor.from_edge_index(transposed, sparse_sizes=shape)
    return found


@EVERY_READOUT
@pytest.mark.parametrize("hops", [1, 2])
def test_every_form_of_the_edges_gives_the_same(readout, hops):
    conv, x = Node2SeqConv(8, 32, readout=readout, hops=hops), ring_features()
    assert str(conv) == "Node2SeqConv(8, 32, kernel_size=3)"
    out = conv(x, RING)
    assert out.shape == (4, 32)
    assert torch.equal(conv(x, RING, size=(4, 4)), out)
    for name, edges in forms(RING, (4, 4)).items():
        assert torch.equal(conv(x, edges), out), name


@EVERY_READOUT
def test_a_bipartite_graph(readout):
    conv = Node2SeqConv((8, 16), 32, readout=readout)
    assert str(conv) == "Node2SeqConv((8, 16), 32, kernel_size=3)"
    x = (torch.randn(4, 8), torch.randn(2, 16))
    out = conv(x, FANS)
    assert out.shape == (2, 32)
    assert torch.equal(conv(x, FANS, size=(4, 2)), out)
    for name, edges in forms(FANS, (4, 2)).items():
        assert torch.equal(conv(x, edges), out), name
    assert_module(conv, x, FANS, expected_size=(2, 32))


def test_targets_without_features():
    """Differs: see the head of this file."""
    conv = Node2SeqConv(8, 32, order="degree", root="none", add_self_loops=False)
    x = torch.randn(4, 8)
    out = conv((x, None), FANS, size=(4, 2))
    assert out.shape == (2, 32)
    for name, edges in forms(FANS, (4, 2)).items():
        size = None if name in ("COO", "CSR", "CSC", "SparseTensor") else (4, 2)
        assert torch.equal(conv((x, None), edges, size=size), out), name
    with pytest.raises(Node2SeqError, match="Pass the target nodes' features too"):
        Node2SeqConv(8, 32)((x, None), FANS, size=(4, 2))


@pytest.mark.parametrize(
    ("in_channels", "targets"), [(-1, None), ((-1, -1), 16), ((8, -1), 16), ((-1, 16), 16)]
)
def test_lazy_sizes(in_channels, targets):
    lazy = Node2SeqConv(in_channels, 32)
    x = torch.randn(4, 8)
    given = x if targets is None else (x, torch.randn(2, targets))
    edges = RING if targets is None else FANS
    out = lazy(given, edges)
    sized = Node2SeqConv(8 if targets is None else (8, targets), 32)
    sized.load_state_dict(lazy.state_dict())
    assert torch.equal(sized(given, edges), out)
    assert str(lazy) == f"Node2SeqConv({in_channels}, 32, kernel_size=3)"


def test_flow():
    x = ring_features()
    forward, backward = Node2SeqConv(8, 32), Node2SeqConv(8, 32, flow="target_to_source")
    backward.load_state_dict(forward.state_dict())
    assert torch.equal(backward(x, RING.flip(0)), forward(x, RING))
    with pytest.raises(Node2SeqError, match="flow='target_to_source' with a sparse adjacency"):
        backward(x, to_torch_csr_tensor(RING, size=(4, 4)))


@pytest.mark.parametrize("backend", ["eager", "reference"])
def test_static_graphs(backend):
    conv, x = Node2SeqConv(8, 32, backend=backend), torch.randn(3, 4, 8)
    assert_same_up_to_rounding(conv(x, RING), torch.stack([conv(one, RING) for one in x]))


@pytest.mark.parametrize("loops", [True, False])
def test_attention_weights(loops):
    """Differs: see the head of this file. Beside GATConv: the same edges, in another order."""
    x = ring_features()
    conv, gat = Node2SeqConv(8, 32, add_self_loops=loops), GATConv(8, 32, add_self_loops=loops)
    plain = conv(x, RING)
    out, (edges, scores) = conv(x, RING, return_attention_weights=True)
    _, (gats, alpha) = gat(x, RING, return_attention_weights=True)
    assert torch.equal(out, plain)
    assert edges.shape == gats.shape
    assert sorted(edges.t().tolist()) == sorted(gats.t().tolist())
    assert scores.shape == alpha[:, 0].shape
    for target in range(4):
        assert bool(scores[edges[1] == target].diff().le(0).all())
    _, (again, _) = conv(x, to_torch_csr_tensor(RING.flip(0), size=(4, 4)), return_attention_weights=True)
    assert torch.equal(again, edges)


def test_edge_weights_and_attributes():
    x, weight, attr = ring_features(), torch.rand(6), torch.randn(6, 5)
    plain = Node2SeqConv(8, 32)
    assert torch.equal(plain(x, RING, None), plain(x, RING))
    assert not torch.allclose(plain(x, RING, weight), plain(x, RING))
    with_dim = Node2SeqConv(8, 32, edge_dim=5)
    out = with_dim(x, RING, None, attr)
    order = torch.randperm(6)
    assert_same_up_to_rounding(with_dim(x, RING[:, order], None, attr[order]), out)
    with pytest.raises(Node2SeqError, match="edge_dim=5"):
        plain(x, RING, None, attr)
    weighted = to_torch_csr_tensor(RING.flip(0), weight, size=(4, 4))
    assert_same_up_to_rounding(plain(x, weighted), plain(x, RING, weight))


def test_duplicate_edges():
    """Differs: see the head of this file."""
    conv, x = Node2SeqConv(8, 32, readout="sum"), ring_features()
    twice = torch.cat([RING, RING], dim=1)
    assert torch.equal(conv(x, twice), conv(x, RING))
    ones = torch.ones(12)
    assert not torch.allclose(conv(x, twice, ones), conv(x, RING, ones[:6]))


def test_self_loops_count_once():
    conv, bare = Node2SeqConv(8, 32), Node2SeqConv(8, 32, add_self_loops=False)
    bare.load_state_dict(conv.state_dict())
    x, looped = ring_features(), add_remaining_self_loops(RING, num_nodes=4)[0]
    assert torch.equal(conv(x, looped), conv(x, RING))
    assert torch.equal(bare(x, looped), conv(x, RING))


@pytest.mark.parametrize("nodes", [0, 1, 3])
@EVERY_READOUT
def test_empty_graphs_and_single_nodes(nodes, readout):
    conv = Node2SeqConv(8, 32, readout=readout)
    out = conv(torch.randn(nodes, 8), torch.empty(2, 0, dtype=torch.int64))
    assert out.shape == (nodes, 32)
    assert bool(out.isfinite().all())
    out.sum().backward()


def test_equivariance_under_renumbering_and_edge_order():
    """But for ties: see the head of this file."""
    conv, x = Node2SeqConv(8, 32, hops=2, backend="eager").double(), ring_features().double()
    out = conv(x, RING)
    for permutation in itertools.permutations(range(4)):
        order = torch.tensor(permutation)
        assert_same_up_to_rounding(conv(x[order], order.argsort()[RING]), out[order])
    assert torch.equal(conv(x, RING[:, torch.randperm(6)]), out)


def test_sizes_that_do_not_fit_are_errors():
    conv, x = Node2SeqConv(8, 32), ring_features()
    for size in ((3, 4), (4, 3), (4,), "4", (4, 4, 4), 4.0):
        with pytest.raises(Node2SeqError, match="size"):
            conv(x, RING, size=size)
    with pytest.raises(Node2SeqError, match="size="):  # in the place of the weights
        conv(x, RING, (4, 4))
    with pytest.raises(Node2SeqError, match="id 4"):
        conv(x, torch.tensor([[0], [4]]))
    with pytest.raises(Node2SeqError, match="channels"):
        conv(torch.randn(4, 7), RING)


@pytest.mark.parametrize("option", [{"aggr": "max"}, {"decomposed_layers": 2}], ids=str)
def test_options_of_message_passing_that_make_no_sense(option):
    with pytest.raises(Node2SeqError, match=next(iter(option))):
        Node2SeqConv(8, 32, **option)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_precision(dtype):
    conv, x = Node2SeqConv(8, 32).to(dtype), ring_features().to(dtype)
    out = conv(x, RING)
    assert out.dtype == dtype
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in conv.parameters())
    if dtype != torch.float64:
        conv = conv.float()
        with torch.autocast("cpu", dtype=dtype):
            out = conv(x.float(), RING)
        assert_same_up_to_rounding(out, conv(x.float(), RING))  # sorted and convolved in float32


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_features(layout):
    conv, x = Node2SeqConv(8, 32), ring_features().relu()
    sparse = x.to_sparse() if layout == "coo" else x.to_sparse_csr()
    assert_same_up_to_rounding(conv(sparse, RING), conv(x, RING))


def test_parameters_are_reset_saved_and_loaded(tmp_path):
    conv, x = Node2SeqConv(8, 32), ring_features()
    assert isinstance(conv, MessagePassing)
    out = conv(x, RING)
    torch.save(conv.state_dict(), tmp_path / "state.pt")
    conv.reset_parameters()
    assert not torch.allclose(conv(x, RING), out)
    conv.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(conv(x, RING), out)


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda conv: pickle.loads(pickle.dumps(conv)), packaged],
    ids=["copy", "deepcopy", "pickle", "package"],
)
def test_copies(duplicate):
    conv, x = Node2SeqConv(8, 32), ring_features()
    conv(x, RING)
    twin = duplicate(conv)
    assert torch.equal(twin(x, RING), conv(x, RING))
    assert str(twin) == str(conv)


def test_script_and_trace_name_what_to_use_instead():
    """Differs: see the head of this file."""
    conv, x = Node2SeqConv(8, 32), ring_features()
    with pytest.raises(Node2SeqError, match=r"torch\.jit\.script.*torch\.export"):
        torch.jit.script(torch.nn.Sequential(conv))
    with pytest.raises(Node2SeqError, match=r"torch\.jit\.trace.*torch\.export"):
        torch.jit.trace(conv, (x, RING))


@pytest.mark.slow
def test_compile_and_export():
    torch._dynamo.reset()
    conv, x = Node2SeqConv(8, 32), ring_features()
    out = conv(x, RING)
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    assert_same_up_to_rounding(compiled(x, RING), out)
    program = torch.export.export(conv, (x, RING))
    assert_same_up_to_rounding(program.module()(x, RING), out)
    torch._dynamo.reset()


def test_several_node_types():
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = Node2SeqConv((-1, -1), 32, add_self_loops=False)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index)

    kinds = (["source", "target"], [("source", "to", "target"), ("target", "to", "source")])
    model = to_hetero(Net(), kinds)
    edges = {kinds[1][0]: FANS, kinds[1][1]: FANS.flip(0)}
    out = model({"source": torch.randn(4, 8), "target": torch.randn(2, 16)}, edges)
    assert {name: value.shape for name, value in out.items()} == {"source": (4, 32), "target": (2, 32)}


def test_trimmed_layers_leave_the_seeds_as_they_are():
    """Nodes 0 and 1 are the seeds; 2 and 3 were sampled in the first hop, 4 in the second."""
    first, second = Node2SeqConv(8, 16), Node2SeqConv(16, 32)
    x = torch.randn(5, 8)
    edges = torch.tensor([[2, 3, 1, 4, 4], [0, 1, 0, 2, 3]])
    expected = second(first(x, edges).relu(), edges)[:2]
    hidden, left, _ = trim_to_layer(1, [2, 2, 1], [3, 2], first(x, edges).relu(), edges)
    assert left.shape == (2, 3)
    assert_same_up_to_rounding(second(hidden, left)[:2], expected)


def test_explanations_have_a_value_for_each_edge():
    conv, x = Node2SeqConv(8, 2), ring_features()
    explainer = Explainer(
        conv,
        algorithm=GNNExplainer(epochs=3),
        explanation_type="model",
        edge_mask_type="object",
        node_mask_type="attributes",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},  # pyright: ignore[reportArgumentType]
    )
    explanation: Any = explainer(x, RING)
    assert explanation.edge_mask.shape == (6,)
    assert explanation.node_mask.shape == (4, 8)
    assert bool(explanation.edge_mask.any())

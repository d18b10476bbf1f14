"""What PyTorch Geometric's own tests ask of BasicGNN and its networks, asked of ours.

What differs, and why; each has its test below under the same name.

==========================  ===========================================================================
depth, act, norm, jk        Each network is the one of its paper: these are no options, or have the
                            paper's own names (``activation``, ``skip``, ``position``). A network of any
                            depth is a subclass of BasicGNN with Node2SeqConv inside, which has them all.
trimming, layer-wise        ``num_sampled_nodes_per_hop`` and ``inference`` come with that subclass, too.
inference
out_channels                Not optional: these networks classify. ``embed`` gives the hidden features.
representation              PyTorch's own, with every layer and dropout in it.
dropout                     Drawn from counters of its own. ``torch.manual_seed`` sets it when the network
                            is made or reset, not before each pass.
batch normalisation         GIN and LGCN have it, and PyTorch refuses to train it on a single node.
caching                     There is no ``cached``: what is worked out for an edge index is kept with it.
TorchScript                 As for the layer: an error that names ``torch.export``.
packaging                   As a module that is outside of the package: ``extern("**")``.
==========================  ===========================================================================
"""

import copy
import pickle
from typing import Any

import pytest
import torch
from packaged import packaged
from rounding import assert_same_up_to_rounding
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch_geometric import EdgeIndex
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import Linear, MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from node2seq import MODELS, Node2SeqConv, ops
from node2seq.errors import Node2SeqError

EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 4], [1, 2, 3, 4, 5, 0, 3, 5, 1]])
EVERY_NETWORK = pytest.mark.parametrize("name", MODELS)
WITH_BATCH_NORM = ("lgcn", "gin")
ACTS: dict[str, Any] = {"none": None, "name": "relu", "function": torch.relu, "module": nn.PReLU()}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(12)


def make(name: str, in_channels: int = 8, **options: Any) -> nn.Module:
    return MODELS[name](in_channels, 16, 7, **options)


def node_features() -> torch.Tensor:
    return torch.randn(6, 8)


class AnyDepth(BasicGNN):
    """A network of any depth, as PyG's users would write it."""

    supports_edge_weight = True  # pyright: ignore[reportGeneralTypeIssues]
    supports_edge_attr = False  # pyright: ignore[reportGeneralTypeIssues]

    def init_conv(self, in_channels: Any, out_channels: int, **kwargs: Any) -> MessagePassing:
        return Node2SeqConv(in_channels, out_channels, **kwargs)


@EVERY_NETWORK
def test_every_form_of_the_edges_gives_the_same(name):
    model, x = make(name).eval(), node_features()
    out = model(x, EDGES)
    assert out.shape == (6, 7)
    transposed = EDGES.flip(0)
    forms: list[Any] = [
        EDGES.int(),
        EdgeIndex(EDGES, sparse_size=(6, 6)),  # pyright: ignore[reportCallIssue]
        to_torch_coo_tensor(transposed, size=(6, 6)),
        to_torch_csr_tensor(transposed, size=(6, 6)),
        to_torch_csc_tensor(transposed, size=(6, 6)),
    ]
    taken = 0
    for edges in forms:
        if name == "cheby" and not isinstance(edges, EdgeIndex) and edges.layout != torch.strided:
            continue  # PyG's layer has no sparse adjacency
        assert_same_up_to_rounding(model(x, edges), out, roundings=32)
        taken += 1
    assert taken >= 2


@EVERY_NETWORK
def test_edge_order_and_renumbering(name):
    model, x = make(name).double().eval(), node_features().double()
    out, order = model(x, EDGES), torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(model(x[order], order.argsort()[EDGES]), out[order], rtol=0, atol=1e-10)
    torch.testing.assert_close(model(x, EDGES[:, torch.randperm(9)]), out, rtol=0, atol=1e-10)


@EVERY_NETWORK
def test_lazy_networks_are_copied_before_and_after_their_first_pass(name):
    lazy, x = make(name, in_channels=-1).eval(), node_features()
    assert any(isinstance(p, UninitializedParameter) for p in lazy.parameters())
    twin = copy.deepcopy(lazy)
    lazy(x, EDGES)
    twin.load_state_dict(lazy.state_dict())
    assert torch.equal(twin(x, EDGES), lazy(x, EDGES))
    assert torch.equal(copy.deepcopy(lazy)(x, EDGES), lazy(x, EDGES))


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), packaged],
    ids=["copy", "deepcopy", "pickle", "package"],
)
@EVERY_NETWORK
def test_copies(name, duplicate):
    model, x = make(name).eval(), node_features()
    model(x, EDGES)
    assert torch.equal(duplicate(model)(x, EDGES), model(x, EDGES))


@EVERY_NETWORK
def test_state_and_reset(name, tmp_path):
    model, x = make(name), node_features()
    model(x, EDGES)
    state = copy.deepcopy(model.state_dict())
    torch.save(state, tmp_path / "state.pt")
    expected = model.eval()(x, EDGES)
    model.reset_parameters()  # pyright: ignore[reportCallIssue]
    assert not torch.allclose(model(x, EDGES), expected)
    model.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(model(x, EDGES), expected)


@EVERY_NETWORK
def test_dropout(name):
    """Differs: see the head of this file."""
    model, x = make(name), node_features()
    state = copy.deepcopy(model.state_dict())
    first = model(x, EDGES)
    model.load_state_dict(state)
    torch.manual_seed(99)
    assert torch.equal(model(x, EDGES), first)  # the same counters drop the same elements
    drops = any(module.drops for module in model.modules() if hasattr(module, "drops"))
    assert torch.equal(model(x, EDGES), first) != drops or name in WITH_BATCH_NORM
    assert torch.equal(model.eval()(x, EDGES), model(x, EDGES))


@EVERY_NETWORK
def test_hooks_and_replaced_modules(name):
    """Every linear layer is called as a module where someone listens."""
    model, x = make(name, **({"K": 2} if name == "cheby" else {})).eval(), node_features()
    out, seen = model(x, EDGES), set()
    # Of more than two projections, PyG's ChebConv calls the third and later ones past their hooks.
    linears = [module for module in model.modules() if isinstance(module, (nn.Linear, Linear))]
    handles = [one.register_forward_hook(lambda module, *_: seen.add(id(module))) for one in linears]
    torch.testing.assert_close(model(x, EDGES), out)
    assert seen == {id(module) for module in linears}
    for handle in handles:
        handle.remove()


@EVERY_NETWORK
def test_single_nodes_and_empty_graphs(name):
    """Batch normalisation differs: see the head of this file."""
    no_edges = torch.empty(2, 0, dtype=torch.int64)
    model = make(name).eval()
    for nodes in (0, 1):
        assert model(torch.randn(nodes, 8), no_edges).shape == (nodes, 7)
    model.train()
    if name in WITH_BATCH_NORM:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            model(torch.randn(1, 8), no_edges)
    else:
        assert model(torch.randn(1, 8), no_edges).shape == (1, 7)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("mode", ["eval", "train"])
@EVERY_NETWORK
def test_sparse_features(name, mode, layout):
    model, x = make(name).train(mode == "train"), node_features().relu()
    state = copy.deepcopy(model.state_dict())
    expected = model(x, EDGES)
    model.load_state_dict(state)
    out = model(x.to_sparse() if layout == "coo" else x.to_sparse_csr(), EDGES)
    assert_same_up_to_rounding(out, expected, roundings=32)


def test_caching():
    """Differs: see the head of this file."""
    model, x, edges = make("gcn"), node_features(), EDGES.clone()
    model(x, edges)
    built = ops.PLANS.built
    model(x, edges)
    assert ops.PLANS.built == built
    with pytest.raises(Node2SeqError, match="cached"):
        make("gcn", cached=True)


@pytest.mark.parametrize("option", ["num_layers", "act", "norm", "jk"])
def test_what_only_networks_of_any_depth_have(option):
    """Differs: see the head of this file."""
    with pytest.raises(Node2SeqError, match=option):
        make("node2seq", 8, **{option: 2 if option == "num_layers" else "relu"})


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("norm", [None, "batch_norm", "layer_norm"])
@pytest.mark.parametrize("jk", [None, "last", "cat", "max"])
@pytest.mark.parametrize("out_channels", [None, 7])
def test_a_network_of_any_depth(act, norm, jk, out_channels):
    model = AnyDepth(
        8, 16, num_layers=3, out_channels=out_channels, dropout=0.5, act=ACTS[act], norm=norm, jk=jk
    )
    assert str(model) == f"AnyDepth(8, {out_channels or 16}, num_layers=3)"
    out = model(node_features(), EDGES)
    assert out.shape == (6, out_channels or 16)
    out.sum().backward()


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("act_first", [False, True])
def test_its_depth_and_its_options_reach_the_layers(num_layers, act_first):
    model = AnyDepth(8, 16, num_layers, 7, act_first=act_first, norm="batch_norm", hops=2, readout="mean")
    assert len(model.convs) == num_layers
    assert all(isinstance(conv, Node2SeqConv) and conv.hops == 2 for conv in model.convs)
    assert model(node_features(), EDGES).shape == (6, 7)


def test_it_passes_weights_on():
    model, x, weight = AnyDepth(8, 16, 2, 7).eval(), node_features(), torch.rand(9)
    out = model(x, EDGES, edge_weight=weight)
    hidden = model.convs[0](x, EDGES, weight).relu()
    assert_same_up_to_rounding(out, model.convs[1](hidden, EDGES, weight))
    assert not torch.allclose(model(x, EDGES), out)


def test_it_trims_what_was_sampled_for_later_hops():
    """Node 0 is the seed; 1 and 2 were sampled for it, 3 to 5 for these."""
    model, x = AnyDepth(8, 16, 2, 7).eval(), node_features()
    edges = torch.tensor([[1, 2, 3, 4, 5], [0, 0, 1, 1, 2]])
    trimmed = model(x, edges, num_sampled_nodes_per_hop=[2, 3], num_sampled_edges_per_hop=[2, 3])
    assert trimmed.size(0) < 6
    assert_same_up_to_rounding(trimmed[0], model(x, edges)[0])


@pytest.mark.slow
@EVERY_NETWORK
def test_compile_and_export(name):
    torch._dynamo.reset()
    model, x = make(name).eval(), node_features()
    out = model(x, EDGES)
    if name in ("node2seq", "mlp"):  # tests/nn/pyg/test_compile.py compiles the others while they train
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert_same_up_to_rounding(compiled(x, EDGES), out, roundings=32)
    program = torch.export.export(model, (x, EDGES))
    assert_same_up_to_rounding(program.module()(x, EDGES), out, roundings=32)


@EVERY_NETWORK
def test_script(name):
    """Differs: see the head of this file."""
    with pytest.raises(Node2SeqError, match=r"torch\.jit\.script of .*torch\.export"):
        torch.jit.script(make(name))


@pytest.mark.parametrize("name", ["node2seq", "gcn", "gat", "sgc", "gin", "residual-node2seq"])
def test_explanations_have_a_value_for_each_edge(name):
    explainer = Explainer(
        make(name),
        algorithm=GNNExplainer(epochs=2),
        explanation_type="model",
        edge_mask_type="object",
        node_mask_type="attributes",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},  # pyright: ignore[reportArgumentType]
    )
    explanation: Any = explainer(node_features(), EDGES)
    assert explanation.edge_mask.shape == (9,)
    assert explanation.node_mask.shape == (6, 8)
    assert bool(explanation.edge_mask.isfinite().all())

"""Explainers and hooks see one message for each edge, and the fused path gives the same without them."""

import importlib.util
from typing import Any

import pytest
import torch
import torch_geometric.nn
from pyg_cases import EDGES, NODES, features, gradients, layer
from rounding import assert_same_layer, assert_same_up_to_rounding
from torch import Tensor, nn
from torch_geometric.explain import (
    AttentionExplainer,
    CaptumExplainer,
    Explainer,
    GNNExplainer,
    ModelConfig,
    PGExplainer,
)

from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.models import GCNStar, Node2Seq

NUM_EDGES = EDGES.size(1)
BIPARTITE_EDGES = EDGES[:, EDGES[1] < 6]


class CountedConv(Node2SeqConv):
    """Counts its calls of `propagate`, which only the message path makes."""

    propagated = 0

    def convolve_messages(self, *args: Any, **kwargs: Any):
        self.propagated += 1
        return super().convolve_messages(*args, **kwargs)


class Network(nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
        torch.manual_seed(0)
        self.first = CountedConv(5, 6, **kwargs)
        self.second = CountedConv(6, 3, **kwargs)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def _listen(conv: Node2SeqConv) -> list[Tensor]:
    seen: list[Tensor] = []
    conv.register_message_forward_hook(lambda _module, _inputs, out: seen.append(out))
    return seen


def test_the_fused_path_runs_unless_someone_listens():
    torch.manual_seed(0)
    conv = CountedConv(5, 4)
    conv(features(), EDGES)
    assert conv.propagated == 0
    registrations = [
        conv.register_propagate_forward_pre_hook,
        conv.register_propagate_forward_hook,
        conv.register_message_forward_pre_hook,
        conv.register_message_forward_hook,
        conv.register_aggregate_forward_pre_hook,
        conv.register_aggregate_forward_hook,
    ]
    for number, register in enumerate(registrations, start=1):
        called = []
        handle = register(lambda *_, called=called: called.append(True))
        conv(features(), EDGES)
        assert (conv.propagated, called) == (number, [True])
        handle.remove()
    conv(features(), EDGES)
    assert conv.propagated == len(registrations)


def test_a_subclass_with_messages_of_its_own_is_heard():
    class Half(Node2SeqConv):
        def message(self, x_j, alpha):  # pyright: ignore[reportIncompatibleMethodOverride]
            return 0.5 * x_j

    torch.manual_seed(0)
    half = Half(5, 4, add_self_loops=False, bias=False)
    plain = layer(add_self_loops=False, bias=False)
    plain.load_state_dict(half.state_dict())
    root = plain.lin_root(plain.lin(features()))
    expected = root + 0.5 * (plain(features(), EDGES) - root)
    assert_same_up_to_rounding(half(features(), EDGES), expected)


def test_one_message_for_each_edge_in_edge_order():
    conv = layer()
    seen = _listen(conv)
    conv(features(), EDGES)
    assert len(seen) == 1
    assert torch.equal(seen[0], conv.lin(features())[EDGES[0]])


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_alpha_is_the_softmax_of_the_scores_over_a_nodes_neighbours(hops, add_self_loops):
    conv = layer(hops=hops, threshold=0.5, add_self_loops=add_self_loops).double()
    seen = []
    conv.register_message_forward_hook(lambda _module, inputs, _out: seen.append(inputs[0]["alpha"]))
    conv(features().double(), EDGES)
    projected = conv.lin(features().double())
    expected = []
    for source, target in EDGES.t().tolist():
        neighbours = set(EDGES[0][EDGES[1] == target].tolist()) | ({target} if add_self_loops else set())
        weights = {j: torch.exp(projected[target] @ projected[j]) for j in neighbours}
        expected.append(weights[source] / sum(weights.values()))
    torch.testing.assert_close(seen[0], torch.stack(expected), rtol=0, atol=1e-12)
    assert not seen[0].requires_grad


CASES = [
    {},
    {"readout": "mean"},
    {"readout": "sum", "kernel_size": 5},
    {"kernel_size": 1, "add_self_loops": False},
    {"hops": 2, "threshold": 0.5},
    {"hops": 2, "threshold": 0.5, "nonlocal_order": "local-first", "readout": "mean"},
    {"hops": 3, "threshold": torch.inf, "readout": "sum"},
    {"root": "input", "backend": "reference"},
    {"flow": "target_to_source"},
]


def _both_paths(options, in_channels, x, edges):
    fused = layer(in_channels, **options).double()
    listened = layer(in_channels, **options).double()
    seen = _listen(listened)
    results = []
    for conv in (fused, listened):
        inputs = [part.double().requires_grad_() for part in x]
        out, trace = conv(inputs[0] if len(inputs) == 1 else tuple(inputs), edges, return_trace=True)
        results.append((out, trace, gradients(conv, out), [part.grad for part in inputs]))
    assert [len(messages) for messages in seen] == [edges.size(1)]
    return results


@pytest.mark.parametrize("options", CASES, ids=str)
def test_both_paths_agree(options):
    (out, trace, grads, (grad,)), (out2, trace2, grads2, (grad2,)) = _both_paths(
        options, 5, [features()], EDGES
    )
    torch.testing.assert_close(out2, out, rtol=0, atol=1e-12)
    torch.testing.assert_close(grads2, grads, rtol=0, atol=1e-12)
    torch.testing.assert_close(grad2, grad, rtol=0, atol=1e-12)
    assert torch.equal(trace2.index, trace.index)
    if trace.winner is not None:
        assert torch.equal(trace2.winner, trace.winner)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("readout", ["max", "mean"])
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_both_paths_agree_on_a_bipartite_graph(flow, readout, add_self_loops):
    x, edges, channels = [features(), features(6, 3, seed=1)], BIPARTITE_EDGES, (5, 3)
    if flow == "target_to_source":
        x, edges, channels = x[::-1], edges.flip(0), (3, 5)
    options = {"flow": flow, "readout": readout, "add_self_loops": add_self_loops}
    fused, listened = _both_paths(options, channels, x, edges)
    torch.testing.assert_close(listened[0], fused[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(listened[2], fused[2], rtol=0, atol=1e-12)
    torch.testing.assert_close(listened[3], fused[3], rtol=0, atol=1e-12)


@pytest.mark.parametrize("hops", [1, 2])
def test_masking_an_edge_changes_its_target_alone(hops):
    """A masked row is zero in the sequence; the order and all other targets stay."""
    conv = layer(hops=hops, readout="sum", kernel_size=1, bias=False).double()
    x = features().double()
    plain, trace = conv(x, EDGES, return_trace=True)
    edge = 3  # 4 → 0

    def mask(_module, _inputs, out):
        out = out.clone()
        out[edge] = 0
        return out

    conv.register_message_forward_hook(mask)
    masked, masked_trace = conv(x, EDGES, return_trace=True)
    assert torch.equal(masked_trace.index, trace.index)
    assert int(EDGES[0, edge]) in trace.index[: trace.ptr[1]].tolist()
    expected = plain.clone()
    expected[0] -= conv.lin(x)[4] @ conv.weight[0]
    torch.testing.assert_close(masked, expected, rtol=0, atol=1e-12)


def test_masking_one_of_three_listings_takes_a_third_of_the_message():
    conv = layer(readout="sum", kernel_size=1).double()
    x = features().double()
    plain = conv(x, EDGES)
    keep = torch.ones(NUM_EDGES, 1, dtype=torch.float64)
    keep[7] = 0  # the second of three listings of 1 → 2
    conv.register_message_forward_hook(lambda _module, _inputs, out: out * keep)
    expected = plain.clone()
    expected[2] -= conv.lin(x)[1] @ conv.weight[0] / 3
    torch.testing.assert_close(conv(x, EDGES), expected, rtol=0, atol=1e-12)


CLASSIFICATION = ModelConfig(mode="multiclass_classification", task_level="node", return_type="raw")


@pytest.mark.parametrize("hops", [1, 2])
def test_gnn_explainer(hops):
    """Node 4 is reached by 2 → 4 and 6 → 4, and at two hops by 1 → 2: no other edge can matter."""
    model = Network(hops=hops)
    explainer = Explainer(
        model,
        GNNExplainer(epochs=5),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config=CLASSIFICATION,
    )
    explanation = explainer(features(), EDGES, index=4)
    mask = explanation.edge_mask
    assert mask.shape == (NUM_EDGES,)
    assert bool(mask.isfinite().all())
    assert bool((mask[13:] > 0).all())  # 2 → 4 and 6 → 4
    if hops == 1:
        matters = torch.zeros(NUM_EDGES, dtype=torch.bool)
        matters[[6, 7, 8, 13, 14]] = True
        assert torch.equal(mask > 0, matters)
    assert model.first.propagated == 5
    model(features(), EDGES)
    assert model.first.propagated == 5  # the explainer is gone, the fused path is back


@pytest.mark.parametrize("network", [Node2Seq, GCNStar])
def test_gnn_explainer_on_the_whole_network(network):
    torch_geometric.nn.GCNConv(5, 6)  # PyG generates code for its layer, which ours must not inherit
    torch.manual_seed(0)
    model = network(5, 6, 3)
    explainer = Explainer(
        model,
        GNNExplainer(epochs=5),
        explanation_type="model",
        edge_mask_type="object",
        model_config=CLASSIFICATION,
    )
    model.eval()
    mask = explainer(features(), EDGES, index=4).edge_mask
    assert mask.shape == (NUM_EDGES,)
    assert bool(mask.isfinite().all())
    assert bool((mask[13:] > 0).all())
    assert float(mask[12]) == 0  # 4 → 5 leads away


def test_attention_explainer_reads_alpha():
    model = Network()
    explainer = Explainer(
        model,
        AttentionExplainer(reduce="mean"),
        explanation_type="model",
        edge_mask_type="object",
        model_config=CLASSIFICATION,
    )
    seen = []
    for conv in (model.first, model.second):
        conv.register_message_forward_hook(lambda _module, inputs, _out: seen.append(inputs[0]["alpha"]))
    mask = explainer(features(), EDGES).edge_mask
    assert_same_up_to_rounding(mask, (seen[-2] + seen[-1]) / 2)


def test_pg_explainer():
    model = Network()
    algorithm = PGExplainer(epochs=2, lr=0.01)
    explainer = Explainer(
        model,
        algorithm,
        explanation_type="phenomenon",
        edge_mask_type="object",
        model_config=CLASSIFICATION,
    )
    labels = model(features(), EDGES).argmax(-1)
    for epoch in range(2):
        loss = algorithm.train(epoch, model, features(), EDGES, target=labels, index=4)
        assert loss == loss
    mask = explainer(features(), EDGES, target=labels, index=4).edge_mask
    assert mask.shape == (NUM_EDGES,)
    assert bool((mask[13:] > 0).all())
    assert float(mask[11]) == 0  # 0 → 1 is too far to matter


@pytest.mark.skipif(importlib.util.find_spec("captum") is None, reason="captum is not installed")
def test_captum_explainer():
    explainer = Explainer(
        Network(),
        CaptumExplainer("IntegratedGradients"),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config=CLASSIFICATION,
    )
    mask = explainer(features(), EDGES, index=4).edge_mask
    assert mask.shape == (NUM_EDGES,)
    assert bool((mask[13:].abs() > 0).any())
    assert float(mask[12]) == 0


def test_nodes_without_edges_can_be_explained():
    conv = layer()
    seen = _listen(conv)
    no_edges = torch.empty(2, 0, dtype=torch.int64)
    found = conv(features(), no_edges, return_trace=True)
    assert seen[0].shape == (0, 4)
    assert_same_layer(found, layer()(features(), no_edges, return_trace=True))
    assert found[0].shape == (NODES, 4)

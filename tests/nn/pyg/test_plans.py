"""A graph's plan is built once per edge index, and a changed edge index is noticed."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from pyg_cases import EDGES, NODES, features, gradients, layer, random_graph
from rounding import assert_same_up_to_rounding
from torch.utils.checkpoint import checkpoint
from torch_geometric import EdgeIndex
from torch_geometric.utils import to_torch_csr_tensor

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.models import Node2Seq
from node2seq.ops import PLANS
from node2seq.ops.candidates import Candidates


def _built(call) -> int:
    before = PLANS.built
    call()
    return PLANS.built - before


def test_one_plan_for_all_layers_and_epochs():
    x, edges = random_graph(20, 60)
    layers = [layer(), layer(readout="sum"), layer(kernel_size=5, root="input")]

    def train():
        for _ in range(3):
            for conv in layers:
                conv(x, edges).sum().backward()

    assert _built(train) == 1
    assert _built(train) == 0
    assert _built(lambda: layer(add_self_loops=False)(x, edges)) == 1  # another graph


def test_candidates_are_listed_once_per_graph_and_hops(monkeypatch):
    x, edges = random_graph(20, 60)
    listed, original = [], Candidates._list

    def counted(candidates):
        listed.append(candidates.hops)
        return original(candidates)

    monkeypatch.setattr(Candidates, "_list", counted)
    for _ in range(2):
        for given in ({"hops": 2}, {"hops": 2, "seed": 1}, {"hops": 3}):
            layer(**given, backend="eager")(x, edges).sum().backward()
    assert listed == [2, 3]
    layer(hops=2, backend="eager")(x, edges.clone())
    assert listed == [2, 3, 2]


def test_the_network_builds_one_plan_for_each_kind_of_layer():
    x, edges = random_graph(20, 60)
    model = Node2Seq(5, 4, 3)

    def train():
        for _ in range(3):
            model(x, edges).sum().backward()

    assert _built(train) == 2  # GCN layers count duplicate edges
    assert _built(train) == 0


def test_the_listened_path_uses_the_same_plan():
    x, edges = random_graph(20, 60)
    conv = layer()
    conv(x, edges)
    conv.register_message_forward_hook(lambda *_: None)
    assert _built(lambda: conv(x, edges)) == 0


@pytest.mark.parametrize("module", [layer, lambda: GCNConv(5, 4)], ids=["Node2SeqConv", "GCNConv"])
def test_a_change_in_place_is_noticed(module):
    conv, edges = module(), EDGES.clone()
    before = conv(features(), edges)
    edges[0, 0] = 5  # 1 → 0 becomes 5 → 0, which there is already
    after = conv(features(), edges)
    assert torch.equal(after, conv(features(), edges.clone()))
    assert not torch.equal(after[0], before[0])
    edges[:, 3:6].copy_(torch.tensor([[8, 8, 8], [1, 2, 3]]))  # through a view
    assert torch.equal(conv(features(), edges), conv(features(), edges.clone()))


def test_a_new_tensor_at_the_same_address_is_another_graph():
    conv = layer()
    edges = EDGES.clone()
    conv(features(), edges)
    address = edges.data_ptr()
    other = edges.view(2, -1)  # the same memory, another tensor object
    assert other.data_ptr() == address
    del edges
    other[0, 0] = 5
    assert torch.equal(conv(features(), other), conv(features(), other.clone()))
    # Memory and object ids are used again as soon as they are free.
    for seed in range(20):
        x, fresh = random_graph(NODES, 15, seed)
        expected = layer(backend="reference")(x, fresh.clone())
        assert_same_up_to_rounding(conv(x, fresh), expected)
        del fresh


def test_a_plan_is_freed_with_its_edge_index():
    gc.collect()
    before = len(PLANS._plans)
    edges = EDGES.clone()
    layer(hops=2)(features(), edges)
    assert len(PLANS._plans) == before + 1
    edges[0, 0] = 5
    layer(hops=2)(features(), edges)
    assert len(PLANS._plans) == before + 1  # the plan of the old edges is gone
    del edges
    gc.collect()
    assert len(PLANS._plans) == before


def test_the_number_of_nodes_is_part_of_the_plan():
    conv, edges = layer(), EDGES.clone()
    small = conv(features(), edges)
    x = torch.cat([features(), features(2, seed=1)])
    large = conv(x, edges)
    assert large.size(0) == NODES + 2
    assert_same_up_to_rounding(large[:NODES], small)


def test_other_forms_of_edges_are_remembered_too():
    conv = layer()
    edges = EdgeIndex(EDGES, sparse_size=(NODES, NODES))  # pyright: ignore[reportCallIssue]
    csr = to_torch_csr_tensor(EDGES.flip(0), size=(NODES, NODES))
    coo = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(EDGES.size(1)), (NODES, NODES))
    for form in (edges, csr, coo, EDGES.int()):
        assert _built(lambda form=form: [conv(features(), form) for _ in range(3)]) == 1
    assert not coo.is_coalesced()  # nobody's tensors are changed


@pytest.mark.parametrize("backend", ["eager", "reference", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("hops", [1, 2])
def test_inference_mode_and_training_share_a_plan(backend, hops):
    """What is built in inference mode has to serve a backward pass later, and the other way round."""
    torch.manual_seed(0)
    model = Node2Seq(5, 4, 3, hops=hops, backend=backend).eval()
    x, edges = random_graph(20, 60)
    expected = model(x, edges.clone())
    expected_grads = gradients(model, expected)
    with torch.inference_mode():
        assert torch.equal(model(x, edges), expected)

    def train():
        assert gradients(model, model(x, edges)).keys() == expected_grads.keys()

    assert _built(train) == 0
    torch.testing.assert_close(gradients(model, model(x, edges)), expected_grads, rtol=0, atol=0)


def test_edges_made_in_inference_mode():
    conv = layer()
    with torch.inference_mode():
        edges = EDGES.clone()
        before = conv(features(), edges)
        edges[0, 0] = 5  # carries no version: nothing may be remembered
        after = conv(features(), edges)
    assert not torch.equal(before, after)
    assert torch.equal(after, conv(features(), edges.clone()))
    gradients(conv, conv(features(), edges))


@pytest.mark.parametrize("hops", [1, 2])
def test_threads(hops):
    conv = layer(hops=hops)
    graphs = [random_graph(30, 100 + seed, seed) for seed in range(4)]
    expected = [conv(x, edges.clone()).detach() for x, edges in graphs]

    def work(number):
        x, edges = graphs[number % 4]
        return torch.equal(conv(x, edges), expected[number % 4])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def test_threads_that_listen_do_not_hear_each_other():
    conv = layer()
    conv.register_message_forward_hook(lambda *_: None)
    graphs = [random_graph(30, 100 + seed, seed) for seed in range(4)]
    expected = [conv(x, edges, return_trace=True)[1].winner for x, edges in graphs]

    def work(number):
        x, edges = graphs[number % 4]
        return torch.equal(conv(x, edges, return_trace=True)[1].winner, expected[number % 4])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def _swap(one, other):
    torch.utils.swap_tensors(one, other)


def _edge_index(edges):
    return EdgeIndex(edges.clone(), sparse_size=(NODES, NODES))  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("form", [torch.clone, _edge_index], ids=["Tensor", "EdgeIndex"])
@pytest.mark.parametrize("numba", ["with numba", "without numba"])
def test_used_edges_can_be_swapped(form, numba, request):
    if numba == "without numba":
        request.getfixturevalue("without_numba")
    conv = layer(hops=2)
    edges, others = form(EDGES), form(EDGES.flip(0))
    expected, expected_of_others = conv(features(), edges), conv(features(), others)
    assert not torch.equal(expected, expected_of_others)
    kept = len(PLANS._plans)
    for _ in range(3):
        _swap(edges, others)
        assert torch.equal(conv(features(), edges), expected_of_others)
        assert torch.equal(conv(features(), others), expected)
        _swap(edges, others)
        assert torch.equal(conv(features(), edges), expected)
    assert len(PLANS._plans) == kept
    del edges, others
    gc.collect()
    assert len(PLANS._plans) == kept - 2


def test_swapped_edges_after_a_backward_pass():
    """Nothing that a plan keeps may be a view of the edges either: these would be in use."""
    for module in (layer(), layer(readout="mean"), GCNConv(5, 4)):
        x, edges = random_graph(20, 60)
        gradients(module, module(x, edges))
        others = edges.flip(0).clone()
        expected = module(x, others.clone())
        _swap(edges, others)
        assert torch.equal(module(x, edges), expected)


@pytest.mark.parametrize("form", ["view", "shared", "csr"])
def test_edges_without_memory_of_their_own(form):
    conv, table, whole = layer(), torch.cat([EDGES, EDGES.flip(0)]), EDGES.clone()
    gc.collect()
    before = len(PLANS._plans)

    def edges():
        if form == "csr":
            return to_torch_csr_tensor(table[:2].flip(0), size=(NODES, NODES))
        return table[:2] if form == "view" else whole.data

    for _ in range(3):
        one = edges()
        assert _built(lambda one=one: [conv(features(), one) for _ in range(2)]) == 1
        assert len(PLANS._plans) == before + 1
        del one  # which no cycle of references holds
        assert len(PLANS._plans) == before


def test_a_second_tensor_of_the_same_memory_sees_what_was_written_through_the_first():
    conv, edges = layer(), EDGES.clone()
    for source in range(5, 9):
        edges[0, 0] = source
        alias = edges.data  # which counts its versions by itself, and takes up the place of the one before
        assert torch.equal(conv(features(), alias), conv(features(), edges.clone()))
        del alias


def test_dropouts_that_were_checkpointed_can_be_swapped():
    model = Node2Seq(5, 4, 3)
    x, edges = random_graph(20, 60)
    checkpoint(model, x, edges, use_reentrant=False).sum().backward()
    assert int(model.dropouts[0].step) == 1  # pyright: ignore[reportArgumentType]
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        state = {name: value.clone() for name, value in model.state_dict().items()}
        state["dropouts.0.step"].fill_(7)
        model.load_state_dict(state)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert int(model.dropouts[0].step) == 7  # pyright: ignore[reportArgumentType]

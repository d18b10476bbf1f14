"""Node2SeqConv against the literal layer, and the facts of the paper's two figures."""

import itertools

import literal
import pytest
import torch
from rounding import assert_same_layer, assert_same_up_to_rounding
from torch import Tensor

from node2seq import Node2SeqConv, ops
from node2seq.data import load
from node2seq.nn.conv.node2seq import Trace

BACKENDS = [*sorted(ops.BACKENDS), pytest.param("native", marks=pytest.mark.slow)]
KERNELS = (1, 2, 3, 5, 10)
READOUTS = ("max", "mean", "sum")


def gradients(conv: Node2SeqConv, out: Tensor, x: Tensor) -> dict[str, Tensor]:
    """The gradients of a random projection of the output, by name."""
    direction = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(5))
    names, parameters = zip(*conv.named_parameters(), strict=True)
    grads = torch.autograd.grad((out * direction).sum(), [x, *parameters])
    return dict(zip(["x", *names], grads, strict=True))


def assert_equals_literal(conv: Node2SeqConv, x: Tensor, edge_index: Tensor, tolerance: float) -> None:
    x = x.clone().requires_grad_()
    out, trace = conv(x, edge_index, return_trace=True)
    expected, orders = literal.layer(conv, x, edge_index)
    assert literal.orders_of_trace(trace.ptr, trace.index, trace.is_nonlocal) == orders
    assert (out - expected).abs().max() <= tolerance
    found, wanted = gradients(conv, out, x), gradients(conv, expected, x)
    for name, grad in wanted.items():
        assert grad.abs().max() > 0, f"the literal layer gives {name} no gradient"
        assert (found[name] - grad).abs().max() <= tolerance, name


def float_features(seed: int, num_nodes: int = 30) -> Tensor:
    x = torch.randn(num_nodes, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x[4::7] = 0  # nodes without features tie with everyone
    return x


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize(("kernel_size", "readout"), list(itertools.product(KERNELS, READOUTS)))
def test_one_hop_equals_the_literal_layer(backend, undirected, kernel_size, readout):
    torch.manual_seed(kernel_size)
    for root in ("projected", "input"):
        conv = Node2SeqConv(5, 4, kernel_size, readout=readout, root=root, backend=backend).double()
        edges = literal.random_graph(kernel_size, undirected=undirected)
        assert_equals_literal(conv, float_features(kernel_size), edges, 1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nonlocal_order", ["joint", "local-first"])
@pytest.mark.parametrize("hops", [2, 3])
@pytest.mark.parametrize("threshold", [-0.5, 0.0, 0.3, 1e9])
def test_several_hops_equal_the_literal_layer(backend, nonlocal_order, hops, threshold):
    for seed, (kernel_size, readout) in enumerate(itertools.product((1, 3, 5), READOUTS)):
        torch.manual_seed(seed)
        conv = Node2SeqConv(
            5,
            4,
            kernel_size,
            readout=readout,
            hops=hops,
            threshold=threshold,
            nonlocal_order=nonlocal_order,
            root=("projected", "input")[seed % 2],
            backend=backend,
        ).double()
        edges = literal.random_graph(seed, undirected=seed % 2 == 0)
        assert_equals_literal(conv, float_features(seed), edges, 1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("readout", READOUTS)
def test_small_integers_are_exact_in_float32(backend, hops, readout):
    """Small integers: ties wherever one looks, and no rounding but that of a mean, which loops take first."""
    for kernel_size, seed in itertools.product(KERNELS, range(3)):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randint(-1, 2, (30, 3), generator=generator).float()
        x[10:20] = x[:10]  # twins: the same features as another node
        conv = Node2SeqConv(3, 3, kernel_size, readout=readout, hops=hops, backend=backend)
        with torch.no_grad():
            for parameter in conv.parameters():
                parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
        edges = literal.random_graph(seed, undirected=seed == 1)
        out, trace = conv(x, edges, return_trace=True)
        expected, orders = literal.layer(conv, x, edges)
        assert literal.orders_of_trace(trace.ptr, trace.index, trace.is_nonlocal) == orders
        if readout == "mean":
            assert_same_up_to_rounding(out, expected)
        else:
            assert torch.equal(out, expected)


def test_ties_are_met_and_decided_by_own_score_then_id():
    """A node without features scores everyone zero: the larger own score goes first, then the smaller id."""
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 1.0]])
    edges = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    conv = Node2SeqConv(2, 2, 1)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(2))
    _, trace = conv(x, edges, return_trace=True)
    assert trace.scores[:5].eq(0).all()
    assert trace.index[:5].tolist() == [2, 3, 1, 4, 0]


def test_one_hop_is_the_plain_layer_whatever_the_threshold():
    x, edges = float_features(0), literal.random_graph(0, undirected=True)
    torch.manual_seed(0)
    conv = Node2SeqConv(5, 4).double()
    plain = conv(x, edges)
    conv.threshold = 1e9
    assert torch.equal(conv(x, edges), plain)


def test_many_hops_reach_everything_that_can_reach_a_node():
    """A directed path 5 → 4 → … → 0: node 0 drops its neighbours and takes the best of all others."""
    edges = torch.tensor([[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]])
    x = torch.tensor([[-1.0], [1.0], [-3.0], [1.0], [-2.0], [-4.0]])
    conv = Node2SeqConv(1, 1, 1, hops=99, threshold=1e9)
    with torch.no_grad():
        conv.lin.weight.fill_(1.0)
    _, trace = conv(x, edges, return_trace=True)
    assert trace.index[:2].tolist() == [5, 2]
    assert trace.is_nonlocal[:2].all()
    # Node 5 has no incoming path: its only neighbour, itself, comes back.
    assert trace.index[-1] == 5
    assert not trace.is_nonlocal[-1]


def test_figure_1_order_and_windows():
    """Node 1 of five orders the nodes 1, 4, 5, 3, 2; kernel 3 over channels 2 → 3 gives a 3 × 3 output."""
    x = torch.tensor([[2.0, 2.0], [-1.0, -1.0], [0.2, 0.3], [1.5, 1.5], [1.0, 0.8]])
    edges = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    torch.manual_seed(0)
    conv = Node2SeqConv(2, 3, kernel_size=3)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]))
    out, trace = conv(x, edges, return_trace=True)
    assert (trace.index[:5] + 1).tolist() == [1, 4, 5, 3, 2]
    rows = conv.lin(x)[trace.index[:5]]
    windows = torch.nn.functional.conv1d(rows.t()[None], conv.weight.permute(2, 1, 0))[0].t()
    assert windows.shape == (3, 3)
    best = windows.max(dim=0)
    torch.testing.assert_close(out[0], best.values + conv.lin_root(conv.lin(x))[0])
    assert torch.equal(trace.winner[0], best.indices)


def test_figure_2_swaps_two_weak_neighbours_for_two_strong_nodes():
    """Seven nodes, ℓ = 2, β = 0: of the neighbours {1, 2, 3, 4} node 1 keeps {1, 4} and takes {5, 7}."""
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.5], [-0.5, 1.0], [0.8, 0.3], [0.7, -0.2], [-2.0, 0.0], [0.4, 0.9]])
    undirected = torch.tensor([[1, 1, 1, 2, 3, 4], [2, 3, 4, 5, 6, 7]]) - 1
    edges = torch.cat([undirected, undirected.flip(0)], dim=1)
    conv = Node2SeqConv(2, 3, kernel_size=3, hops=2, threshold=0.0)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    _, trace = conv(x, edges, return_trace=True)
    chosen = slice(int(trace.ptr[0]), int(trace.ptr[1]))
    nodes, is_nonlocal = trace.index[chosen] + 1, trace.is_nonlocal[chosen]
    assert set(nodes[~is_nonlocal].tolist()) == {1, 4}
    assert set(nodes[is_nonlocal].tolist()) == {5, 7}
    assert nodes.tolist() == [1, 4, 5, 7]


@pytest.mark.parametrize("hops", [1, 2])
def test_permuting_the_nodes_of_chameleon_permutes_the_output(hops, real_data):
    data = real_data("chameleon", load)
    torch.manual_seed(0)
    conv = Node2SeqConv(data.num_features, 16, hops=hops).double()
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    new_id = torch.empty_like(order)
    new_id[order] = torch.arange(order.numel())
    with torch.no_grad():
        plain = conv(data.x.double(), data.edge_index)
        permuted = conv(data.x.double()[order], new_id[data.edge_index])
    torch.testing.assert_close(permuted, plain[order], rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("hops", [1, 2])
def test_same_input_same_bits(backend, readout, hops):
    torch.manual_seed(0)
    conv = Node2SeqConv(5, 16, readout=readout, hops=hops, backend=backend)
    x, edges = float_features(3).float(), literal.random_graph(3, undirected=True)
    results = []
    for _ in range(2):
        leaf = x.clone().requires_grad_()
        out = conv(leaf, edges)
        results.append([out, *gradients(conv, out, leaf).values()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_many_runs_are_one_graph():
    """R copies of a graph as one disjoint union give each copy the order and the output that it has alone."""
    torch.manual_seed(0)
    edges = literal.random_graph(2, undirected=True)
    runs = [float_features(seed) for seed in range(3)]
    union = torch.cat([edges + 30 * r for r in range(3)], dim=1)
    for hops in (1, 2):
        conv = Node2SeqConv(5, 4, hops=hops).double()
        together, trace = conv(torch.cat(runs), union, return_trace=True)
        for run, (alone, out) in enumerate(zip(runs, together.split(30), strict=True)):
            nodes = slice(30 * run, 30 * run + 30)
            entries = slice(*trace.ptr[[nodes.start, nodes.stop]].tolist())
            own = Trace(
                trace.ptr[nodes.start : nodes.stop + 1] - entries.start,
                trace.index[entries] - nodes.start,
                trace.scores[entries],
                trace.is_nonlocal[entries],
                trace.winner[nodes],
            )
            assert_same_layer((out, own), conv(alone, edges, return_trace=True))


@pytest.mark.parametrize("readout", ["max", "mean"])
@pytest.mark.parametrize("taps", ["depthwise", "scalar"])
def test_few_taps_equal_the_full_kernel_with_the_same_diagonals(taps, readout):
    x, edge_index = float_features(2), literal.random_graph(1, undirected=False)
    torch.manual_seed(0)
    few = Node2SeqConv(5, 4, 3, taps=taps, readout=readout).double()
    torch.testing.assert_close(few.weight.float(), torch.full(few.weight.shape, 1 / 3))
    with torch.no_grad():
        few.weight.normal_()
    full = Node2SeqConv(5, 4, 3, readout=readout).double()
    state = few.state_dict()
    diagonals = state["weight"] if taps == "depthwise" else state["weight"][:, None].expand(3, 4)
    state["weight"] = torch.diag_embed(diagonals)
    full.load_state_dict(state)
    out, expected = few(x, edge_index), full(x, edge_index)
    assert torch.equal(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert few.weight.grad is not None
    assert full.weight.grad is not None
    grad = torch.diagonal(full.weight.grad, dim1=-2, dim2=-1)
    torch.testing.assert_close(few.weight.grad, grad if taps == "depthwise" else grad.sum(-1))

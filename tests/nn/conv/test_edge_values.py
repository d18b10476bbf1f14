"""Edges that carry weights and attributes: Node2SeqConv against the literal layer."""

import copy
from typing import Any

import literal
import pytest
import torch
from rounding import assert_same_up_to_rounding
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from node2seq import Node2SeqConv, Node2SeqError, ops
from node2seq.nn.conv.node2seq import Trace
from node2seq.train.stacking import stack

BACKENDS = [*sorted(ops.BACKENDS), pytest.param("native", marks=pytest.mark.slow)]
READOUTS = ("max", "mean", "sum")
CARRIED = {"weights": (True, False), "attributes": (False, True), "both": (True, True)}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def graph(seed: int, *, undirected: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features with ties, edges with duplicates and self loops, their weights and attributes.

    Some parallel edges are equal in all but their weights, so that they tie.
    """
    x, edge_index = drawn(seed, 30, 5), literal.random_graph(seed, undirected=undirected)
    x[4::7] = 0
    edges = edge_index.size(1)
    weight, attr = drawn(seed + 1, edges), drawn(seed + 2, edges, 3)
    edge_index = torch.cat([edge_index, edge_index[:, :20], edge_index[:, :20]], dim=1)
    weight = torch.cat([weight, drawn(seed + 3, 40)])
    attr = torch.cat([attr, attr[:20], attr[:10], drawn(seed + 4, 10, 3)])
    return x, edge_index, weight, attr


def layer(**options: Any) -> Node2SeqConv:
    torch.manual_seed(options.get("kernel_size", 3))
    return Node2SeqConv(**{"in_channels": 5, "out_channels": 4, **options}).double()


def leaves(*tensors: Tensor | None) -> list[Any]:
    return [None if tensor is None else tensor.clone().requires_grad_() for tensor in tensors]


def gradients(conv: torch.nn.Module, out: Tensor, given: list[Any]) -> dict[str, Tensor]:
    """The gradients of a random projection of the output, by name."""
    wanted = {f"input {number}": tensor for number, tensor in enumerate(given) if tensor is not None}
    wanted |= dict(conv.named_parameters())
    loss = (out * drawn(5, *out.shape).to(out.dtype)).sum()
    return dict(zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True))


def entries_of(trace: Trace) -> list[list[tuple[int, int]]]:
    assert trace.edge is not None
    both = list(zip(trace.index.tolist(), trace.edge.tolist(), strict=True))
    return [both[start:end] for start, end in zip(trace.ptr[:-1], trace.ptr[1:], strict=True)]


def assert_equals_literal(conv: Node2SeqConv, x: Any, edges: Tensor, weight: Any, attr: Any) -> None:
    weight, attr, *sides = leaves(weight, attr, *(x if isinstance(x, tuple) else (x,)))
    x = tuple(sides) if len(sides) == 2 else sides[0]
    out, trace = conv(x, edges, weight, attr, return_trace=True)
    expected, orders = literal.layer_with_edge_values(conv, x, edges, weight, attr)
    assert entries_of(trace) == orders
    assert (out - expected).abs().max() <= 1e-10
    given = [*sides, weight, attr]
    found, wanted = gradients(conv, out, given), gradients(conv, expected, given)
    for name, grad in wanted.items():
        assert grad.abs().max() > 0, f"the literal layer gives {name} no gradient"
        assert (found[name] - grad).abs().max() <= 1e-10, name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("carried", CARRIED)
@pytest.mark.parametrize("readout", READOUTS)
def test_one_hop_equals_the_literal_layer(backend: str, carried: str, readout: str) -> None:
    has_weight, has_attr = CARRIED[carried]
    for kernel_size in (1, 3, 6):
        options = {"kernel_size": kernel_size, "readout": readout, "backend": backend}
        x, edges, weight, attr = graph(kernel_size, undirected=kernel_size == 3)
        conv = layer(
            edge_dim=3 if has_attr else None, root=("input", "projected")[kernel_size % 2], **options
        )
        assert_equals_literal(conv, x, edges, weight if has_weight else None, attr if has_attr else None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nonlocal_order", ["joint", "local-first"])
@pytest.mark.parametrize("threshold", [-0.5, 0.3, 1e9])
def test_several_hops_equal_the_literal_layer(backend: str, nonlocal_order: str, threshold: float) -> None:
    for readout in READOUTS:
        options = {"readout": readout, "nonlocal_order": nonlocal_order, "backend": backend}
        conv = layer(edge_dim=3, hops=2, threshold=threshold, **options)
        x, edges, weight, attr = graph(7, undirected=readout == "sum")
        # With a threshold that nobody passes, all that a node keeps may be non-local.
        assert_equals_literal(conv, x, edges, weight, attr)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hops", [1, 2])
def test_the_order_by_degree_equals_the_literal_layer(backend: str, hops: int) -> None:
    conv = layer(edge_dim=3, order="degree", hops=hops, backend=backend)
    assert_equals_literal(conv, *graph(11))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hops", [1, 2])
def test_without_self_entries_a_listed_self_loop_keeps_its_values(backend: str, hops: int) -> None:
    conv = layer(edge_dim=3, add_self_loops=False, hops=hops, backend=backend)
    assert_equals_literal(conv, *graph(13))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("in_channels", [5, (5, 7)])
@pytest.mark.parametrize("add_self_loops", [False, True])
def test_bipartite_graphs_equal_the_literal_layer(
    backend: str, in_channels: Any, add_self_loops: bool
) -> None:
    conv = layer(in_channels=in_channels, edge_dim=3, add_self_loops=add_self_loops, backend=backend)
    _, edges, weight, attr = graph(17)
    kept = edges[1] < 20
    x = (drawn(1, 30, 5), drawn(2, 20, 5 if in_channels == 5 else 7))
    assert_equals_literal(conv, x, edges[:, kept], weight[kept], attr[kept])


@pytest.mark.parametrize("backend", BACKENDS)
def test_parallel_edges_that_tie_stay_as_they_are_listed(backend: str) -> None:
    """Small integers in float32 and in float64: everything ties, and the sums are exact."""
    for dtype in (torch.float32, torch.float64):
        generator = torch.Generator().manual_seed(3)
        x = torch.zeros(6, 5, dtype=dtype)
        edges = torch.randint(6, (2, 200), generator=generator)
        weight = torch.randint(-3, 4, (200,), generator=generator).to(dtype)
        conv = layer(backend=backend).to(dtype)
        out, trace = conv(x, edges, weight, return_trace=True)
        expected, orders = literal.layer_with_edge_values(conv, x, edges, weight, None)
        assert entries_of(trace) == orders
        assert torch.equal(out, expected)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("order", ["attention", "degree", "random"])
def test_weights_of_one_change_nothing_where_no_edge_is_parallel(hops: int, order: str) -> None:
    x, edges, _, _ = graph(19)
    edges = edges.unique(dim=1)
    conv = layer(hops=hops, order=order)
    plain, traced = conv(x, edges, return_trace=True)
    out, trace = conv(x, edges, torch.ones(edges.size(1)), return_trace=True)
    assert trace.index.tolist() == traced.index.tolist()
    assert_same_up_to_rounding(out, plain)


def test_the_reversed_flow() -> None:
    x, edges, weight, attr = graph(23)
    conv = layer(edge_dim=3)
    reversed_conv = layer(edge_dim=3, flow="target_to_source")
    reversed_conv.load_state_dict(conv.state_dict())
    assert torch.equal(reversed_conv(x, edges.flip(0), weight, attr), conv(x, edges, weight, attr))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("readout", READOUTS)
def test_several_runs_at_once(backend: str, hops: int, readout: str) -> None:
    """Three runs share the edges and their values, and each has its own weights."""
    x, edges, weight, attr = graph(29)
    convs = [layer(edge_dim=3, hops=hops, readout=readout, backend=backend) for _ in range(3)]
    for seed, conv in enumerate(convs):
        torch.manual_seed(seed)
        conv.reset_parameters()
    together, runs = stack(convs), drawn(1, 3, 30, 5)
    x, weight, attr = leaves(runs, weight, attr)
    out = together(x, edges, weight, attr)
    alone = torch.stack([conv(run, edges, weight, attr) for conv, run in zip(convs, x, strict=True)])
    assert_same_up_to_rounding(out, alone, roundings=32)
    found = torch.autograd.grad((out * drawn(2, *out.shape)).sum(), [x, weight, attr])
    wanted = torch.autograd.grad((alone * drawn(2, *out.shape)).sum(), [x, weight, attr])
    assert_same_up_to_rounding(found, wanted, roundings=64)


class Overridden(Node2SeqConv):
    """A layer with a message of its own takes the way of single messages."""

    def message(self, x_j: Tensor, alpha: Tensor, edge_weight: Any, edge_attr: Any) -> Tensor:
        return super().message(x_j, alpha, edge_weight, edge_attr)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("carried", CARRIED)
def test_single_messages_give_the_same(hops: int, carried: str) -> None:
    has_weight, has_attr = CARRIED[carried]
    options = {"hops": hops, "edge_dim": 3 if has_attr else None}
    conv, twin = layer(**options), Overridden(5, 4, **options).double()
    twin.load_state_dict(conv.state_dict())
    x, edges, weight, attr = graph(31)
    given = leaves(x, weight if has_weight else None, attr if has_attr else None)
    out, by_message = (module(given[0], edges, *given[1:]) for module in (conv, twin))
    assert_same_up_to_rounding(by_message, out, roundings=32)
    assert_same_up_to_rounding(gradients(twin, by_message, given), gradients(conv, out, given), roundings=64)


def test_an_explainer_sees_every_edge() -> None:
    x, edges, weight, attr = (t.float() if t.is_floating_point() else t for t in graph(37))
    conv = layer(edge_dim=3).float()
    seen = []
    conv.register_message_forward_hook(lambda _module, _inputs, out: seen.append(out.size(0)))
    conv(x, edges, weight, attr)
    assert seen == [edges.size(1)]
    explainer = Explainer(
        layer(edge_dim=3).float(),
        GNNExplainer(epochs=2),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node"},
    )
    explanation = explainer(x, edges, edge_weight=weight, edge_attr=attr)
    assert explanation.edge_mask.shape == weight.shape
    assert explanation.edge_mask.max() > 0


@pytest.mark.parametrize("make", [to_torch_coo_tensor, to_torch_csr_tensor])
def test_a_sparse_adjacency_holds_weights_as_its_values(make: Any) -> None:
    x, edges, weight, _ = graph(41)
    edges, first = edges.unique(dim=1, return_inverse=True)
    weight = torch.zeros(edges.size(1)).double().scatter(0, first, weight)
    conv = layer()
    adjacency = make(edges.flip(0), weight, size=(30, 30)).requires_grad_()
    out = conv(x, adjacency)
    given = leaves(weight)
    expected = conv(x, edges, given[0])
    assert_same_up_to_rounding(out, expected)
    found = torch.autograd.grad(out.sum(), adjacency)[0]
    (wanted,) = torch.autograd.grad(expected.sum(), given[0])
    wanted = make(edges.flip(0), wanted, size=(30, 30))
    assert_same_up_to_rounding(found.to_dense(), wanted.to_dense(), roundings=32)
    assert torch.equal(conv(x, make(edges.flip(0), size=(30, 30))), conv(x, edges))  # all ones: nothing


def test_values_that_become_others_are_noticed() -> None:
    x, edges, _, _ = graph(41)
    adjacency = to_torch_coo_tensor(edges.unique(dim=1).flip(0), size=(30, 30)).double()
    conv = layer()
    plain = conv(x, adjacency)
    adjacency.values().mul_(2.0)
    assert not torch.equal(conv(x, adjacency), plain)


def test_an_edge_index_object() -> None:
    x, edges, weight, attr = graph(43)
    conv = layer(edge_dim=3)
    index = EdgeIndex(edges, sparse_size=(30, 30))  # pyright: ignore[reportCallIssue]
    assert torch.equal(conv(x, index, weight, attr), conv(x, edges, weight, attr))


def test_a_single_attribute_may_be_a_vector_and_edge_dim_may_follow_from_the_input() -> None:
    x, edges, weight, _ = graph(47)
    conv = layer(edge_dim=-1)
    assert torch.equal(conv(x, edges, edge_attr=weight), conv(x, edges, edge_attr=weight[:, None]))
    assert conv.lin_edge is not None
    assert conv.lin_edge.weight.shape == (4, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision(dtype: torch.dtype) -> None:
    x, edges, weight, attr = (t.to(dtype) if t.is_floating_point() else t for t in graph(53))
    conv = layer(edge_dim=3).to(dtype)
    given = leaves(x, weight, attr)
    out = conv(given[0], edges, *given[1:])
    assert out.dtype == dtype
    for grad in torch.autograd.grad(out.float().sum(), [*given, *conv.parameters()]):
        assert grad.dtype == dtype
        assert grad.isfinite().all()
    whole = copy.deepcopy(conv).double()(
        *(t.double() if t.is_floating_point() else t for t in (x, edges, weight, attr))
    )
    assert (out.double() - whole).abs().max() <= 4 * torch.finfo(dtype).eps * whole.abs().max()


def test_whole_numbers_are_weights_too() -> None:
    x, edges, _, _ = graph(59)
    weight = torch.arange(edges.size(1)) % 3
    conv = layer()
    assert torch.equal(conv(x, edges, weight), conv(x, edges, weight.double()))


@pytest.mark.parametrize("nodes", [0, 3])
@pytest.mark.parametrize("hops", [1, 2])
def test_graphs_without_edges(nodes: int, hops: int) -> None:
    x, none = drawn(1, nodes, 5), torch.empty(2, 0, dtype=torch.int64)
    conv = layer(edge_dim=3, hops=hops)
    out = conv(x, none, drawn(1, 0), drawn(1, 0, 3))
    twin = layer(hops=hops)
    twin.load_state_dict(conv.state_dict(), strict=False)
    assert_same_up_to_rounding(out, twin(x, none))


@pytest.mark.parametrize("hops", [1, 2])
def test_the_plan_is_found_again(hops: int) -> None:
    x, edges, weight, attr = graph(61)
    conv = layer(edge_dim=3, hops=hops)
    conv(x, edges, weight, attr)
    built = ops.PLANS.built
    conv(x, edges, weight, attr)
    assert ops.PLANS.built == built
    edges[1, 0] = (edges[1, 0] + 1) % 27  # noticed
    expected, _ = literal.layer_with_edge_values(conv, x, edges, weight, attr)
    if hops == 1:
        assert (conv(x, edges, weight, attr) - expected).abs().max() <= 1e-10


X, EDGES, WEIGHT, ATTR = graph(0)
COUNT = EDGES.size(1)


@pytest.mark.parametrize(
    ("edge_dim", "given", "message"),
    [
        (None, [(30, 30)], "edge_weight is a tuple: .* as size=\\(num_sources, num_targets\\)"),
        (None, [[0.5] * COUNT], "edge_weight is a list"),
        (None, [WEIGHT[:-1]], f"edge_weight has shape \\[{COUNT - 1}\\]: there are {COUNT} edges"),
        (None, [WEIGHT[:, None]], f"edge_weight has shape \\[{COUNT}, 1\\]"),
        (None, [WEIGHT.to("meta")], "edge_weight on meta: the edges are on cpu"),
        (None, [WEIGHT + 1j], "edge_weight has dtype torch.complex128"),
        (None, [None, ATTR], "edge_attr of shape .* the layer was made without edge_dim.*edge_dim=3"),
        (3, [WEIGHT], "no edge_attr: the layer was made with edge_dim"),
        (3, [None, ATTR[:-1]], f"edge_attr has shape \\[{COUNT - 1}, 3\\]: there are {COUNT} edges"),
        (3, [None, ATTR[:, :2]], "edge_attr has 2 channels: the layer projects it from 3.*edge_dim"),
        (3, [None, ATTR.long()], "edge_attr has dtype torch.int64"),
        (3, [None, ATTR[None]], "edge_attr has shape"),
    ],
)
def test_values_that_the_layer_cannot_use(edge_dim: Any, given: list, message: str) -> None:
    with pytest.raises(Node2SeqError, match=message):
        layer(edge_dim=edge_dim)(X, EDGES, *given)


@pytest.mark.parametrize("edge_dim", [0, -2, True, 1.5, "3"])
def test_an_edge_dim_that_makes_no_sense(edge_dim: Any) -> None:
    with pytest.raises(Node2SeqError, match="edge_dim="):
        Node2SeqConv(5, 4, edge_dim=edge_dim)


def test_missing_values_are_found_where_they_are_looked_for() -> None:
    weight, attr = WEIGHT.clone(), ATTR.clone()
    weight[3], attr[5, 1] = torch.nan, torch.inf
    conv = layer(edge_dim=3, validate=True)
    with pytest.raises(Node2SeqError, match="edge_weight\\[3\\] is not finite"):
        conv(X, EDGES, weight, ATTR)
    with pytest.raises(Node2SeqError, match="edge_attr\\[5\\] is not finite"):
        conv(X, EDGES, WEIGHT, attr)


def test_values_beside_a_sparse_adjacency() -> None:
    adjacency = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(COUNT), (30, 30))
    with pytest.raises(Node2SeqError, match="beside a sparse adjacency"):
        layer()(X, adjacency, WEIGHT)
    with pytest.raises(Node2SeqError, match="not coalesced"):
        layer()(X, torch.sparse_coo_tensor(EDGES.flip(0), WEIGHT, (30, 30)))


def test_export_says_what_it_cannot_do() -> None:
    with pytest.raises(Exception, match="the layer is exported for edges that carry nothing"):
        torch.export.export(layer(), (X, EDGES, WEIGHT))

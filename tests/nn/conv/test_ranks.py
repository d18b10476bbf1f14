"""Layers with ranks, and orders given by the edges: Node2SeqConv against loops."""

from itertools import pairwise
from typing import Any

import literal
import literal_ranks
import pytest
import torch
from literal_ranks import Given
from rounding import assert_same_up_to_rounding
from torch import Tensor
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer
from torch_geometric.utils import to_torch_csr_tensor

from node2seq import Node2SeqConv, Node2SeqError, ops
from node2seq.nn.conv.node2seq import Trace
from node2seq.train.stacking import stack

BACKENDS = [*sorted(ops.BACKENDS), pytest.param("native", marks=pytest.mark.slow)]
SOFT: dict[str, dict[str, Any]] = {
    "own": {},
    "shared": {"scores": "shared"},
    "cold": {"temperature": 0.3, "score_channels": 3},
    "heads": {"heads": 3, "score_channels": 2},
    "depthwise": {"taps": "depthwise"},
    "scalar": {"taps": "scalar", "heads": 2},
    "root": {"root": "input", "bias": False},
    "alone": {"add_self_loops": False, "root": "none"},
}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def graph(seed: int, *, undirected: bool = False) -> Given:
    """Features with ties, edges with duplicates and self loops, what these carry, and times with ties."""
    x, edge_index = drawn(seed, 30, 5), literal.random_graph(seed, undirected=undirected)
    x[4::7] = 0
    edge_index = torch.cat([edge_index, edge_index[:, :20]], dim=1)
    edges = edge_index.size(1)
    # So large that float32 takes neighbouring ones for the same.
    times = 1_600_000_000 + torch.randint(9, (edges,), generator=torch.Generator().manual_seed(seed))
    return Given(x, edge_index, drawn(seed + 1, edges), drawn(seed + 2, edges, 3), times)


def layer(**options: Any) -> Node2SeqConv:
    torch.manual_seed(options.get("kernel_size", 3))
    return Node2SeqConv(**{"in_channels": 5, "out_channels": 4, **options}).double()


def entries_of(trace: Trace) -> list[list[tuple[int, int]]]:
    edge = trace.edge if trace.edge is not None else torch.full_like(trace.index, -1)
    pairs = list(zip(trace.index.tolist(), edge.tolist(), strict=True))
    return [pairs[start:end] for start, end in pairwise(trace.ptr.tolist())]


def with_gradients(conv: Node2SeqConv, out: Tensor, given: Given) -> dict[str, Tensor]:
    leaves = given.x if isinstance(given.x, tuple) else (given.x,)
    wanted: dict[str, Any] = {f"x {number}": leaf for number, leaf in enumerate(leaves)}
    wanted |= {name: value for name, value in given._asdict().items() if name in ("weight", "attr")}
    wanted |= dict(conv.named_parameters())
    wanted = {name: value for name, value in wanted.items() if value is not None}
    loss = (out * drawn(5, *out.shape)).sum()
    found = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    return {name: grad for name, grad in zip(wanted, found, strict=True) if grad is not None}


def leaf(value: Any) -> Any:
    """What has a gradient as a leaf of its own."""
    if isinstance(value, tuple):
        return tuple(map(leaf, value))
    return value if value is None else value.clone().requires_grad_()


def assert_equals_literal(conv: Node2SeqConv, given: Given) -> Trace:
    """Outputs and all gradients to 1e-10, orders as exact integers."""
    given = given._replace(x=leaf(given.x), weight=leaf(given.weight), attr=leaf(given.attr))
    out, trace = given.run(conv, return_trace=True)
    expected, heads = literal_ranks.layer(conv, given)
    sources = (given.x[0] if isinstance(given.x, tuple) else given.x).size(0)
    orders = [mine for head in heads for mine in head]
    found = [[(j % sources, edge) for j, edge in mine] for mine in entries_of(trace)]
    assert found == orders
    assert (out - expected).abs().max() <= 1e-10
    ours, wanted = with_gradients(conv, out, given), with_gradients(conv, expected, given)
    assert {*wanted} <= {*ours}
    for name, grad in wanted.items():
        assert grad.abs().max() > 0, f"the literal layer gives {name} no gradient"
        assert (ours[name] - grad).abs().max() <= 1e-10, name
    return trace


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", SOFT)
@pytest.mark.parametrize("kernel_size", [1, 3, 10])
def test_soft_ranks_equal_the_literal_layer(backend, options, kernel_size):
    conv = layer(readout="ranks", kernel_size=kernel_size, backend=backend, **SOFT[options])
    trace = assert_equals_literal(conv, graph(kernel_size)._replace(weight=None, attr=None, order=None))
    assert trace.ranks is not None
    assert trace.ranks.shape == (kernel_size, trace.index.numel())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("carried", ["weight", "attr", "both"])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("options", ["own", "shared", "heads"])
def test_soft_ranks_over_what_edges_carry_and_non_local_nodes(backend, carried, hops, options):
    conv = layer(
        readout="ranks",
        hops=hops,
        threshold=0.1,
        backend=backend,
        edge_dim=None if carried == "weight" else 3,
        **SOFT[options],
    )
    given = graph(hops)._replace(order=None)
    if carried != "both":
        given = given._replace(**{"attr" if carried == "weight" else "weight": None})
    trace = assert_equals_literal(conv, given)
    assert (trace.is_nonlocal.any()).item() == (hops == 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nonlocal_order", ["joint", "local-first"])
def test_non_local_nodes_alone(backend, nonlocal_order):
    for soft in (True, False):
        conv = layer(readout="ranks", hops=2, soft=soft, backend=backend, nonlocal_order=nonlocal_order)
        assert_equals_literal(conv, graph(1)._replace(weight=None, attr=None, order=None))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kernel_size", [1, 2, 5])
@pytest.mark.parametrize("edge_values", [False, True])
def test_hard_ranks_by_attention(backend, kernel_size, edge_values):
    edge_dim = 3 if edge_values else None
    conv = layer(readout="ranks", soft=False, kernel_size=kernel_size, backend=backend, edge_dim=edge_dim)
    given = graph(kernel_size)._replace(order=None)
    trace = assert_equals_literal(conv, given if edge_values else given._replace(weight=None, attr=None))
    assert trace.ranks is not None
    assert {*trace.ranks.unique().tolist()} == {0.0, 1.0}
    place = torch.arange(trace.index.numel()) - trace.ptr[ops.Rows.from_lengths(trace.ptr.diff()).target]
    assert trace.ranks.bool().tolist() == [(place == t).tolist() for t in range(kernel_size)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("readout", ["max", "mean", "sum", "ranks"])
@pytest.mark.parametrize("self_position", ["first", "last", "none"])
@pytest.mark.parametrize("hops", [1, 2])
def test_an_order_given_by_the_edges(backend, readout, self_position, hops):
    conv = layer(order="edge", readout=readout, self_position=self_position, hops=hops, backend=backend)
    assert_equals_literal(conv, graph(3)._replace(weight=None, attr=None))
    conv = layer(
        order="edge", readout=readout, self_position=self_position, hops=hops, backend=backend, edge_dim=3
    )
    assert_equals_literal(conv, graph(4, undirected=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
def test_numbers_of_every_type_sort_the_edges(dtype):
    given = graph(0)._replace(weight=None, attr=None)
    assert given.order is not None
    given = given._replace(order=(given.order - 1_600_000_000).to(dtype))
    assert_equals_literal(layer(order="edge", readout="ranks"), given)


def test_times_without_ties_are_sorted_once():
    given = graph(0)._replace(weight=None, attr=None)
    order = torch.randperm(given.edge_index.size(1)).double()
    given = given._replace(order=order)
    conv = layer(order="edge", readout="ranks")
    assert_equals_literal(conv, given)
    order[:5] += 0.5 + order.max()  # noticed, though it is the same tensor
    assert_equals_literal(conv, given)


def test_bipartite_graphs():
    given = graph(0)
    edges = torch.stack([given.edge_index[0] % 12, given.edge_index[1]])
    pair = (drawn(1, 12, 5), drawn(2, 30, 7))
    for options in ({}, {"heads": 2}, {"scores": "shared"}, {"soft": False}, {"add_self_loops": False}):
        conv = layer(in_channels=(5, 7), readout="ranks", **options)
        assert_equals_literal(conv, Given(pair, edges))
    conv = layer(in_channels=(5, 7), readout="ranks", order="edge", add_self_loops=False)
    assert_equals_literal(conv, Given(pair, edges, order=given.order))


@pytest.mark.parametrize("readout", ["max", "ranks"])
def test_sources_alone_with_an_order_given(readout):
    given = graph(0)
    conv = layer(readout=readout, order="edge", root="none", self_position="none")
    out = conv((given.x, None), given.edge_index, edge_order=given.order)
    expected = conv((given.x, given.x), given.edge_index, edge_order=given.order)
    assert torch.equal(out, expected)
    soft = layer(readout="ranks", root="none")
    with pytest.raises(Node2SeqError, match="scores its sources against each target"):
        soft((given.x, None), given.edge_index)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [{}, {"heads": 2}, {"soft": False}, {"order": "edge"}, {"hops": 2}])
def test_permutation_of_the_nodes(backend, options):
    given = graph(0)._replace(weight=None, attr=None, order=None)
    x = drawn(7, 30, 5)  # nothing ties
    if "order" in options:
        given = given._replace(order=torch.randperm(given.edge_index.size(1)))
    conv = layer(readout="ranks", backend=backend, **options)
    new = torch.randperm(30, generator=torch.Generator().manual_seed(0))  # node i becomes new[i]
    moved = torch.empty_like(x)
    moved[new] = x
    out = given._replace(x=x).run(conv)
    again = given._replace(x=moved, edge_index=new[given.edge_index]).run(conv)
    assert (again[new] - out).abs().max() < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [{}, {"heads": 2}, {"hops": 2, "heads": 2}, {"order": "edge"}])
def test_several_graphs_and_several_runs_at_once(backend, options):
    given = graph(0)
    if "order" not in options:
        given = given._replace(order=None)
    xs = torch.stack([given.x, given.x.flip(0)])  # pyright: ignore
    convs = [layer(readout="ranks", edge_dim=3, backend=backend, kernel_size=k, **options) for k in (3, 3)]
    for parameter in convs[1].parameters():
        parameter.data = parameter.data + 0.1
    together = given._replace(x=xs).run(convs[0])
    for x, out in zip(xs, together, strict=True):
        assert (given._replace(x=x).run(convs[0]) - out).abs().max() < 1e-12
    stacked: Any = stack(convs)
    for features in (given.x, xs):
        runs = given._replace(x=features).run(stacked)
        for number, conv in enumerate(convs):
            x = features if features.dim() == 2 else features[number]  # pyright: ignore
            assert (given._replace(x=x).run(conv) - runs[number]).abs().max() < 1e-12


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("options", [{}, {"heads": 3}, {"soft": False}, {"order": "edge"}])
@pytest.mark.parametrize("carries", [False, True])
def test_single_messages_give_the_same(hops, options, carries):
    given = graph(2) if carries else graph(2)._replace(weight=None, attr=None)
    if "order" not in options:
        given = given._replace(order=None)
    conv = layer(readout="ranks", hops=hops, edge_dim=3 if carries else None, **options)
    given = given._replace(x=leaf(given.x), weight=leaf(given.weight), attr=leaf(given.attr))
    expected = with_gradients(conv, given.run(conv), given)
    heard = []
    conv.register_message_forward_hook(lambda _conv, inputs, out: heard.append((inputs[0]["alpha"], out)))
    out = given.run(conv)
    assert_same_up_to_rounding(with_gradients(conv, out, given), expected, 100)
    alpha, messages = heard[0]
    assert messages.shape == (given.edge_index.size(1), 4)
    assert alpha.shape == ((messages.size(0), 3) if "heads" in options else messages.shape[:1])
    if not carries and "order" not in options:
        xs = torch.stack([given.x, given.x.flip(0)])  # pyright: ignore
        for x, part in zip(xs, given._replace(x=xs).run(conv), strict=True):
            assert_same_up_to_rounding(part, given._replace(x=x).run(conv), 100)


@pytest.mark.parametrize("heads", [1, 2])
def test_graphs_without_edges_or_nodes(heads):
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    conv = layer(readout="ranks", heads=heads, add_self_loops=False, root="none", bias=False)
    for number in range(2):
        if number:  # once more by single messages
            conv.register_message_forward_hook(lambda _conv, _inputs, out: out)
        assert conv(drawn(0, 3, 5), nothing).tolist() == [[0.0] * 4 * heads] * 3
        assert conv(drawn(0, 0, 5), nothing).shape == (0, 4 * heads)
        assert conv(drawn(0, 2, 3, 5), nothing).shape == (2, 3, 4 * heads)


@pytest.mark.parametrize("options", [{}, {"heads": 2}, {"order": "edge"}])
def test_explainers(options):
    given = graph(2)._replace(weight=None, attr=None)
    order = {"edge_order": given.order} if "order" in options else {}
    conv = Node2SeqConv(5, 4, readout="ranks", **options)
    explainer = Explainer(
        conv,
        algorithm=GNNExplainer(epochs=5),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    x: Any = given.x
    mask = explainer(x.float(), given.edge_index, index=3, **order).edge_mask
    assert mask.shape == (given.edge_index.size(1),)
    if not order:
        attention = Explainer(
            conv,
            algorithm=AttentionExplainer(),
            explanation_type="model",
            edge_mask_type="object",
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
        )
        assert attention(x.float(), given.edge_index, index=3).edge_mask.max() > 0


def test_every_parameter_learns():
    given = graph(0)
    for options in ({}, {"heads": 2}, {"scores": "shared"}, {"soft": False}, {"order": "edge"}):
        conv = layer(readout="ranks", edge_dim=3, **options)
        order = given.order if "order" in options else None
        given._replace(order=order).run(conv).sin().sum().backward()
        for name, parameter in conv.named_parameters():
            assert parameter.grad is not None, (options, name)
            assert parameter.grad.abs().max() > 0, (options, name)


def test_lazy_channels():
    given = graph(0)
    conv = Node2SeqConv(-1, 4, readout="ranks", edge_dim=-1, heads=2).double()
    out = given._replace(order=None).run(conv)
    assert out.shape == (30, 8)
    assert conv.lin_query is not None
    assert conv.lin_query.weight.shape == (16, 5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"soft": True}, "it is an option of ranks"),
        ({"scores": "own"}, "it is an option of ranks"),
        ({"temperature": 2.0}, "it is an option of ranks"),
        ({"heads": 2}, "it is an option of ranks"),
        ({"score_channels": 4}, "it is an option of ranks"),
        ({"readout": "ranks", "soft": True, "order": "degree"}, "this order has none"),
        ({"readout": "ranks", "soft": True, "order": "edge"}, "this order has none"),
        ({"readout": "ranks", "soft": False, "scores": "own"}, "would never learn"),
        ({"readout": "ranks", "soft": False, "temperature": 0.5}, "the same at every temperature"),
        ({"readout": "ranks", "heads": 2, "scores": "shared"}, "the same order"),
        ({"readout": "ranks", "heads": 0}, "at least one"),
        ({"readout": "ranks", "score_channels": 2.5}, "at least one"),
        ({"readout": "ranks", "temperature": 0.0}, "above 0"),
        ({"readout": "ranks", "temperature": float("nan")}, "above 0"),
        ({"readout": "ranks", "scores": "mine"}, "Choose one of 'own', 'shared'"),
        ({"self_position": "last"}, "use order='edge'"),
    ],
)
def test_options_that_make_no_sense(options, words):
    with pytest.raises(Node2SeqError, match=words):
        Node2SeqConv(5, 4, **options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda order: None, "no edge_order"),
        (lambda order: order[:-1], "edge_order has shape"),
        (lambda order: order[:, None], "edge_order has shape"),
        (lambda order: order.tolist(), "edge_order is a list"),
        (
            lambda order: order.double().index_fill(0, torch.tensor([3, 8]), torch.nan),
            r"edge_order\[3\] is NaN",
        ),
        (lambda order: order + 1j, "edges are sorted by it"),
    ],
)
def test_numbers_that_cannot_sort_the_edges(change, words):
    given = graph(0)
    conv = layer(order="edge")
    with pytest.raises(Node2SeqError, match=words):
        conv(given.x, given.edge_index, edge_order=change(given.order))


def test_an_order_for_a_layer_without():
    given = graph(0)._replace(weight=None, attr=None)
    with pytest.raises(Node2SeqError, match="make the layer with order='edge'"):
        given.run(layer())
    adjacency = to_torch_csr_tensor(given.edge_index.unique(dim=1), size=(30, 30))
    with pytest.raises(Node2SeqError, match="edge_order beside a sparse adjacency"):
        layer(order="edge")(given.x, adjacency, edge_order=given.order)


def test_infinite_numbers_go_first_and_last():
    edges = torch.tensor([[0, 1, 2], [3, 3, 3]])
    conv = layer(order="edge", self_position="none")
    order = torch.tensor([-torch.inf, 0.0, torch.inf])
    _, trace = conv(drawn(0, 4, 5), edges, edge_order=order, return_trace=True)
    assert trace.index.tolist() == [2, 1, 0]


def test_attention_weights_are_the_scores_in_their_order():
    given = graph(0)
    conv = layer(readout="ranks")
    _, trace, (edge_index, scores) = conv(
        given.x, given.edge_index, return_trace=True, return_attention_weights=True
    )
    assert torch.equal(scores, trace.scores)
    assert torch.equal(edge_index[0], trace.index)
    assert not scores.requires_grad
    first = trace.ptr[:-1]
    assert trace.ranks is not None
    share = trace.ranks[0]
    top = torch.stack([share[start:end].max() for start, end in zip(first, trace.ptr[1:], strict=True)])
    assert torch.equal(share[first], top)

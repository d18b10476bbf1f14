"""Our layers against those of PyTorch Geometric: same parameters, same outputs, same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.cheb import ChebConv
from node2seq.nn.conv.gat import GATConv
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.gin import GINConv, GINEConv
from node2seq.nn.conv.sage import SAGEConv
from node2seq.nn.conv.sg import SGConv
from node2seq.train.stacking import stack


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


PAIRS: dict[str, tuple[Callable[..., nn.Module], Callable[[], nn.Module]]] = {
    "gcn": (lambda **o: GCNConv(6, 4, **o), lambda: pyg.GCNConv(6, 4)),
    "gcn-bare": (
        lambda **o: GCNConv(6, 4, add_self_loops=False, bias=False, **o),
        lambda: pyg.GCNConv(6, 4, add_self_loops=False, bias=False),
    ),
    "gat": (lambda **o: GATConv(6, 4, 3, **o), lambda: pyg.GATConv(6, 4, 3)),
    "gat-mean": (lambda **o: GATConv(6, 4, 2, concat=False, **o), lambda: pyg.GATConv(6, 4, 2, concat=False)),
    "gat-bare": (
        lambda **o: GATConv(6, 4, 2, add_self_loops=False, bias=False, **o),
        lambda: pyg.GATConv(6, 4, 2, add_self_loops=False, bias=False),
    ),
    "cheby-1": (lambda **o: ChebConv(6, 4, 1, **o), lambda: pyg.ChebConv(6, 4, 1)),
    "cheby-2": (lambda **o: ChebConv(6, 4, 2, **o), lambda: pyg.ChebConv(6, 4, 2)),
    "cheby-3": (lambda **o: ChebConv(6, 4, 3, **o), lambda: pyg.ChebConv(6, 4, 3)),
    "cheby-5": (lambda **o: ChebConv(6, 4, 5, **o), lambda: pyg.ChebConv(6, 4, 5)),
    "sgc": (lambda **o: SGConv(6, 4, 3, **o), lambda: pyg.SGConv(6, 4, 3)),
    "sage": (lambda **o: SAGEConv(6, 4, **o), lambda: pyg.SAGEConv(6, 4)),
    "sage-bare": (
        lambda **o: SAGEConv(6, 4, root_weight=False, bias=False, **o),
        lambda: pyg.SAGEConv(6, 4, root_weight=False, bias=False),
    ),
    "gin": (lambda **o: GINConv(mlp(), train_eps=True, **o), lambda: pyg.GINConv(mlp(), train_eps=True)),
}


def graphs() -> dict[str, tuple[Tensor, int]]:
    generator = torch.Generator().manual_seed(0)
    directed = torch.randint(20, (2, 60), generator=generator)  # with duplicates and self loops
    assert (directed[0] == directed[1]).any()
    return {
        "directed, with loops and duplicates": (directed, 23),
        "undirected": (torch.cat([directed, directed.flip(0)], dim=1), 23),
        "no edges": (directed[:, :0], 5),
    }


@pytest.mark.parametrize("backend", ["eager", "reference"])
@pytest.mark.parametrize("shape", graphs())
@pytest.mark.parametrize("name", PAIRS)
def test_layers_equal_those_of_pyg(name: str, shape: str, backend: str) -> None:
    if name.startswith("cheby") and shape == "no edges":
        pytest.skip("PyG's layer takes the largest of no weights")
    edge_index, nodes = graphs()[shape]
    make_ours, make_theirs = PAIRS[name]
    ours, theirs = make_ours(backend=backend).double(), make_theirs().double()
    shapes = {key: p.shape for key, p in ours.named_parameters()}
    assert shapes == {key: p.shape for key, p in theirs.named_parameters()}
    theirs.load_state_dict({key: ours.state_dict()[key] for key in theirs.state_dict()})

    results: list[list[Any]] = []
    for layer in (ours, theirs):
        torch.manual_seed(1)
        x = torch.randn(nodes, 6, dtype=torch.float64, requires_grad=True)
        out = layer(x, edge_index)
        (out * torch.randn_like(out)).sum().backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in layer.parameters()]
        results.append([out, x.grad, *grads])
    for mine, pygs in zip(*results, strict=True):
        torch.testing.assert_close(mine, pygs, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("numba", ["with numba", "without numba"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", ["16 bits", "autocast"])
@pytest.mark.parametrize("name", PAIRS)
def test_low_precision_is_as_close_to_the_exact_result_as_pyg(
    name: str, way: str, dtype: torch.dtype, numba: str, request: pytest.FixtureRequest
) -> None:
    """Ours may be as far from the exact result as PyG's layer is, twice over, or a few roundings."""
    if numba == "without numba":
        request.getfixturevalue("without_numba")
    edge_index, nodes = graphs()["undirected"]
    make_ours, make_theirs = PAIRS[name]
    ours, theirs = make_ours().to(dtype).float(), make_theirs()
    theirs.load_state_dict({key: ours.state_dict()[key] for key in theirs.state_dict()})
    x = torch.randn(nodes, 6, generator=torch.Generator().manual_seed(1)).to(dtype).float()

    def results(layer: nn.Module, layer_dtype: torch.dtype) -> list[Tensor]:
        layer = layer.to(layer_dtype)
        layer.zero_grad()
        given = x.to(layer_dtype).requires_grad_()
        with torch.autocast("cpu", dtype=dtype, enabled=way == "autocast" and layer_dtype == torch.float32):
            out = layer(given, edge_index)
        out.float().sin().sum().backward()
        grads = [p.grad for p in (given, *layer.parameters())]
        assert all(grad is not None for grad in grads)
        return [out, *(grad for grad in grads if grad is not None)]

    exact = results(theirs, torch.float64)
    low = dtype if way == "16 bits" else torch.float32
    for mine, pygs, true in zip(results(ours, low), results(theirs, low), exact, strict=True):
        assert mine.dtype == pygs.dtype or way == "autocast"  # where single steps of PyG decide
        error, accepted = ((one.double() - true).abs().max() for one in (mine, pygs))
        assert error <= 2 * accepted + 8 * torch.finfo(dtype).eps * true.abs().max()


@pytest.mark.parametrize("name", ["gcn", "gat", "cheby-3", "sgc", "sage", "gin"])
def test_the_fused_path_sends_no_messages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a message was sent")

    layer = PAIRS[name][0]()
    edge_index = graphs()["undirected"][0]
    monkeypatch.setattr(layer, "propagate", refuse)
    layer(torch.randn(23, 6), edge_index)
    layer.register_message_forward_hook(lambda *_: None)  # pyright: ignore[reportCallIssue]
    with pytest.raises(AssertionError, match="a message was sent"):
        layer(torch.randn(23, 6), edge_index)


@pytest.mark.parametrize("name", ["gcn", "gat", "cheby-3", "sgc", "sage", "gin"])
def test_a_hook_does_not_change_the_output(name: str) -> None:
    layer = PAIRS[name][0]().double()
    edge_index = graphs()["undirected"][0]
    x = torch.randn(23, 6, dtype=torch.float64)
    fused = layer(x, edge_index)
    layer.register_message_forward_hook(lambda *_: None)  # pyright: ignore[reportCallIssue]
    torch.testing.assert_close(layer(x, edge_index), fused, atol=1e-10, rtol=1e-10)


def test_attention_dropout_goes_by_edge_not_by_batch() -> None:
    """Dropping whole attentions of a part of the graph drops the same ones as in the whole."""
    edge_index = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]])
    x = torch.randn(6, 6)
    torch.manual_seed(2)
    layer = GATConv(6, 4, 8, dropout=0.6)
    whole = layer(x, edge_index)
    layer.attention_dropout.step.zero_()
    part = layer(x[2:], edge_index[:, 2:] - 2, n_id=torch.arange(2, 6))
    torch.testing.assert_close(part, whole[2:])
    layer.attention_dropout.step.zero_()
    assert not torch.allclose(layer(x[2:], edge_index[:, 2:] - 2), whole[2:])


def test_the_share_of_dropped_attentions() -> None:
    layer = GATConv(1, 1, 8, dropout=0.6)
    nodes = 200
    edge_index = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
    source, target = edge_index
    sequences = ops.build_sequences(source, target, nodes, nodes, add_self_loops=False, merge_duplicates=True)
    kept = layer._drop(torch.ones(8, nodes * nodes), sequences, None) > 0
    assert abs(kept.double().mean().item() - 0.4) < 0.003
    assert (kept.double().mean(dim=1) - 0.4).abs().max() < 0.01


def test_a_layer_takes_every_argument_of_pygs_by_its_place_and_a_backend_by_name() -> None:
    layer = GCNConv(6, 4, False, True, backend="eager", flow="target_to_source")
    assert (layer.improved, layer.cached, layer.backend, layer.flow) == (
        False,
        True,
        "eager",
        "target_to_source",
    )
    with pytest.raises(Node2SeqError, match="backend='fast'"):
        GCNConv(6, 4, backend="fast")


def test_a_derived_layer_can_be_explained() -> None:
    """What PyG generates for the first of two classes must not pass for the original of the second."""

    class Derived(GCNConv):
        pass

    GCNConv(6, 4)
    layer = Derived(6, 4)
    assert vars(type(layer))["_orig_propagate"] is pyg.MessagePassing.propagate


def gine(cls: Any, **options: Any) -> nn.Module:
    return cls(mlp(), train_eps=True, edge_dim=3, **options)


WEIGHTED: dict[str, tuple[Callable[..., nn.Module], Callable[[], nn.Module]]] = {
    "gcn": (lambda **o: GCNConv(6, 4, **o), lambda: pyg.GCNConv(6, 4)),
    "gcn-bare": (
        lambda **o: GCNConv(6, 4, add_self_loops=False, bias=False, **o),
        lambda: pyg.GCNConv(6, 4, add_self_loops=False, bias=False),
    ),
    "gcn-reversed": (
        lambda **o: GCNConv(6, 4, flow="target_to_source", **o),
        lambda: pyg.GCNConv(6, 4, flow="target_to_source"),
    ),
    "sgc": (lambda **o: SGConv(6, 4, 3, **o), lambda: pyg.SGConv(6, 4, 3)),
    "cheby-1": (lambda **o: ChebConv(6, 4, 1, **o), lambda: pyg.ChebConv(6, 4, 1)),
    "cheby-2": (lambda **o: ChebConv(6, 4, 2, **o), lambda: pyg.ChebConv(6, 4, 2)),
    "cheby-4": (lambda **o: ChebConv(6, 4, 4, **o), lambda: pyg.ChebConv(6, 4, 4)),
    "cheby-reversed": (
        lambda **o: ChebConv(6, 4, 3, flow="target_to_source", **o),
        lambda: pyg.ChebConv(6, 4, 3, flow="target_to_source"),
    ),
}
WITH_ATTRIBUTES: dict[str, tuple[Callable[..., nn.Module], Callable[[], nn.Module]]] = {
    "gat": (lambda **o: GATConv(6, 4, 3, edge_dim=3, **o), lambda: pyg.GATConv(6, 4, 3, edge_dim=3)),
    "gat-mean": (
        lambda **o: GATConv(6, 4, 2, concat=False, edge_dim=3, **o),
        lambda: pyg.GATConv(6, 4, 2, concat=False, edge_dim=3),
    ),
    "gat-bare": (
        lambda **o: GATConv(6, 4, 2, add_self_loops=False, bias=False, edge_dim=3, **o),
        lambda: pyg.GATConv(6, 4, 2, add_self_loops=False, bias=False, edge_dim=3),
    ),
    "gat-filled": (
        lambda **o: GATConv(6, 4, 2, edge_dim=3, fill_value=0.5, **o),
        lambda: pyg.GATConv(6, 4, 2, edge_dim=3, fill_value=0.5),
    ),
    "gat-reversed": (
        lambda **o: GATConv(6, 4, 2, edge_dim=3, flow="target_to_source", **o),
        lambda: pyg.GATConv(6, 4, 2, edge_dim=3, flow="target_to_source"),
    ),
    "gine": (lambda **o: gine(GINEConv, **o), lambda: gine(pyg.GINEConv)),
}


def edge_values(name: str, edges: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    if name in WEIGHTED:
        return torch.rand(edges, dtype=torch.float64, generator=generator)
    return torch.randn(edges, 3, dtype=torch.float64, generator=generator)


def assert_equals_pyg(
    ours: nn.Module, theirs: nn.Module, edge_index: Tensor, nodes: int, given: Tensor
) -> None:
    shapes = {key: p.shape for key, p in ours.named_parameters()}
    assert shapes == {key: p.shape for key, p in theirs.named_parameters()}
    theirs.load_state_dict({key: ours.state_dict()[key] for key in theirs.state_dict()})
    results: list[list[Tensor]] = []
    for layer in (ours, theirs):
        torch.manual_seed(1)
        x = torch.randn(nodes, 6, dtype=torch.float64, requires_grad=True)
        values = given.clone().requires_grad_()
        out = layer(x, edge_index, values)
        wanted = [x, values, *layer.parameters()]
        loss = (out * torch.randn_like(out)).sum()
        grads = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        results.append([out, *grads])
    for found, expected in zip(*results, strict=True):
        assert torch.allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", ["eager", "reference", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", graphs())
@pytest.mark.parametrize("name", [*WEIGHTED, *WITH_ATTRIBUTES])
def test_layers_with_edge_values_equal_those_of_pyg(name: str, shape: str, backend: str) -> None:
    """Outputs and all gradients, those of the edges' values among them; duplicates and loops too."""
    if name.startswith("cheby") and shape == "no edges":
        pytest.skip("PyG's layer takes the largest of no weights")
    edge_index, nodes = graphs()[shape]
    if name in ("gcn", "gcn-reversed", "sgc"):  # PyG gives a gradient to self loops that it left out
        is_loop = edge_index[0] == edge_index[1]
        edge_index = torch.cat([edge_index[:, ~is_loop], edge_index[:, is_loop].unique(dim=1)], dim=1)
    make_ours, make_theirs = (WEIGHTED | WITH_ATTRIBUTES)[name]
    ours, theirs = make_ours(backend=backend).double(), make_theirs().double()
    assert_equals_pyg(ours, theirs, edge_index, nodes, edge_values(name, edge_index.size(1)))


@pytest.mark.parametrize("name", ["gcn", "gcn-reversed", "sgc"])
def test_of_several_self_loops_the_last_one_counts(name: str) -> None:
    edge_index, nodes = graphs()["undirected"]
    loops = torch.arange(nodes).repeat(2, 3)
    edge_index = torch.cat([loops, edge_index, loops], dim=1)
    ours, theirs = (make().double() for make in WEIGHTED[name])
    theirs.load_state_dict(ours.state_dict())
    weight = edge_values(name, edge_index.size(1)).requires_grad_()
    x = torch.randn(nodes, 6).double()
    out = ours(x, edge_index, weight)
    assert torch.allclose(out, theirs(x, edge_index, weight), rtol=0, atol=1e-12)
    (grad,) = torch.autograd.grad(out.sum(), weight)
    is_loop = edge_index[0] == edge_index[1]
    assert grad[is_loop][:-nodes].eq(0).all()
    assert grad[-nodes:][:20].ne(0).all()  # the others have no other edges


def test_the_largest_eigenvalue_follows_negative_weights() -> None:
    """A large negative weight between nodes of large degree: λ is no longer 2."""
    edge_index = torch.tensor([[0, 0, 1, 1, 2, 3], [1, 2, 0, 3, 0, 1]])
    weight = torch.tensor([-2.0, 3.0, -2.0, 3.0, 3.0, 3.0], dtype=torch.float64)
    ours, theirs = ChebConv(6, 4, 3).double(), pyg.ChebConv(6, 4, 3).double()
    assert float(theirs.__norm__(edge_index, 4, weight, "sym")[1][-1]) == -0.5  # 2 / λ − 1
    assert_equals_pyg(ours, theirs, edge_index, 4, weight)


@pytest.mark.parametrize("name", [*WEIGHTED, *WITH_ATTRIBUTES])
def test_edge_values_take_the_planned_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG's own way is left to what the layers say it is for."""
    edge_index, nodes = graphs()["undirected"]
    layer = (WEIGHTED | WITH_ATTRIBUTES)[name][0]().double()
    x, values = torch.randn(nodes, 6).double(), edge_values(name, edge_index.size(1))

    def send(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("single messages")

    for step in ("propagate", "edge_updater"):
        monkeypatch.setattr(layer, step, send)
    if name in ("cheby-reversed", "gat-filled", "gat-reversed"):
        with pytest.raises(RuntimeError, match="single messages"):
            layer(x, edge_index, values)
    else:
        layer(x, edge_index, values)


@pytest.mark.parametrize("name", [name for name in (*WEIGHTED, *WITH_ATTRIBUTES) if "-" not in name])
def test_several_runs_share_the_edges_values(name: str) -> None:
    edge_index, nodes = graphs()["undirected"]
    values = edge_values(name, edge_index.size(1))
    layers = [(WEIGHTED | WITH_ATTRIBUTES)[name][0]().double() for _ in range(3)]
    x = torch.randn(3, nodes, 6).double()
    together = stack(layers)(x, edge_index, values)
    for run, layer, out in zip(x, layers, together, strict=True):
        assert torch.allclose(layer(run, edge_index, values), out, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcn", "sgc", "cheby-2", "gat", "gine"])
def test_compiled_layers_with_edge_values(name: str) -> None:
    torch._dynamo.reset()
    edge_index, nodes = graphs()["directed, with loops and duplicates"]
    layer = (WEIGHTED | WITH_ATTRIBUTES)[name][0]().double()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    results = []
    for call in (layer, compiled):
        torch.manual_seed(1)
        x = torch.randn(nodes, 6, dtype=torch.float64, requires_grad=True)
        values = edge_values(name, edge_index.size(1)).requires_grad_()
        out = call(x, edge_index, values)
        wanted = [x, values, *layer.parameters()]
        grads = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True, materialize_grads=True)
        results.append([out, *grads])
    for found, expected in zip(*results, strict=True):
        assert torch.allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["gcn", "sgc", "cheby-2", "gat", "gine"])
def test_edge_values_of_other_edges(name: str) -> None:
    edge_index, nodes = graphs()["undirected"]
    layer = (WEIGHTED | WITH_ATTRIBUTES)[name][0]().double()
    with pytest.raises(Node2SeqError, match="there are 120 edges"):
        layer(torch.randn(nodes, 6).double(), edge_index, edge_values(name, 119))

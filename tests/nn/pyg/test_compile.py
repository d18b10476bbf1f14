"""torch.compile(fullgraph=True, dynamic=True): one graph for all sizes, equal to eager in both directions."""

import copy
import shutil

import pytest
import torch
from pyg_cases import EDGES, features, gradients, layer, random_graph
from rounding import assert_same_up_to_rounding
from torch._dynamo.testing import CompileCounterWithBackend
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from node2seq import ops
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.models import MODELS, Node2Seq
from node2seq.ops import autograd_record
from node2seq.ops import compiled as compiled_ops
from node2seq.ops.autograd_record import Record
from node2seq.ops.compiled import Call
from node2seq.ops.plan_cache import GraphNumbers
from node2seq.train.stacking import stack

slow = pytest.mark.slow
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))),
    reason="Inductor needs a C++ compiler, and there is none",
)
# Two sizes, both with duplicate edges, self loops and nodes without edges.
GRAPHS = [(features(), EDGES), random_graph(13, 60, seed=3)]


@pytest.fixture(autouse=True)
def _forget_compiled_code():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize(
    "readout", ["max", pytest.param("mean", marks=slow), pytest.param("ranks", marks=slow)]
)
def test_single_messages_and_traces_of_several_graphs_with_duplicates(readout):
    """What duplicates leave over in one graph stands before the next graph."""
    x, edges = random_graph(12, 60)
    x, edges = torch.stack([x, 2 * x, -x]), torch.cat([edges, edges[:, :30]], dim=1)
    conv = layer(readout=readout)
    conv.register_message_forward_hook(lambda _module, _inputs, out: out)
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    out, trace = compiled(x, edges, return_trace=True)
    expected, wanted = conv(x, edges, return_trace=True)
    assert_same_up_to_rounding(out, expected)
    assert torch.equal(trace.ptr, wanted.ptr)
    entries = int(trace.ptr[-1])
    assert torch.equal(trace.index[:entries], wanted.index)
    assert_same_up_to_rounding(trace.scores[:entries], wanted.scores)


def _compile(module: torch.nn.Module, backend: str):
    counter = CompileCounterWithBackend(backend)
    return torch.compile(module, fullgraph=True, dynamic=True, backend=counter), counter


def _assert_compiles(module: torch.nn.Module, backend: str) -> None:
    eager = copy.deepcopy(module)
    compiled, counter = _compile(module, backend)
    frames = []
    for x, edges in GRAPHS:
        x_compiled, x_eager = x.clone().requires_grad_(), x.clone().requires_grad_()
        out, expected = compiled(x_compiled, edges), eager(x_eager, edges)
        assert_same_up_to_rounding(out, expected)
        found, wanted = gradients(module, out), gradients(eager, expected)
        # Back through three layers, terms that nearly cancel leave their roundings: 7 were seen.
        assert_same_up_to_rounding(found, wanted, roundings=32)
        assert_same_up_to_rounding(x_compiled.grad, x_eager.grad, roundings=32)
        frames.append(counter.frame_count)
    assert frames[0] == frames[1]  # the second size found the code of the first


LAYERS = {
    "max": lambda: layer(),
    "mean": lambda: layer(readout="mean"),
    "sum": lambda: layer(readout="sum", kernel_size=5),
    "two hops": lambda: layer(hops=2, threshold=0.5),
    "local first": lambda: layer(hops=3, threshold=0.5, nonlocal_order="local-first", add_self_loops=False),
    "drawn candidates": lambda: layer(hops=2, threshold=0.5, max_candidates=3),
    "by degree": lambda: layer(order="degree"),
    "ranks": lambda: layer(readout="ranks", heads=2, hops=2, threshold=0.5),
    "hard ranks": lambda: stack([layer(readout="ranks", soft=False, seed=seed) for seed in (1, 2)]),
    "at random": lambda: layer(order="random"),
    "other way": lambda: layer(flow="target_to_source"),
    "depthwise, input": lambda: layer(taps="depthwise", root="input"),
    "no own features": lambda: layer(root="none", readout="mean"),
    "native": lambda: layer(backend="native"),
    "gcn": lambda: GCNConv(5, 4),
    "stack": lambda: stack([layer(seed=seed) for seed in (1, 2)]),
    "stack of hops": lambda: stack([layer(hops=2, threshold=limit, order="random") for limit in (0.2, 0.5)]),
}


@pytest.mark.parametrize(
    "name", [name if name == "max" else pytest.param(name, marks=slow) for name in LAYERS]
)
def test_layers(name):
    if name == "native":
        pytest.importorskip("numba")
    torch.manual_seed(0)
    _assert_compiles(LAYERS[name](), "aot_eager")


@slow
@needs_compiler
@pytest.mark.parametrize("name", ["max", "two hops"])
def test_layers_with_generated_code(name):
    torch.manual_seed(0)
    _assert_compiles(LAYERS[name](), "inductor")


@slow
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=needs_compiler)])
def test_the_network_while_training(backend):
    """Elements that are dropped in the forward pass are those that are dropped in the backward pass."""
    torch.manual_seed(0)
    model = Node2Seq(5, 4, 3, readout="sum")
    _assert_compiles(model, backend)
    assert [int(dropout.step) for dropout in model.dropouts] == [2, 2, 2]  # pyright: ignore[reportArgumentType]


@slow
@needs_compiler
def test_odd_channels_with_generated_code(monkeypatch):
    """Gradients that are slices of one tensor, as some are on a GPU, leave the op as tensors of their own."""
    original = Record.gradients

    def slices(*args):
        found = original(*args)
        parts = torch.cat([tensor.flatten() for tensor in found]).split([tensor.numel() for tensor in found])
        return [part.view_as(tensor) for part, tensor in zip(parts, found, strict=True)]

    monkeypatch.setattr(Record, "gradients", slices)
    torch.manual_seed(0)
    _assert_compiles(Node2Seq(5, 7, 3), "inductor")


@slow
@pytest.mark.parametrize("name", sorted({*MODELS} - {"mlp", "residual-gcn"}))
def test_the_networks_while_training(name):
    torch.manual_seed(0)
    # Residual blocks are all alike: one is compiled in a fraction of the time.
    options = {"num_layers": 1} if name.startswith("residual-") else {}
    _assert_compiles(MODELS[name](5, 4, 3, **options), "aot_eager")


@slow
@pytest.mark.parametrize(
    "options", [{}, {"hops": 2, "threshold": 0.5}, {"order": "degree"}, {"readout": "ranks"}], ids=str
)
def test_the_trace_of_a_compiled_layer_is_the_same(options):
    conv = layer(**options)
    compiled, _ = _compile(conv, "aot_eager")
    for x, edges in GRAPHS:
        _, trace = conv(x, edges, return_trace=True)
        _, found = compiled(x, edges, return_trace=True)
        entries = int(found.ptr[-1])  # merged duplicates leave unused entries behind the last row
        assert torch.equal(found.ptr, trace.ptr)
        assert torch.equal(found.index[:entries], trace.index)
        assert_same_up_to_rounding(found.scores[:entries], trace.scores)
        assert torch.equal(found.is_nonlocal[:entries], trace.is_nonlocal)
        if conv.readout == "ranks":
            assert_same_up_to_rounding(found.ranks[:, :entries], trace.ranks)
        else:
            assert torch.equal(found.winner, trace.winner)


EDGE_LAYERS = {
    "both": lambda: layer(edge_dim=3),
    "weights": lambda: layer(readout="sum"),
    "two hops": lambda: layer(edge_dim=3, hops=2, threshold=0.5, readout="mean"),
    "other way": lambda: layer(edge_dim=3, flow="target_to_source", order="degree"),
    "no self entries": lambda: layer(edge_dim=3, add_self_loops=False),
    "stack of ranks": lambda: stack([layer(edge_dim=3, readout="ranks", seed=seed) for seed in (1, 2)]),
    "ranks of hops": lambda: layer(edge_dim=3, readout="ranks", hops=2, threshold=0.5),
    "native": lambda: layer(edge_dim=3, backend="native"),
    "stack": lambda: stack([layer(edge_dim=3, seed=seed) for seed in (1, 2)]),
    "stack of hops": lambda: stack([layer(edge_dim=3, hops=2, threshold=limit) for limit in (0.2, 0.5)]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "both" else pytest.param(name, marks=slow) for name in EDGE_LAYERS]
)
def test_edges_that_carry_something(name):
    """One graph for all sizes, with the gradients of what edges carry and with the trace."""
    if name == "native":
        pytest.importorskip("numba")
    conv = EDGE_LAYERS[name]()
    compiled, counter = _compile(conv, "aot_eager")
    traced, _ = _compile(conv, "aot_eager")
    frames = []
    for x, edges in GRAPHS:
        given = [x, features(edges.size(1), 1, seed=1)[:, 0], features(edges.size(1), 3, seed=2)]
        given = [tensor.clone().requires_grad_() for tensor in given[: 2 if name == "weights" else 3]]
        results = []
        for module in (conv, compiled):
            out = module(given[0], edges, *given[1:])
            loss = (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum()
            results.append([out, *torch.autograd.grad(loss, [*given, *conv.parameters()])])
        assert_same_up_to_rounding(results[1], results[0], roundings=32)
        frames.append(counter.frame_count)
        if "stack" not in name:
            _, trace = conv(given[0], edges, *given[1:], return_trace=True)
            _, found = traced(given[0], edges, *given[1:], return_trace=True)
            entries = int(found.ptr[-1])
            assert torch.equal(found.index[:entries], trace.index)
            assert torch.equal(found.edge[:entries], trace.edge)
    assert frames[0] == frames[1]  # the second size found the code of the first


@slow
def test_a_bipartite_graph():
    conv = layer((5, 3))
    compiled, counter = _compile(conv, "aot_eager")
    for sources, targets, count in ((9, 6, 30), (7, 11, 50)):
        generator = torch.Generator().manual_seed(0)
        edges = torch.stack(
            [
                torch.randint(sources, (count,), generator=generator),
                torch.randint(targets, (count,), generator=generator),
            ]
        )
        x = (features(sources), features(targets, 3, seed=1))
        assert_same_up_to_rounding(compiled(x, edges), conv(x, edges))
    assert counter.frame_count == 1


@slow
@pytest.mark.parametrize(
    "options", [{}, {"hops": 2, "threshold": 0.5}, {"order": "random", "root": "none"}], ids=str
)
def test_several_graphs_with_the_same_edges(options):
    conv = layer(**options)
    compiled, _ = _compile(conv, "aot_eager")
    for (x, edges), graphs in zip(GRAPHS, (3, 4), strict=True):
        x = torch.stack([x * (1 + number) for number in range(graphs)])
        out, expected = compiled(x, edges), conv(x, edges)
        assert_same_up_to_rounding(out, expected)
        assert_same_up_to_rounding(gradients(conv, out), gradients(conv, expected), roundings=32)


@slow
def test_targets_without_features():
    conv = layer(order="degree", root="none", add_self_loops=False)
    compiled, _ = _compile(conv, "aot_eager")
    for x, edges in GRAPHS:
        size = (len(x), len(x) + 2)
        assert_same_up_to_rounding(compiled((x, None), edges, size=size), conv((x, None), edges, size=size))


@slow
def test_a_subclass_with_messages_of_its_own():
    class Half(Node2SeqConv):
        def message(self, x_j, alpha, edge_weight, edge_attr):
            return 0.5 * super().message(x_j, alpha, edge_weight, edge_attr)

    torch.manual_seed(0)
    _assert_compiles(Half(5, 4), "aot_eager")


@pytest.mark.parametrize("readout", ["max", "sum"])
def test_whole_numbers_give_the_same_bits(readout):
    """However matrices are multiplied, these products are exact."""
    conv, (x, edges) = layer(readout=readout), random_graph(20, 60)
    x = (4 * x).round().requires_grad_()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    weight = torch.randint(-2, 3, (20, 4))
    compiled, _ = _compile(conv, "aot_eager")
    expected, found = (
        [out, *torch.autograd.grad((out * weight).sum(), [x, *conv.parameters()])]
        for out in (conv(x, edges), compiled(x, edges))
    )
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def _no_plain_twin(monkeypatch):
    def fail(*_):
        raise AssertionError("the plain twin ran")

    for name in ("score", "precedence", "rank", "convolve_max", "convolve_sum", "aggregate"):
        monkeypatch.setattr(ops.reference, name, fail)


@slow
def test_one_plan_for_all_steps_and_no_plain_twin(monkeypatch):
    _no_plain_twin(monkeypatch)
    x, edges = random_graph(20, 60)
    model = Node2Seq(5, 4, 3)
    compiled, _ = _compile(model, "aot_eager")
    before = ops.PLANS.built
    for _ in range(3):
        gradients(model, compiled(x, edges))
    assert ops.PLANS.built == before + 2  # GCN layers count duplicate edges
    model(x, edges)
    assert ops.PLANS.built == before + 2  # eager mode finds the same


def test_a_change_in_place_is_noticed():
    conv, edges = layer(), EDGES.clone()
    compiled, _ = _compile(conv, "aot_eager")
    before = compiled(features(), edges)
    edges[0, 0] = 5  # 1 → 0 becomes 5 → 0, which there is already
    after = compiled(features(), edges)
    assert_same_up_to_rounding(after, conv(features(), edges.clone()))
    assert not torch.allclose(after[0], before[0])


@pytest.mark.parametrize("form", [to_torch_coo_tensor, to_torch_csr_tensor, to_torch_csc_tensor])
@pytest.mark.parametrize("options", [{}, {"readout": "mean", "hops": 2}])
def test_a_sparse_adjacency(form, options):
    """PyTorch cannot compile what takes sparse tensors: the layer runs as it does in eager mode."""
    conv = layer(**options)
    adj_t = form(EDGES.unique(dim=1).flip(0), size=(9, 9))
    compiled = torch.compile(conv, backend="aot_eager")
    before = ops.PLANS.built
    for _ in range(2):
        x, x_compiled = features().requires_grad_(), features().requires_grad_()
        expected, out = conv(x, adj_t), compiled(x_compiled, adj_t)
        assert torch.equal(out, expected)
        wanted, found = gradients(conv, expected), gradients(conv, out)
        torch.testing.assert_close((found, x_compiled.grad), (wanted, x.grad), rtol=0, atol=0)
    assert ops.PLANS.built == before + 1  # one plan for all


class _Sized(torch.nn.Module):
    """A layer that is told how many nodes there are."""

    def __init__(self):
        super().__init__()
        self.conv = layer()

    def forward(self, x, edges):
        return self.conv(x, edges, size=(x.size(0), None))


@pytest.mark.slow
def test_a_size_that_is_traced():
    _assert_compiles(_Sized(), "aot_eager")
    nodes = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(_Sized(), (features(), EDGES), dynamic_shapes=(nodes, None), strict=False)
    x = torch.cat([features(), features(2, seed=1)])
    assert_same_up_to_rounding(program.module()(x, EDGES), layer()(x, EDGES))


def _count(monkeypatch, owner, name) -> list:
    calls, original = [], getattr(owner, name)

    def counted(*args):
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_the_backward_pass_finds_what_the_forward_pass_recorded(monkeypatch):
    conv = layer()
    compiled, _ = _compile(conv, "aot_eager")
    made = _count(monkeypatch, Record, "__init__")
    runs, padded = _count(monkeypatch, Call, "convolve"), _count(monkeypatch, GraphNumbers, "pad")
    out = compiled(features(), EDGES)
    assert len(autograd_record._records) == 1
    expected = gradients(conv, out)
    assert (len(made), len(runs), len(padded)) == (1, 1, 0)  # nobody asked for the winners or the order
    assert not autograd_record._records
    out = compiled(features(), EDGES)
    autograd_record._records.clear()
    torch.testing.assert_close(gradients(conv, out), expected)  # recorded anew
    assert len(made) == 3
    out = compiled(features(), EDGES)
    assert len(autograd_record._records) == 1
    del out
    assert not autograd_record._records
    with torch.no_grad():
        compiled(features(), EDGES)
    assert len(made) == 4


def _call(function, edges, nodes, *given):
    """An op's arguments on a graph with self entries, duplicates counted."""
    wants = [tensor.requires_grad for tensor in given]
    return Call(function, "auto", [1, nodes, nodes, 1, 0, 1], edges, list(given), wants, 2.0, readout="max")


def test_a_record_does_not_read_what_it_was_given():
    """Compiled code writes to that memory again, and hands the values over once more."""
    x, edges = random_graph(20, 60)
    for function, second in (("convolve", torch.randn(3, 5, 4)), ("aggregate", torch.randn(80))):
        untouched, given = (x.clone(), second.clone()), (x.clone(), second.clone())
        call = _call(function, edges, 20, *given)
        expected, record = (Record(call.run, both, (True, True)) for both in (untouched, given))
        values = [tensor.clone() for tensor in given]
        for tensor in given:
            tensor.fill_(torch.nan)
        grad = torch.randn_like(record.out)
        found, wanted = record.gradients(values, grad), expected.gradients(untouched, grad)
        torch.testing.assert_close(found, wanted)


OPS = {
    "convolve": [(20, 5), (3, 5, 4)],
    "convolve with own": [(20, 5), (3, 5, 4), (4, 5), (4,)],
    "aggregate": [(20, 5), (80,)],
    "attention": [(20,), (20,)],
    "largest": [(20, 5), (80,)],
}


@slow
@pytest.mark.parametrize("name", OPS)
def test_ops_keep_the_rules_of_pytorch(name):
    _, edges = random_graph(20, 60)
    given = [torch.randn(shape, requires_grad=True) for shape in OPS[name]]
    if name == "largest":
        given[1].requires_grad_(False)
    torch.library.opcheck(compiled_ops._forward, tuple(_call(name.split()[0], edges, 20, *given)))


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=slow)])
def test_exported_programs_take_the_plain_way(strict):
    program = torch.export.export(layer(), (features(), EDGES), strict=strict)
    assert not [node for node in program.graph.nodes if "node2seq" in str(node.target)]


def test_values_are_not_looked_at_while_compiling():
    """The same call raises in eager; compiled, it neither raises nor breaks the graph."""
    conv = layer(validate=True)
    x = features()
    x[8] = torch.nan  # an isolated node: nobody else's output is touched
    compiled, counter = _compile(conv, "aot_eager")
    out = compiled(x, EDGES)
    assert counter.frame_count == 1
    assert out.isnan().any(1).tolist() == [False] * 8 + [True]
    with pytest.raises(ValueError, match=r"x\[8, 0\] is nan"):
        conv(x, EDGES)


def test_values_are_not_looked_at_while_exporting():
    conv = layer(validate=True)
    program = torch.export.export(conv, (features(), EDGES))
    x = torch.full((9, 5), torch.nan)
    assert bool(program.module()(x, EDGES).isnan().all())


def test_values_are_not_looked_at_while_capturing(monkeypatch):
    conv, edges = layer(validate=True), EDGES.clone()
    conv(features(), edges)  # the warm-up builds the plan
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    x = torch.full((9, 5), torch.nan)
    assert bool(conv(x, edges).isnan().all())

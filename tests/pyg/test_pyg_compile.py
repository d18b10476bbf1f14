"""torch.compile(fullgraph=True, dynamic=True): one graph for all sizes, equal to eager in both directions."""

import copy
import shutil

import pytest
import torch
from pyg_cases import EDGES, features, gradients, layer, random_graph
from torch._dynamo.testing import CompileCounterWithBackend

from node2seq.conv import Node2SeqConv
from node2seq.gcn import GCNConv
from node2seq.models import Node2Seq

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
        torch.testing.assert_close(out, expected, rtol=0, atol=2e-6)
        found, wanted = gradients(module, out), gradients(eager, expected)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(x_compiled.grad, x_eager.grad, rtol=1e-5, atol=1e-5)
        frames.append(counter.frame_count)
    assert frames[0] == frames[1]  # the second size found the code of the first


LAYERS = {
    "max": lambda: layer(),
    "mean": lambda: layer(readout="mean"),
    "sum": lambda: layer(readout="sum", kernel_size=5),
    "two hops": lambda: layer(hops=2, threshold=0.5),
    "local first": lambda: layer(hops=3, threshold=0.5, nonlocal_order="local-first", add_self_loops=False),
    "by degree": lambda: layer(order="degree"),
    "at random": lambda: layer(order="random"),
    "gcn": lambda: GCNConv(5, 4),
}


@pytest.mark.parametrize(
    "name", [name if name == "max" else pytest.param(name, marks=slow) for name in LAYERS]
)
def test_layers(name):
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
def test_the_trace_of_a_compiled_layer_is_the_same():
    conv = layer()
    compiled, _ = _compile(conv, "aot_eager")
    for x, edges in GRAPHS:
        _, trace = conv(x, edges, return_trace=True)
        _, found = compiled(x, edges, return_trace=True)
        entries = int(found.ptr[-1])  # merged duplicates leave unused entries behind the last row
        assert torch.equal(found.ptr, trace.ptr)
        assert torch.equal(found.index[:entries], trace.index)
        assert torch.equal(found.winner, trace.winner)


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
        torch.testing.assert_close(compiled(x, edges), conv(x, edges), rtol=0, atol=2e-6)
    assert counter.frame_count <= 2  # min(sources, targets) is another number in each


@slow
def test_a_subclass_with_messages_of_its_own():
    class Half(Node2SeqConv):
        def message(self, x_j, alpha):
            return 0.5 * x_j

    torch.manual_seed(0)
    _assert_compiles(Half(5, 4), "aot_eager")


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

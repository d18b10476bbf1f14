"""The GPU backend as a whole: layers, compiled layers, empty graphs, the choice of a backend."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from kernel_cases import DEVICE, integers
from torch import Tensor

from node2seq import Node2SeqConv, Node2SeqError, ops
from node2seq.nn.conv.lgcl import LGCL
from node2seq.ops import triton as fused
from node2seq.ops.triton.launch import LAUNCHES


@pytest.mark.parametrize(("lengths", "num_sources"), [([], 0), ([], 3), ([0, 0], 3), ([0], 0)])
def test_empty_graphs(lengths: list[int], num_sources: int):
    rows = ops.Rows.from_lengths(torch.tensor(lengths, dtype=torch.int64, device=DEVICE))
    sequences = ops.Sequences(rows, rows.ptr.new_zeros(0), num_sources)
    for readout in ("max", "sum"):
        x = torch.ones(num_sources, 2, device=DEVICE, requires_grad=True)
        weight = torch.ones(3, 2, 2, device=DEVICE, requires_grad=True)
        out = getattr(fused, f"convolve_{readout}")(x, weight, sequences)
        out = out[0] if readout == "max" else out
        assert torch.equal(out, torch.zeros(len(lengths), 2, device=DEVICE))
        for grad in torch.autograd.grad(out.sum(), [x, weight]):
            assert grad.eq(0).all()
    ranking = fused.score_and_rank(torch.ones(len(lengths), 2, device=DEVICE), x.detach(), sequences)
    assert [values.numel() for values in ranking] == [0, 0, 0]


def _layer_step(backend: str, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    """The output, the trace and every gradient of a layer on whole numbers, where all backends agree."""
    torch.manual_seed(3)
    edge_index = torch.randint(0, 40, (2, 300))
    edge_index[1, :80] = 7  # a hub
    conv = Node2SeqConv(4, 4, backend=backend, **options)
    for parameter in conv.parameters():
        parameter.data = torch.randint(-2, 3, parameter.shape).float()
    conv = conv.to(DEVICE, dtype)
    x = torch.randint(-2, 3, (40, 4)).to(DEVICE, dtype).requires_grad_()
    carried = []
    if conv.edge_dim is not None:
        carried = [torch.randint(-2, 3, shape) for shape in ((300,), (300, conv.edge_dim))]
        carried = [values.to(DEVICE, dtype).requires_grad_() for values in carried]
    out, trace = conv(x, edge_index.to(DEVICE), *carried, return_trace=True)
    direction = torch.randint(-2, 3, out.shape).to(DEVICE, dtype)
    grads = torch.autograd.grad((out * direction).sum(), [x, *carried, *conv.parameters()])
    return [out, *grads, *(value for value in trace if value is not None)]


@pytest.mark.parametrize(
    "options",
    [
        {"readout": "max"},
        {"readout": "sum", "kernel_size": 4},
        {"readout": "max", "hops": 2},
        {"readout": "sum", "hops": 2, "nonlocal_order": "local-first"},
        {"readout": "max", "order": "degree"},
        {"readout": "max", "edge_dim": 2},
        {"readout": "sum", "edge_dim": 2, "order": "degree"},
        {"readout": "sum", "edge_dim": 1, "hops": 2},
        {"readout": "max", "edge_dim": 1, "hops": 2, "nonlocal_order": "local-first"},
    ],
    ids=str,
)
def test_a_layer_equals_the_reference(options: dict[str, Any]):
    """Every output, trace and gradient, local and non-local, in every order."""
    found = _layer_step("triton", torch.float32, **options)
    truth = _layer_step("reference", torch.float64, **options)
    for place, (a, b) in enumerate(zip(found, truth, strict=True)):
        assert torch.equal(a.double(), b.double()), f"value {place} differs"


@pytest.mark.parametrize("readout", ["max", "sum"])
def test_a_compiled_layer_runs_the_same_kernels(readout: str):
    """It gives the same bits in both directions."""
    torch._dynamo.reset()
    edge_index = torch.randint(0, 16, (2, 60), device=DEVICE)
    x = integers(16, 4, dtype=torch.float32).requires_grad_()
    conv = Node2SeqConv(4, 4, readout=readout, backend="triton").to(DEVICE)
    for parameter in conv.parameters():
        parameter.data = integers(*parameter.shape, dtype=torch.float32)
    found = []
    # The first one builds the plan.
    for call in (conv, conv, torch.compile(conv, fullgraph=True, backend="aot_eager")):
        LAUNCHES.clear()
        out = call(x, edge_index)
        grads = torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])
        found.append((dict(LAUNCHES), [out, *grads]))
    _, (launches, expected), (compiled_launches, values) = found
    assert compiled_launches == launches
    assert all(torch.equal(a, b) for a, b in zip(values, expected, strict=True))


def test_float64_takes_another_backend():
    """Asked for where it cannot run: an error."""
    double = torch.ones(2, 2, dtype=torch.float64, device=DEVICE)
    assert ops.choose_backend("auto", double) is not fused
    with pytest.raises(Node2SeqError, match="float32"):
        ops.choose_backend("triton", double)
    assert ops.choose_backend("triton", double.float()) is fused
    assert (ops.choose_backend("auto", double.float()) is fused) == (DEVICE == "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "layer",
    [
        partial(Node2SeqConv, 32, 32, readout="max"),
        partial(Node2SeqConv, 32, 32, readout="mean"),
        partial(LGCL, 32, 8),
    ],
    ids=["max", "mean", "LGCL"],
)
def test_a_captured_step_replays_the_same_bits(layer: Callable[[], torch.nn.Module]):
    edge_index = torch.randint(0, 500, (2, 9000), device=DEVICE)
    x = torch.randn(500, 32, device=DEVICE)
    conv = layer().to(DEVICE)

    def step() -> list[Tensor]:
        out = conv(x, edge_index)
        return [out, *torch.autograd.grad(out.square().sum(), list(conv.parameters()))]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = [value.clone() for value in step()]
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(captured, expected, strict=True))

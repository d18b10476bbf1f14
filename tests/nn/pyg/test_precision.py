"""Float64 stays, 16 bits work, and autocast does not touch the order."""

import pytest
import torch
from pyg_cases import EDGES, features, gradients, layer, random_graph
from rounding import assert_same_up_to_rounding

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.models import Node2Seq

OPTIONS = [{}, {"readout": "mean"}, {"readout": "sum"}, {"hops": 2}, {"readout": "ranks", "scores": "shared"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("backend", ["eager", "reference"])
def test_float64_stays_float64(options, backend):
    conv = layer(backend=backend, **options).double()
    x = features().double()
    out, trace = conv(x, EDGES, return_trace=True)
    assert out.dtype == trace.scores.dtype == torch.float64
    projected = conv.lin(x)
    target = torch.repeat_interleave(torch.arange(9), trace.ptr.diff())
    exact = (projected[target] * projected[trace.index]).sum(-1)
    torch.testing.assert_close(trace.scores, exact, rtol=0, atol=1e-14)
    assert all(grad.dtype == torch.float64 for grad in gradients(conv, out).values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("backend", ["eager", "reference"])
def test_16_bit_layers_rank_in_float32_and_round_once(dtype, options, backend):
    """The same weights and features in float32 give the same order; the output is rounded at the end."""
    conv = layer(backend=backend, **options).to(dtype)
    x, edges = random_graph(40, 400)
    x = x.to(dtype)
    out, trace = conv(x, edges, return_trace=True)
    wide = layer(backend=backend, **options)
    wide.load_state_dict({name: value.float() for name, value in conv.state_dict().items()})
    wide_out, wide_trace = wide(x.float(), edges, return_trace=True)
    assert out.dtype == dtype
    assert torch.equal(trace.index, wide_trace.index)
    assert torch.equal(trace.scores, wide_trace.scores)
    assert torch.equal(out, wide_out.to(dtype))
    assert all(grad.dtype == dtype and bool(grad.isfinite().all()) for grad in gradients(conv, out).values())


def test_16_bit_features_in_a_float32_layer():
    conv = layer()
    x = features().bfloat16()
    out = conv(x, EDGES)
    assert out.dtype == torch.float32
    assert torch.equal(out, conv(x.float(), EDGES))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("backend", ["eager", "reference"])
def test_autocast_keeps_the_order_and_the_output(dtype, options, backend):
    conv = layer(backend=backend, **options)
    x, edges = random_graph(40, 400)
    expected, expected_trace = conv(x, edges, return_trace=True)
    expected_grads = gradients(conv, expected)
    with torch.autocast("cpu", dtype=dtype):
        out, trace = conv(x, edges, return_trace=True)
        rounded = conv.lin(x)
    assert rounded.dtype == dtype  # autocast was on, and would have rounded
    assert torch.equal(trace.index, expected_trace.index)
    assert_same_up_to_rounding(out, expected)
    torch.testing.assert_close(gradients(conv, out), expected_grads, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_listened_path_under_autocast(dtype):
    conv = layer()
    x, edges = random_graph(40, 400)
    expected, expected_trace = conv(x, edges, return_trace=True)
    conv.register_message_forward_hook(lambda *_: None)
    with torch.autocast("cpu", dtype=dtype):
        out, trace = conv(x, edges, return_trace=True)
    assert torch.equal(trace.index, expected_trace.index)
    assert_same_up_to_rounding(out, expected)


@pytest.mark.parametrize("backend", ["eager", "reference"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_network_under_autocast_and_in_16_bits(dtype, backend):
    torch.manual_seed(0)
    model = Node2Seq(5, 8, 3, position=1, backend=backend)
    x, edges = random_graph(40, 200)
    model.eval()
    exact = model(x, edges)
    model.train()
    with torch.autocast("cpu", dtype=dtype):
        loss = model(x, edges).float().logsumexp(-1).mean()
    assert all(bool(grad.isfinite().all()) for grad in gradients(model, loss).values())
    model.eval()
    with torch.autocast("cpu", dtype=dtype):
        out = model(x, edges)
    torch.testing.assert_close(out.float(), exact, rtol=0.05, atol=0.05)
    half = model.to(dtype)
    assert half(x.to(dtype), edges).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["eager", "reference"])
def test_gcn_layer(dtype, backend):
    torch.manual_seed(0)
    conv = GCNConv(5, 4, backend=backend)
    expected = conv(features(), EDGES)
    conv = conv.to(dtype)
    x = features().to(dtype).requires_grad_()
    out = conv(x, EDGES)
    assert out.dtype == dtype
    tolerance = 8 * torch.finfo(dtype).eps if dtype != torch.float64 else 1e-6
    torch.testing.assert_close(out.float(), expected, rtol=tolerance, atol=tolerance)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert grad.dtype == dtype

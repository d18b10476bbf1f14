"""Products and gathers in 16 bits: as close as plain PyTorch in that precision, and deterministic."""

import pytest
import torch
from kernel_cases import DEVICE
from torch import Tensor

from node2seq import Node2SeqConv, ops
from node2seq.ops import reference
from node2seq.ops.triton.launch import LAUNCHES

NODES = 40


def graph() -> Tensor:
    """Short rows, long ones and a hub that is cut into parts."""
    edges = torch.randint(0, NODES, (2, 120))
    hub = torch.stack([torch.arange(NODES), torch.zeros(NODES, dtype=torch.int64)])
    return torch.cat([edges, hub], dim=1).to(DEVICE)


def layer(readout: str) -> Node2SeqConv:
    torch.manual_seed(0)
    return Node2SeqConv(6, 5, readout=readout, backend="triton").to(DEVICE)


def with_gradients(out: Tensor, direction: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return [out, *torch.autograd.grad((out * direction).sum(), inputs)]


def error(found: Tensor, expected: Tensor) -> float:
    expected = expected.detach().double()
    return float((found.detach().double() - expected).norm() / expected.norm().clamp(min=1e-30))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("readout", ["max", "mean", "sum"])
def test_convolutions_are_as_close_as_plain_ones(readout: str, dtype: torch.dtype):
    conv, edges = layer(readout), graph()
    x = torch.randn(NODES, 5, device=DEVICE, requires_grad=True)
    source, target = edges
    sequences = ops.build_sequences(
        source, target, NODES, NODES, add_self_loops=True, merge_duplicates=True, backend="eager"
    )
    weight, root, bias = conv.weight, conv.lin_root.weight, torch.randn(5, device=DEVICE, requires_grad=True)
    direction = torch.randn(NODES, 5, device=DEVICE)
    inputs = [x, weight, root, bias]

    def fused(storage: torch.dtype) -> list[Tensor]:
        then = ops.Convolution(3, readout, True, storage)
        ranking = ops.rank(x, x, sequences, then=then, backend="triton")
        out, _ = ops.convolve(x, weight, ranking, readout, ops.Root(root, bias), dtype=storage)
        assert out.dtype == torch.float32
        return with_gradients(out, direction, inputs)

    def plain(storage: torch.dtype) -> list[Tensor]:
        ranking = ops.rank(x, x, sequences, backend=reference)
        given = [value.to(storage) for value in (x, weight, root, bias)]
        out, _ = ops.convolve(given[0], given[1], ranking, readout, ops.Root(given[2], given[3]))
        return with_gradients(out.float(), direction, inputs)

    exact = plain(torch.float64)
    low = fused(dtype)
    for found, in_32_bits, in_16_bits, expected in zip(
        low, fused(torch.float32), plain(dtype), exact, strict=True
    ):
        assert error(in_32_bits, expected) < 1e-5
        assert error(found, expected) < 2 * error(in_16_bits, expected) + 1e-4
    # All but the gradient of the bias, which is a plain sum.
    assert all(error(found, expected) > 1e-5 for found, expected in zip(low[:-1], exact, strict=False))


@pytest.mark.parametrize("readout", ["max", "mean"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_layer_under_autocast_keeps_its_order_and_its_bits(readout: str, dtype: torch.dtype):
    conv, edges = layer(readout), graph()
    x = torch.randn(NODES, 6, device=DEVICE)

    def run(enabled: bool) -> list[Tensor]:
        with torch.autocast(DEVICE, dtype=dtype, enabled=enabled):
            out, trace = conv(x, edges, return_trace=True)
        assert out.dtype == torch.float32
        return [
            trace.index,
            trace.scores,
            out,
            *torch.autograd.grad(out.square().sum(), list(conv.parameters())),
        ]

    plain, first, second = run(False), run(True), run(True)
    assert LAUNCHES
    assert torch.equal(first[0], plain[0])
    assert torch.equal(first[1], plain[1])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert 1e-5 < error(first[2], plain[2]) < 2e-2


def test_a_layer_in_16_bits():
    conv, edges = layer("mean").bfloat16(), graph()
    x = torch.randn(NODES, 6, device=DEVICE).bfloat16()
    out = conv(x, edges)
    assert out.dtype == torch.bfloat16
    expected = conv.float()(x.float(), edges)
    assert error(out, expected) < 2e-2

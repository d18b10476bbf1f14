"""The whole layer of a small graph in one step: the same bits as its steps one after the other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from node2seq import Node2SeqConv
from node2seq.ops import eager
from node2seq.ops.eager import whole_layer


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The readouts that were worked out in one step."""
    found, convolve = [], whole_layer.convolve_few

    def noted(*args: Any) -> Any:
        found.append(args[-1])
        return convolve(*args)

    monkeypatch.setattr(whole_layer, "convolve_few", noted)
    return found


def whole_numbers(*shape: int) -> Tensor:
    """Small ones, whose scores tie."""
    return torch.randint(-2, 3, shape).float()


def results(conv: Node2SeqConv, x: Tensor, edges: Tensor, **options: Any) -> list[Tensor]:
    """The output, recorded or not, and every gradient."""
    out = conv(x, edges, **options)
    out = out[0] if options else out
    direction = torch.arange(out.numel(), dtype=out.dtype).view(out.shape) % 7 - 3
    with torch.no_grad():
        plain = conv(x, edges)
    return [out, plain, *torch.autograd.grad(out, [x, *conv.parameters()], direction)]


@pytest.mark.parametrize("numbers", [torch.randn, whole_numbers])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"readout": "mean", "bias": False},
        {"readout": "sum", "kernel_size": 1},
        {"kernel_size": 5, "add_self_loops": False},
        {"readout": "mean", "kernel_size": 30, "taps": "depthwise"},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_as_its_steps(
    steps: list[str],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    options: dict[str, Any],
    numbers: Callable[..., Tensor],
):
    """A trace takes the steps, as does a backend that has nothing else."""
    torch.manual_seed(0)
    conv = Node2SeqConv(5, 4, backend="eager", **options)
    for parameter in conv.parameters():
        parameter.data = numbers(*parameter.shape)
    conv, x = conv.to(dtype), numbers(40, 5).to(dtype).requires_grad_()
    edges = torch.randint(0, 37, (2, 90))  # some nodes have none
    edges[1, :10] = 7
    ours = results(conv, x, edges)
    assert steps == [conv.readout] * 2
    traced = results(conv, x, edges, return_trace=True)
    monkeypatch.delattr(eager, "layer")
    others = results(conv, x, edges)
    assert steps == [conv.readout] * 3  # one of them beside the trace
    for place, (one, two, three) in enumerate(zip(ours, traced, others, strict=True)):
        assert torch.equal(one, two), f"result {place} of the layer with a trace differs"
        assert torch.equal(one, three), f"result {place} differs"


@pytest.mark.parametrize("options", [{"hops": 2}, {"order": "degree"}, {"root": "none"}])
def test_other_layers_take_their_steps(steps: list[str], options: dict[str, Any]):
    Node2SeqConv(5, 4, backend="eager", **options)(torch.randn(20, 5), torch.randint(0, 20, (2, 60)))
    assert not steps


def test_graphs_with_many_windows_take_their_steps(steps: list[str]):
    conv, x = Node2SeqConv(5, 4, backend="eager"), torch.randn(40, 5)
    edges = torch.randint(0, 40, (2, 3000))
    out = conv(x, edges)
    assert not steps
    conv.backend = "reference"
    torch.testing.assert_close(out, conv(x, edges))

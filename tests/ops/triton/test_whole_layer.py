"""The whole layer in one step: the same bits as its steps one after the other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_cases import DEVICE
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import Linear

from node2seq import Node2SeqConv
from node2seq.ops.triton import whole_layer

OPTIONS = [
    {"readout": "max"},
    {"readout": "max", "kernel_size": 5, "bias": False},
    {"readout": "mean"},
    {"readout": "sum", "kernel_size": 2, "bias": False},
    {"readout": "mean", "kernel_size": 18},  # more taps than are summed with the scores
    {"readout": "max", "taps": "depthwise"},
]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The readouts that were worked out in one step."""
    found, forward = [], whole_layer._forward

    def noted(*args: Any) -> Any:
        found.append(args[-1].readout)
        return forward(*args)

    monkeypatch.setattr(whole_layer, "_forward", noted)
    return found


def edges() -> Tensor:
    """A graph with a hub and duplicates."""
    edge_index = torch.randint(0, 20, (2, 70))
    edge_index[1, :20] = 7
    return edge_index.to(DEVICE)


def layer(numbers: Callable[..., Tensor] = torch.randn, **options: Any) -> Node2SeqConv:
    """A layer with random parameters."""
    conv = Node2SeqConv(5, 4, backend="triton", **options)
    for parameter in conv.parameters():
        parameter.data = numbers(*parameter.shape)
    return conv.to(DEVICE)


def whole_numbers(*shape: int) -> Tensor:
    """Small ones: every sum of them is exact."""
    return torch.randint(-2, 3, shape).float()


def results(out: Tensor, x: Tensor, conv: Node2SeqConv) -> list[Tensor]:
    """The output and every gradient."""
    direction = torch.arange(out.numel(), device=DEVICE, dtype=out.dtype).view(out.shape) % 7 - 3
    wanted = [value for value in (x, *conv.parameters()) if value.requires_grad]
    return [out, *torch.autograd.grad(out, wanted, direction)] if wanted else [out]


def assert_same_bits(first: list[Tensor], second: list[Tensor]) -> None:
    """Every result."""
    for place, (a, b) in enumerate(zip(first, second, strict=True)):
        assert torch.equal(a, b), f"result {place} differs"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_one_step_gives_the_bits_of_several(options: dict[str, Any], steps: list[str]):
    """Outputs and every gradient, with a backward pass and without."""
    conv, edge_index = layer(**options), edges()
    x = torch.randn(20, 5, device=DEVICE, requires_grad=True)
    in_one = results(conv(x, edge_index), x, conv)
    with torch.no_grad():
        assert torch.equal(conv(x, edge_index), in_one[0])
    assert steps == [conv.readout] * 2
    apart, _ = conv(x, edge_index, return_trace=True)
    assert steps == [conv.readout] * 2
    assert_same_bits(in_one, results(apart, x, conv))


@pytest.mark.parametrize("readout", ["max", "mean"])
def test_one_step_keeps_its_order_and_its_bits_under_autocast(readout: str, steps: list[str]):
    conv, edge_index = layer(readout=readout), edges()
    x = torch.randn(20, 5, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        in_one, (apart, _) = conv(x, edge_index), conv(x, edge_index, return_trace=True)
    assert steps == [readout]
    assert_same_bits(results(in_one, x, conv), results(apart, x, conv))
    assert not torch.equal(in_one, conv(x, edge_index))


@pytest.mark.parametrize("options", OPTIONS[1:4], ids=str)
def test_one_step_equals_the_reference(options: dict[str, Any], steps: list[str]):
    """On whole numbers, where all sums are exact but the division of a mean."""
    conv, edge_index = layer(whole_numbers, **options), edges()
    x = whole_numbers(20, 5).to(DEVICE).requires_grad_()
    found = results(conv(x, edge_index), x, conv)
    assert steps == [conv.readout]
    twin = Node2SeqConv(5, 4, backend="reference", **options).to(DEVICE)
    twin.load_state_dict(conv.state_dict())
    twin = twin.double()
    double = x.detach().double().requires_grad_()
    for a, b in zip(found, results(twin(double, edge_index), double, twin), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("readout", ["max", "mean"])
@pytest.mark.parametrize(
    "frozen", ["x", "lin.weight", "weight", "lin_root.weight", "bias", "all but the bias"]
)
def test_only_the_gradients_that_are_needed(readout: str, frozen: str, steps: list[str]):
    conv, edge_index = layer(readout=readout), edges()
    x = torch.randn(20, 5, device=DEVICE)
    for name, value in (("x", x), *conv.named_parameters()):
        value.requires_grad_(name == "bias" if frozen.startswith("all") else name != frozen)
    in_one = results(conv(x, edge_index), x, conv)
    assert steps == [readout]
    assert_same_bits(in_one, results(conv(x, edge_index, return_trace=True)[0], x, conv))


@pytest.mark.parametrize("readout", ["max", "mean"])
def test_a_graph_that_is_kept_is_walked_twice_and_checkpoints_make_it_anew(readout: str, steps: list[str]):
    conv, edge_index = layer(readout=readout), edges()
    x = torch.randn(20, 5, device=DEVICE, requires_grad=True)
    out = conv(x, edge_index)
    first = torch.autograd.grad(out.sum(), [x, *conv.parameters()], retain_graph=True)
    assert_same_bits(list(first), list(torch.autograd.grad(out.sum(), [x, *conv.parameters()])))
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()
    again = checkpoint(conv, x, edge_index, use_reentrant=False)
    assert isinstance(again, Tensor)
    assert_same_bits(list(first), list(torch.autograd.grad(again.sum(), [x, *conv.parameters()])))
    assert steps == [readout] * 3


def _twice(_module: torch.nn.Module, _given: Any, out: Tensor) -> Tensor:
    return out * 2


def _listen(conv: Node2SeqConv, x: Tensor) -> Tensor:
    conv.lin.register_forward_hook(_twice)
    return x


def _listen_behind(conv: Node2SeqConv, x: Tensor) -> Tensor:
    conv.lin_root.register_forward_hook(_twice)
    return x


def _project_with_bias(conv: Node2SeqConv, x: Tensor) -> Tensor:
    conv.lin = Linear(5, 4).to(DEVICE)
    return x


def _several_graphs(_conv: Node2SeqConv, x: Tensor) -> Tensor:
    return torch.stack([x, x + 1])


@pytest.mark.parametrize("change", [_listen, _listen_behind, _project_with_bias, _several_graphs])
def test_what_is_changed_in_between_takes_its_steps(change: Callable[..., Tensor], steps: list[str]):
    """Nothing is left out that somebody put there."""
    conv, edge_index = layer(), edges()
    x = change(conv, torch.randn(20, 5, device=DEVICE))
    out = conv(x, edge_index)
    assert not steps
    twin = conv.double()
    twin.backend = "reference"
    torch.testing.assert_close(out.double(), twin(x.double(), edge_index), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{"hops": 2}, {"order": "degree"}, {"root": "none"}, {"readout": "ranks"}]
)
def test_other_layers_take_their_steps(options: dict[str, Any], steps: list[str]):
    layer(**options)(torch.randn(20, 5, device=DEVICE), edges())
    assert not steps

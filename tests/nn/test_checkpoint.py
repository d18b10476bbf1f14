"""Under ``torch.utils.checkpoint`` a pass that is repeated drops what it dropped the first time."""

import copy
import gc
import shutil
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from node2seq import MODELS, Node2SeqError
from node2seq.nn import dropout
from node2seq.nn.dropout import Dropout

CHANNELS = 6
Call = Callable[[nn.Module], Callable[..., Tensor]]

reentrant = pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler here")


def graph() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(30, CHANNELS, generator=generator), torch.randint(30, (2, 90), generator=generator)


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name](CHANNELS, 4, 3)


def train(model: nn.Module, call: Callable[..., Tensor], passes: int) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs of some passes before one backward pass, and its gradients."""
    x, edges = graph()
    x.requires_grad_()
    outputs = [call(x, edges) for _ in range(passes)]
    sum(number * out.square().sum() for number, out in enumerate(outputs, 1)).backward()  # pyright: ignore[reportAttributeAccessIssue]
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert x.grad is not None
    return outputs, [x.grad, *grads]


def counters(model: nn.Module) -> dict[str, Tensor]:
    return {name: module.step for name, module in model.named_modules() if isinstance(module, Dropout)}


def assert_as_without(model: nn.Module, call: Call, passes: int) -> None:
    """Outputs, gradients and counters are those of passes that are not repeated."""
    plain = copy.deepcopy(model)
    expected = train(plain, plain, passes)
    found = train(model, call(model), passes)
    torch.testing.assert_close(
        found, expected, rtol=1e-5, atol=1e-5
    )  # gradients are added up in another order
    torch.testing.assert_close(counters(model), counters(plain), rtol=0, atol=0)


def checkpointed(reentrant: bool) -> Call:
    return lambda module: lambda *inputs: checkpoint(module, *inputs, use_reentrant=reentrant)  # pyright: ignore[reportReturnType]


@reentrant
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_every_network(name: str, passes: int, reentrant: bool) -> None:
    assert_as_without(make(name), checkpointed(reentrant), passes)


def compiled_within(backend: str, reentrant: bool) -> Call:
    return lambda module: checkpointed(reentrant)(torch.compile(module, backend=backend))  # pyright: ignore[reportArgumentType]


def compiled_around(backend: str, reentrant: bool) -> Call:
    return lambda module: torch.compile(checkpointed(reentrant)(module), backend=backend, fullgraph=True)


@reentrant
@pytest.mark.slow
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("place", [compiled_within, compiled_around])
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=[pytest.mark.slow, needs_compiler])]
)
def test_compiled(backend: str, place: Callable[..., Call], passes: int, reentrant: bool) -> None:
    torch._dynamo.reset()
    assert_as_without(make("gcn"), place(backend, reentrant), passes)


@pytest.mark.slow
@reentrant
@pytest.mark.parametrize("place", [compiled_within, compiled_around])
@pytest.mark.parametrize("name", ["node2seq", "gat"])
def test_other_networks_compiled(name: str, place: Callable[..., Call], reentrant: bool) -> None:
    torch._dynamo.reset()
    assert_as_without(make(name), place("aot_eager", reentrant), 2)


class Twice(nn.Module):
    """One dropout, twice in a pass."""

    def __init__(self, p: float | Tensor = 0.5) -> None:
        super().__init__()
        self.drop = Dropout(p, 0)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, _edges: Tensor) -> Tensor:
        return self.drop(x) + 3 * self.drop(x * self.scale).sin()


def dropped_alike(out: Tensor, x: Tensor) -> bool:
    """Whether the gradient is lost where the value was."""
    assert x.grad is not None
    return torch.equal(out == 0, x.grad == 0)


def squared(drop: nn.Module, x: Tensor) -> Tensor:
    """A pass that keeps something for its backward pass, so that there is something to recompute."""
    return drop(x).square()


@reentrant
@pytest.mark.parametrize(
    "p", [0.5, torch.tensor([0.3, 0.6], dtype=torch.float64)], ids=["one run", "two runs"]
)
def test_a_dropout_twice_in_a_pass(p: float | Tensor, reentrant: bool) -> None:
    torch.manual_seed(0)
    assert_as_without(Twice(p), checkpointed(reentrant), 2)


@pytest.mark.slow
@reentrant
def test_compiled_twice_in_a_pass(reentrant: bool) -> None:
    for place in (compiled_within, compiled_around):
        torch._dynamo.reset()
        assert_as_without(Twice(), place("aot_eager", reentrant), 2)


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_checkpoints_within_checkpoints(inner: bool, outer: bool) -> None:
    def nested(module: nn.Module) -> Callable[..., Tensor]:
        return checkpointed(outer)(checkpointed(inner)(module))  # pyright: ignore[reportArgumentType]

    assert_as_without(Twice(), nested, 2)


@reentrant
@pytest.mark.parametrize("first", [0, 1])
def test_backward_passes_in_any_order(first: int, reentrant: bool) -> None:
    drop = Dropout(0.5, 0)
    inputs = [torch.ones(20, 5, requires_grad=True) for _ in range(2)]
    outputs = [checkpoint(drop, x, use_reentrant=reentrant) for x in inputs]
    drop(inputs[0])  # a pass of another kind between them
    for number in (first, 1 - first):
        outputs[number].sum().backward()
        assert dropped_alike(outputs[number], inputs[number])
    assert not torch.equal(*outputs)
    assert int(drop.step) == 3


@reentrant
def test_a_second_backward_pass(reentrant: bool) -> None:
    drop, x = Dropout(0.5, 0), torch.ones(20, 5, requires_grad=True)
    out = checkpoint(drop, x, use_reentrant=reentrant)
    out.sum().backward(retain_graph=True)
    checkpoint(drop, torch.ones(20, 5, requires_grad=True), use_reentrant=reentrant)
    x.grad = None
    out.sum().backward()
    assert dropped_alike(out, x)


@reentrant
def test_passes_that_start_from_the_same_generator_state(reentrant: bool) -> None:
    """Nothing tells them apart when they are repeated, so they drop the same."""
    drop = Dropout(0.5, 0)
    inputs = [torch.ones(20, 5, requires_grad=True) for _ in range(2)]
    outputs = []
    for x in inputs:
        torch.manual_seed(0)
        outputs.append(checkpoint(squared, drop, x, use_reentrant=reentrant))
    for out, x in zip(outputs, inputs, strict=True):
        out.sum().backward()
        assert dropped_alike(out, x)
    torch.manual_seed(0)
    later = checkpoint(squared, drop, inputs[0], use_reentrant=reentrant)
    assert not torch.equal(later, outputs[0])  # none of them is under way any more


def test_selective_checkpoints() -> None:
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mul.Tensor])

    drop, x = Dropout(0.5, 0), torch.ones(20, 5, requires_grad=True)
    out = checkpoint(drop, x, use_reentrant=False, context_fn=contexts)
    out.sum().backward()
    assert dropped_alike(out, x)


@reentrant
def test_without_the_generators_state_there_is_an_error(reentrant: bool) -> None:
    drop, x = Dropout(0.5, 0), torch.ones(20, 5, requires_grad=True)
    out = checkpoint(squared, drop, x, use_reentrant=reentrant, preserve_rng_state=False)
    with pytest.raises(Node2SeqError, match="preserve_rng_state=True"):
        out.sum().backward()


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_other_passes_draw_nothing(backend: str | None) -> None:
    torch._dynamo.reset()
    drop = Dropout(0.5, 0)
    call = drop if backend is None else torch.compile(drop, backend=backend)
    x = torch.ones(20, 5, requires_grad=True)
    state = torch.get_rng_state()
    call(x).sum().backward()
    with torch.no_grad():
        call(x)
    with torch.inference_mode():
        call(torch.ones(20, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert dropout._passes.get(drop.seed) is None


@pytest.mark.slow
@reentrant
def test_little_is_kept(reentrant: bool) -> None:
    gc.collect()
    before = len(dropout._passes)
    drop, x = Dropout(0.5, 0), torch.ones(20, 5, requires_grad=True)
    for _ in range(200):
        checkpoint(squared, drop, x, use_reentrant=reentrant).sum().backward()
    passes = dropout._passes.get(drop.seed)
    assert passes is not None
    assert sum(map(len, passes[:2])) <= 64
    assert len(dropout._passes) == before + 1
    del drop
    gc.collect()
    assert len(dropout._passes) == before

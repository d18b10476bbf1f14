"""A layer like any other: construction, lazy sizes, reset, repr, copies."""

import copy
import io
import pickle

import pytest
import torch
from pyg_cases import EDGES, features, gradients, layer, random_graph
from rounding import assert_same_up_to_rounding
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn import Linear, MessagePassing

from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.models import SGC, Cheby


def test_is_a_message_passing_layer_with_the_documented_parameters():
    conv = Node2SeqConv(5, 4, 3)
    assert isinstance(conv, MessagePassing)
    shapes = {name: tuple(p.shape) for name, p in conv.named_parameters()}
    assert shapes == {"lin.weight": (4, 5), "weight": (3, 4, 4), "lin_root.weight": (4, 4), "bias": (4,)}


@pytest.mark.parametrize("root", ["projected", "input"])
@pytest.mark.parametrize("in_channels", [5, (5, 3)])
def test_every_parameter_receives_a_gradient(in_channels, root):
    conv = layer(in_channels, root=root)
    x = features() if in_channels == 5 else (features(), features(channels=3, seed=1))
    if in_channels != 5 and root == "input":
        # Only the order depends on the targets' projection here, and no gradient passes through the order.
        assert conv.lin_dst is not None
        conv.lin_dst.requires_grad_(False)
    found = gradients(conv, conv(x, EDGES))
    assert all(bool(grad.count_nonzero()) for grad in found.values())
    assert ("lin_dst.weight" in found) == (in_channels != 5 and root == "projected")


def test_without_bias_there_is_no_bias():
    conv = layer(bias=False)
    assert conv.bias is None
    with_bias = layer(bias=True)
    with_bias.load_state_dict({**conv.state_dict(), "bias": torch.arange(4.0)})
    out, shifted = conv(features(), EDGES), with_bias(features(), EDGES)
    assert_same_up_to_rounding(shifted, out + torch.arange(4.0))


@pytest.mark.parametrize("root", ["projected", "input"])
@pytest.mark.parametrize("lazy", [-1, (-1, -1), (-1, 3), (5, -1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lazy_sizes_come_from_the_first_input(lazy, root, dtype):
    tuple_given = isinstance(lazy, tuple)
    x = features().to(dtype)
    x = (x, features(channels=3, seed=1).to(dtype)) if tuple_given else x
    lazy_conv = Node2SeqConv(lazy, 4, root=root).to(dtype)
    uninitialized = [p for p in lazy_conv.parameters() if isinstance(p, UninitializedParameter)]
    assert uninitialized
    lazy_conv(x, EDGES)
    eager = Node2SeqConv((5, 3) if tuple_given else 5, 4, root=root).to(dtype)
    assert {n: (p.shape, p.dtype) for n, p in lazy_conv.named_parameters()} == {
        n: (p.shape, p.dtype) for n, p in eager.named_parameters()
    }
    eager.load_state_dict(lazy_conv.state_dict())
    assert torch.equal(lazy_conv(x, EDGES), eager(x, EDGES))
    out = lazy_conv(x, EDGES)
    assert out.dtype == dtype
    out.sum().backward()
    assert lazy_conv.lin.weight.grad is not None
    assert bool(lazy_conv.lin.weight.grad.count_nonzero())


def test_a_lazy_layer_takes_a_state_dict_before_its_first_input():
    conv, lazy = layer(), Node2SeqConv(-1, 4)
    lazy.load_state_dict(conv.state_dict())
    assert torch.equal(lazy(features(), EDGES), conv(features(), EDGES))


def test_reset_parameters_draws_anew_and_is_reproducible():
    conv = Node2SeqConv((5, 3), 4, root="input")
    assert conv.bias is not None
    torch.nn.init.ones_(conv.bias)
    before = copy.deepcopy(conv.state_dict())
    torch.manual_seed(1)
    conv.reset_parameters()
    first = copy.deepcopy(conv.state_dict())
    torch.manual_seed(1)
    conv.reset_parameters()
    for name, value in conv.state_dict().items():
        assert torch.equal(value, first[name])
        assert not torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("conv", "text"),
    [
        (lambda: Node2SeqConv(5, 4), "Node2SeqConv(5, 4, kernel_size=3)"),
        (lambda: Node2SeqConv(5, 4, 7, hops=2, readout="sum"), "Node2SeqConv(5, 4, kernel_size=7)"),
        (lambda: Node2SeqConv((5, 3), 4, 1), "Node2SeqConv((5, 3), 4, kernel_size=1)"),
        (lambda: Node2SeqConv(-1, 4), "Node2SeqConv(-1, 4, kernel_size=3)"),
        (lambda: Node2SeqConv((-1, -1), 4), "Node2SeqConv((-1, -1), 4, kernel_size=3)"),
    ],
)
def test_repr(conv, text):
    assert repr(conv()) == text


def _pickled(module):
    return pickle.loads(pickle.dumps(module))


def _saved(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, _pickled, _saved])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("when", ["new", "after a forward", "after an explanation"])
def test_copies_keep_the_output_and_are_independent(duplicate, hops, when):
    conv = layer(hops=hops)
    if when != "new":
        gradients(conv, conv(features(), EDGES))
    if when == "after an explanation":
        handle = conv.register_message_forward_hook(lambda *_: None)
        conv(features(), EDGES)
        handle.remove()
    expected = conv(features(), EDGES)
    twin = duplicate(conv)
    assert repr(twin) == repr(conv)
    assert torch.equal(twin(features(), EDGES), expected)
    with torch.no_grad():
        twin.weight.zero_()
    assert torch.equal(conv(features(), EDGES), expected)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, _pickled, _saved])
def test_copies_of_a_lazy_layer(duplicate):
    lazy = Node2SeqConv(-1, 4, root="input")
    twin = duplicate(lazy)
    assert isinstance(twin.lin.weight, UninitializedParameter)
    assert twin(features(), EDGES).shape == (9, 4)  # the copy is alive, and only the copy
    assert isinstance(lazy.lin.weight, UninitializedParameter)
    lazy.load_state_dict(twin.state_dict())
    assert torch.equal(duplicate(lazy)(features(), EDGES), twin(features(), EDGES))


def test_the_docstring_has_the_paper_the_equations_the_arguments_and_the_shapes():
    import inspect

    text = inspect.getdoc(Node2SeqConv)
    assert text is not None
    assert "https://arxiv.org/abs/2101.01849" in text
    assert text.count(".. math::") == 3
    arguments, shapes = text.split("Args:")[1].split("Shapes:")
    for name in inspect.signature(Node2SeqConv).parameters:
        assert f"\n    {name} (" in arguments or f"\n    **{name} (" in arguments, name
    assert "- **input:**" in shapes
    assert "- **output:**" in shapes
    assert "Args:" in (inspect.getdoc(Node2SeqConv.forward) or "")


def test_a_hook_on_the_root_is_called_and_another_root_is_used():
    x, edges = random_graph(20, 60)
    conv = layer()
    expected, seen = conv(x, edges), []
    handle = conv.lin_root.register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(conv(x, edges), expected)
    assert seen == [1]
    handle.remove()

    class Doubled(torch.nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    other = Doubled(conv.lin_root.in_channels, conv.lin_root.out_channels, bias=False)
    other.weight.data = conv.lin_root.weight.data / 2
    conv.lin_root = other  # pyright: ignore[reportAttributeAccessIssue]
    torch.testing.assert_close(conv(x, edges), expected)


def _listen(modules, seen):
    """Writes down each call of a module, through a hook that PyTorch calls for every module there is."""

    def hook(module, *_):
        seen.extend(name for name, one in modules.items() if one is module)

    return torch.nn.modules.module.register_module_forward_hook(hook)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("root", ["projected", "input"])
def test_hooks_of_all_modules_see_every_submodule(root, dtype):
    x, edges = random_graph(20, 60)
    conv, x, seen = layer(root=root).to(dtype), x.to(dtype), []
    expected = conv(x, edges)
    handle = _listen({"lin": conv.lin, "lin_root": conv.lin_root, "conv": conv}, seen)
    try:
        assert_same_up_to_rounding(conv(x, edges), expected)
    finally:
        handle.remove()
    assert seen == ["lin", "lin_root", "conv"]
    conv(x, edges)
    assert len(seen) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["lin", "lin_root"])
def test_a_forward_replaced_on_the_instance_is_called(name, dtype):
    x, edges = random_graph(20, 60)
    conv, x = layer().to(dtype), x.to(dtype)
    conv(x, edges)
    linear = getattr(conv, name)
    plain, calls = linear.forward, []

    def forward(value):
        calls.append(value.dtype)
        return plain(value)

    linear.forward = forward
    expected = conv(x, edges)
    assert calls == [torch.float32]  # the order is worked out in float32
    linear.forward = lambda value: 0.0 * plain(value)
    assert not torch.equal(conv(x, edges), expected)
    del linear.forward
    assert_same_up_to_rounding(conv(x, edges), expected)


# With K = 2: of more than two projections, PyG's ChebConv calls the third and later ones past their hooks.
@pytest.mark.parametrize("network", [SGC, Cheby])
def test_submodules_of_layers_that_project_first_are_called(network):
    """SGConv and ChebConv read their projections as matrices, unless someone listens."""
    torch.manual_seed(0)
    model = network(5, 4, 3, K=2).eval()
    x, edges = random_graph(20, 60)
    linears = {name: one for name, one in model.named_modules() if isinstance(one, Linear)}
    expected, seen = model(x, edges), []
    handle = _listen(linears, seen)
    try:
        torch.testing.assert_close(model(x, edges), expected)
    finally:
        handle.remove()
    assert sorted(seen) == sorted(linears)
    for one in linears.values():
        one.forward = lambda x, one=one: torch.zeros(x.size(0), one.out_channels)
    assert not torch.allclose(model(x, edges), expected)

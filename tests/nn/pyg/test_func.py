"""``torch.func``: gradients, products and batches of functions of the parameters or of the features."""

import pytest
import torch
from pyg_cases import EDGES, features, gradients, layer
from rounding import assert_same_up_to_rounding
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

from node2seq import MODELS, ops
from node2seq.errors import Node2SeqError

OPTIONS = [
    {},
    {"readout": "mean"},
    {"hops": 2, "threshold": 0.5},
    {"hops": 3, "threshold": 0.5, "nonlocal_order": "local-first"},
    {"order": "random"},
    {"order": "degree", "hops": 2},
    {"root": "input", "taps": "depthwise"},
    {"readout": "ranks", "heads": 2},
    {"readout": "ranks", "soft": False, "hops": 2, "threshold": 0.5},
]
X = features()
# PyTorch's batch normalisation counts its batches in place, which no transform takes while training.
NORMALISED = ("lgcn", "gin")


def _weights(out):
    return torch.linspace(-1, 1, out.numel()).view_as(out)


def _parameters(module):
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


@pytest.fixture(params=["auto", "auto without numba", "reference"])
def backend(request):
    if request.param == "auto without numba":
        request.getfixturevalue("without_numba")
    return request.param.split()[0]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_of_the_layer(options, backend):
    conv, edges = layer(backend=backend, **options), EDGES.clone()
    expected = gradients(conv, conv(X, edges))
    edges = EDGES.clone()  # whose plan is built within the transform

    def loss(parameters):
        out = functional_call(conv, parameters, (X, edges))
        return (out * _weights(out)).sum()

    parameters = _parameters(conv)
    assert_same_up_to_rounding(grad(loss)(parameters), expected, roundings=16)
    (found,) = vjp(loss, parameters)[1](torch.ones(()))
    assert_same_up_to_rounding(found, expected, roundings=16)
    assert_same_up_to_rounding(gradients(conv, conv(X, edges)), expected, roundings=16)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_jacobians_of_the_layer(options, backend):
    conv, edges = layer(backend=backend, **options), EDGES.clone()
    found = jacrev(lambda parameters: functional_call(conv, parameters, (X, edges)))(_parameters(conv))
    out = conv(X, edges)
    for place in [(0, 0), (4, 3)]:
        expected = torch.autograd.grad(out[place], list(conv.parameters()), retain_graph=True)
        assert_same_up_to_rounding([value[place] for value in found.values()], expected, roundings=32)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_of_parameters_and_of_features(options, backend):
    conv, edges = layer(backend=backend, **options), EDGES.clone()
    twin = layer(seed=1, **options)
    stacked = {
        name: torch.stack([p.detach(), twin.state_dict()[name]]) for name, p in conv.named_parameters()
    }
    if conv.order_seed is not None:
        assert twin.order_seed is not None
        twin.order_seed.copy_(conv.order_seed)

    def call(parameters, x):
        return functional_call(conv, parameters, (x, edges))

    expected = torch.stack([conv(X, edges), twin(X, edges)])
    assert_same_up_to_rounding(vmap(call, (0, None))(stacked, X), expected)
    x = torch.stack([features(seed=seed) for seed in range(3)])
    out = vmap(call, (None, 0))(_parameters(conv), x)
    assert_same_up_to_rounding(out, conv(x, edges))

    def loss(parameters):
        out = call(parameters, X)
        return (out * _weights(out)).sum()

    found = vmap(grad(loss))(stacked)
    for number, module in enumerate((conv, twin)):
        wanted = gradients(module, module(X, edges))
        assert_same_up_to_rounding(
            {name: value[number] for name, value in found.items()}, wanted, roundings=16
        )


def test_products_forward_and_second_derivatives():
    conv = layer(readout="mean").double()
    x, direction = X.double(), features(seed=1).double()
    found = jvp(lambda x: conv(x, EDGES), (x,), (direction,))[1]
    _, expected = torch.autograd.functional.jvp(
        lambda x: layer(readout="mean", backend="reference").double()(x, EDGES), x, direction
    )
    assert_same_up_to_rounding(found, expected)
    squares = hessian(lambda x: conv(x, EDGES).square().sum())(x[:, :2].clone() @ torch.ones(2, 5).double())
    assert squares.shape == (9, 5, 9, 5)
    assert bool(squares.any())


@pytest.mark.parametrize("name", ["eager", "native"])
def test_a_backend_that_cannot_is_named(name):
    if name == "native":
        pytest.importorskip("numba")
    conv = layer(backend=name)
    with pytest.raises(Node2SeqError) as error:
        grad(lambda x: conv(x, EDGES).sum())(X)
    assert f"backend='{name}' within torch.func" in str(error.value)
    assert "Use backend='auto' or 'reference'" in str(error.value)


@pytest.mark.parametrize("options", [{}, {"edge_dim": 3}], ids=["weights", "attributes"])
def test_what_edges_carry_is_not_left_out_where_pairs_of_nodes_are_selected(options):
    values = torch.randn(EDGES.size(1), *options.values())
    carried = (None, values) if options else (values, None)
    near, far = (layer(hops=hops, backend="reference", **options) for hops in (1, 2))
    assert bool(grad(lambda x: near(x, EDGES, *carried).square().sum())(X).any())
    with pytest.raises(Node2SeqError, match="hops=2 with edges that carry something"):
        grad(lambda x: far(x, EDGES, *carried).square().sum())(X)


def test_edges_are_not_batched():
    conv = layer()
    with pytest.raises(Node2SeqError, match=r"edge_index within torch\.func"):
        vmap(lambda edges: conv(X, edges))(torch.stack([EDGES, EDGES]))


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in MODELS
        for mode in ("eval", "train")
        if (name in NORMALISED, mode) != (True, "train")
    ],
)
def test_networks(name, mode, backend):
    torch.manual_seed(0)
    options = {"backend": backend} if name != "mlp" else {}
    model, edges = MODELS[name](5, 4, 3, **options).train(mode == "train"), EDGES.clone()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    expected = gradients(model, model(X, edges))
    model.load_state_dict(state)
    edges, built = EDGES.clone(), ops.PLANS.built

    def loss(parameters):
        out = functional_call(model, parameters, (X, edges))
        return (out * _weights(out)).sum()

    parameters = _parameters(model)
    # Gradients that should vanish are roundings of large terms.
    torch.testing.assert_close(grad(loss)(parameters), expected, rtol=1e-5, atol=1e-5)
    model.load_state_dict(state)
    found = vmap(grad(loss))({key: torch.stack([p, 2 * p]) for key, p in parameters.items()})
    first = {key: value[0] for key, value in found.items()}
    torch.testing.assert_close(first, expected, rtol=1e-5, atol=1e-5)
    assert ops.PLANS.built - built <= 2  # found again, within transforms and without

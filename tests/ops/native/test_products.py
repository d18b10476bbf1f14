"""Products on the threads of the loops: right, in the same order every time, at PyTorch's precision."""

from typing import Any

import pytest
import torch
from torch import Tensor

from node2seq import Node2SeqConv, ops

native = pytest.importorskip("node2seq.ops.native", reason="numba is not installed")
products = native.runtime

SHAPES = [(0, 4, 3), (1, 1, 1), (5, 7, 33), (66, 64, 64), (130, 130, 100), (67, 64, 256), (200, 300, 16)]


def whole_numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def multiplied(x: Tensor, weight: Tensor, root: Tensor | None, form: str, longest: int = 0) -> Tensor:
    """The product, put where something else was before."""
    columns = {"BESIDE": weight.size(-1) * (weight.size(-3) + (root is not None)), "BELOW": weight.size(-1)}
    out = x.new_full((x.size(0), columns.get(form, weight.size(-2))), torch.nan)
    products.multiply(x, weight, root, getattr(products.kernels, form), out, longest)
    return out


def outer_products(x: Tensor, y: Tensor, weight: Tensor, root: Tensor | None = None) -> list[Tensor | None]:
    """What the weights get back where x was multiplied with them and y is the gradient of the products."""
    table = products.Scratch((x.size(0), weight.size(-3) + (root is not None), weight.size(-1)), x)
    table.tensor.copy_(y.view(table.array.shape))
    return list(products.gradients((False, True, True), x, table.by_row, weight, root)[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "depth", "columns"), SHAPES)
def test_products_of_whole_numbers_are_exact(rows: int, depth: int, columns: int, dtype: torch.dtype):
    """Whatever lies in the memory before, and however many runs there are."""
    x = whole_numbers(rows, depth, dtype=dtype)
    taps, root = whole_numbers(2, depth, columns, dtype=dtype), whole_numbers(columns, depth, dtype=dtype)
    beside = torch.cat([*taps, root.t()], dim=1)
    for longest in (0, products.ONE_SUM):
        assert torch.equal(multiplied(x, taps, root, "BESIDE", longest), x @ beside)
    assert torch.equal(multiplied(x, taps, None, "BESIDE"), x @ beside[:, : 2 * columns])
    met = whole_numbers(rows, 3 * depth, dtype=dtype)
    assert torch.equal(multiplied(met, taps, root, "BELOW"), met @ torch.cat([*taps, root.t()]))
    y = whole_numbers(rows, 3 * columns, dtype=dtype)
    assert torch.equal(multiplied(y, taps, root, "BACK"), y @ beside.t())
    of_taps, of_root = outer_products(x, y, taps, root)
    sums = x.t() @ y
    assert of_taps is not None
    assert of_root is not None
    assert torch.equal(torch.cat([*of_taps, of_root.t()], dim=1), sums)

    runs, by_run = x.repeat(3, 1), torch.stack([taps, taps + 1, -taps])
    expected = torch.stack([x @ torch.cat([*own], dim=1) for own in by_run])
    assert torch.equal(multiplied(runs, by_run, None, "BESIDE").view(expected.shape), expected)
    found, none = outer_products(runs, y[:, : 2 * columns].repeat(3, 1), by_run)
    assert none is None
    assert found is not None
    by_tap = sums.view(depth, 3, columns).transpose(0, 1)[:2]
    assert torch.equal(found, by_tap.expand(3, 2, depth, columns))


@pytest.mark.parametrize("depth", [64, 192, 1000])
def test_no_less_precise_than_pytorch(depth: int):
    """Products in parts."""
    torch.manual_seed(0)
    x, taps = torch.randn(500, depth), torch.randn(1, depth, 80)
    pairs = [(multiplied(x, taps, None, "BESIDE"), x @ taps[0], x.double() @ taps[0].double())]
    x, y = torch.randn(depth, 70), torch.randn(depth, 80)
    found, _ = outer_products(x, y, torch.empty(1, 70, 80))
    assert found is not None
    pairs.append((found[0], x.t() @ y, x.double().t() @ y.double()))
    for found, beside, exact in pairs:
        assert (found - exact).norm() <= 1.1 * (beside - exact).norm()


def test_bits_depend_neither_on_threads_nor_on_other_rows(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    x, y, taps = torch.randn(5000, 96), torch.randn(5000, 80), torch.randn(1, 96, 80)

    def found() -> list[Tensor]:
        of_taps, _ = outer_products(x, y, taps)
        assert of_taps is not None
        return [multiplied(x, taps, None, "BESIDE"), of_taps]

    expected = found()
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert all(map(torch.equal, found(), expected))
    for rows in (1, 6, 777):
        assert torch.equal(multiplied(x[:rows], taps, None, "BESIDE"), expected[0][:rows])


def _layer_and_input(dtype: torch.dtype, runs: tuple[int, ...], shared: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (300, 80) if shared else (*runs, 300, 80)
    x = torch.randn(shape, generator=generator, dtype=dtype)
    return x, torch.randn(*runs, 64, 80, generator=generator, dtype=dtype)


@pytest.mark.parametrize(("runs", "shared"), [((), True), ((3,), False), ((3,), True)])
def test_rows_times_weights_of_runs(runs: tuple[int, ...], shared: bool):
    """The product and both gradients, in float64."""
    found = []
    for multiply in (products.linear, ops.linear):
        x, weight = (part.requires_grad_() for part in _layer_and_input(torch.float64, runs, shared))
        out = multiply(x, weight)
        assert out is not None
        found.append([out, *torch.autograd.grad(out.square().sum(), (x, weight))])
    for own, expected in zip(*found, strict=True):
        assert own.is_contiguous()
        torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-11)


def test_one_run_has_the_bits_of_several():
    x, weight = _layer_and_input(torch.float32, (3,), True)
    together, apart = products.linear(x, weight), products.linear(x.expand(3, -1, -1), weight)
    assert together is not None
    assert apart is not None
    for run in range(3):
        assert torch.equal(together[run], apart[run])
        alone = products.linear(x, weight[run])
        assert alone is not None
        assert torch.equal(together[run], alone)


@pytest.mark.parametrize(
    ("x", "weight"),
    [((0, 64), (64, 64)), ((9, 64), (64, 64)), ((9999, 64), (8, 64)), ((999, 999), (64, 999))],
)
def test_small_narrow_and_long_products_are_left_to_pytorch(x: tuple[int, int], weight: tuple[int, int]):
    assert products.linear(torch.ones(x), torch.ones(weight)) is None


def test_projections_run_in_the_loops_unless_somebody_listens(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    conv, edge_index = Node2SeqConv(64, 64, backend="native"), torch.randint(300, (2, 900))
    x, weights = torch.randn(300, 64), list[tuple[int, ...]]()
    multiply = products.linear

    def listening(x: Tensor, weight: Tensor) -> Tensor | None:
        weights.append(tuple(weight.shape))
        return multiply(x, weight)

    monkeypatch.setattr(native, "linear", listening)
    expected = conv(x, edge_index)
    assert weights == [(64, 64)]
    heard: list[Any] = []
    handle = conv.lin.register_forward_hook(lambda _module, _given, out: heard.append(out))
    torch.testing.assert_close(conv(x, edge_index), expected)
    handle.remove()
    assert len(heard) == 1
    assert len(weights) == 1
    weight, conv.lin.forward = conv.lin.weight, lambda x: x @ (2 * weight).t()
    doubled = conv(x, edge_index) - conv.bias
    torch.testing.assert_close(doubled, 2 * (expected - conv.bias))
    assert len(weights) == 1


def test_layers_of_16_bits_or_without_a_width_are_projected_in_float32(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    x, edge_index = torch.randn(300, 64), torch.randint(300, (2, 900))
    multiply, dtypes = products.linear, list[torch.dtype]()

    def listening(x: Tensor, weight: Tensor) -> Tensor | None:
        dtypes.extend([x.dtype, weight.dtype])
        return multiply(x, weight)

    monkeypatch.setattr(native, "linear", listening)
    for conv in (Node2SeqConv(64, 64).bfloat16(), Node2SeqConv(-1, 64)):
        x = x.to(conv.weight.dtype)
        outs, grads = [], []
        for conv.backend in ("native", "eager"):
            out = conv(x, edge_index)
            out.square().sum().backward()
            assert conv.lin.weight.grad is not None
            outs.append(out)
            grads.append(conv.lin.weight.grad)
            conv.zero_grad()
        torch.testing.assert_close(*outs)
        torch.testing.assert_close(*grads, rtol=2e-2, atol=1e-2 * float(grads[0].abs().max()))
    assert dtypes == [torch.float32] * 4

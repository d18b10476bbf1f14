"""Products on the threads of the loops: right, in the same order every time, at PyTorch's precision."""

import pytest
import torch
from torch import Tensor

products = pytest.importorskip("node2seq.ops.native.runtime", reason="numba is not installed")

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
    return list(products.gradients((False, True, True), x, table, weight, root)[1:])


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

"""Products on the threads of the loops: right, in the same order every time, at PyTorch's precision."""

import pytest
import torch
from torch import Tensor

products = pytest.importorskip("node2seq.ops.native.runtime", reason="numba is not installed")

SHAPES = [(0, 4, 3), (1, 1, 1), (5, 7, 33), (66, 64, 64), (130, 130, 100), (67, 64, 256), (200, 300, 16)]


def whole_numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "depth", "columns"), SHAPES)
def test_products_of_whole_numbers_are_exact(rows: int, depth: int, columns: int, dtype: torch.dtype):
    """Whatever lies in the memory before, and however many runs there are."""
    x, y = whole_numbers(rows, depth, dtype=dtype), whole_numbers(rows, columns, dtype=dtype)
    matrix = whole_numbers(depth, columns, dtype=dtype)
    nothing = torch.full((rows, columns), torch.nan, dtype=dtype)
    for longest in (0, products.ONE_SUM):
        assert torch.equal(products.multiply(x, matrix, nothing.clone(), longest=longest), x @ matrix)
    assert torch.equal(products.multiply(x, matrix.t().contiguous(), transposed=True), x @ matrix)
    assert torch.equal(products.multiply_transposed(x, y)[0], x.t() @ y)

    runs, by_run = x.repeat(3, 1), torch.stack([matrix, matrix + 1, -matrix])
    expected = runs.view(3, rows, depth) @ by_run
    assert torch.equal(products.multiply(runs, by_run).view(expected.shape), expected)
    found = products.multiply_transposed(runs, y.repeat(3, 1), runs=3)
    assert torch.equal(found, (x.t() @ y).expand(3, depth, columns))


@pytest.mark.parametrize("depth", [64, 192, 1000])
def test_no_less_precise_than_pytorch(depth: int):
    """Products in parts."""
    torch.manual_seed(0)
    x, matrix = torch.randn(500, depth), torch.randn(depth, 80)
    pairs = [(products.multiply(x, matrix), x @ matrix, x.double() @ matrix.double())]
    x, y = torch.randn(depth, 70), torch.randn(depth, 80)
    pairs.append((products.multiply_transposed(x, y)[0], x.t() @ y, x.double().t() @ y.double()))
    for found, beside, exact in pairs:
        assert (found - exact).norm() <= 1.1 * (beside - exact).norm()


def test_bits_depend_neither_on_threads_nor_on_other_rows(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    x, y, matrix = torch.randn(5000, 96), torch.randn(5000, 80), torch.randn(96, 80)
    expected = products.multiply(x, matrix), products.multiply_transposed(x, y)
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert torch.equal(products.multiply(x, matrix), expected[0])
        assert torch.equal(products.multiply_transposed(x, y), expected[1])
    for rows in (1, 6, 777):
        assert torch.equal(products.multiply(x[:rows], matrix), expected[0][:rows])

"""Products of rows with weights, on the threads of the loops.

A sum runs over its terms in order, a long one in parts of 64 that are then added up: its bits depend neither
on the threads nor on the number of rows, and it loses no more digits than PyTorch's does. What orders follow
from is summed in one go up to 192 terms, as PyTorch does it in float32: those bits are the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import run

# So many multiplications are worth handing over to another thread: about 30 µs of work.
_TERMS_PER_PART = 2**22
_MOST_PARTS = 16
# So many terms PyTorch adds up in one go, and more than that in parts.
ONE_SUM = 192


def multiply(
    x: Tensor,
    matrix: Tensor,
    out: Tensor | None = None,
    *,
    transposed: bool = False,
    longest: int = 0,
) -> Tensor:
    """Rows times a matrix, or each run's rows times its own, [M, K] by [K, N] or [R, K, N], to [M, N].

    Args:
        x (torch.Tensor): The rows, one after the other in memory.
        matrix (torch.Tensor): What they are multiplied with.
        out (torch.Tensor, optional): Where the result goes.
        transposed (bool): Whether the matrix is given as [N, K] or [R, N, K].
        longest (int): So many terms are added up in one go.
    """
    rows, columns = x.size(0), matrix.size(-2 if transposed else -1)
    if out is None:
        out = x.new_empty(rows, columns)
    parts = _parts(x.numel() * columns)
    cuts = [rows * part // parts for part in range(parts + 1)]
    by_run = matrix.contiguous().view(-1, *matrix.shape[-2:])
    run(kernels.multiply, cuts, x, by_run, transposed, longest, out)
    return out


def multiply_transposed(x: Tensor, y: Tensor, runs: int = 1) -> Tensor:
    """The sum over rows of their outer products, [M, K] and [M, N] to [R, K, N] for the rows of R runs.

    Parts of the rows have a sum each. How many there are depends on the shapes alone.
    """
    parts = _parts(x.numel() * y.size(-1) // runs)
    out = x.new_empty(runs * parts, x.size(-1), y.size(-1))
    run(kernels.multiply_transposed, range(runs * parts + 1), x, y, out)
    if parts == 1:
        return out
    first, *others = out.view(runs, parts, *out.shape[1:]).unbind(1)
    for other in others:
        first += other
    return first


def _parts(terms: int) -> int:
    return max(min(terms // _TERMS_PER_PART, _MOST_PARTS), 1)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Rows times the transposed weight, [..., C] by [D, C], to [..., D]."""
    if is_recorded(x, weight):
        return _Linear.apply(x, weight)  # pyright: ignore[reportReturnType]
    return _linear(x, weight)


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    out = multiply(x.contiguous().view(-1, x.size(-1)), weight, transposed=True, longest=ONE_SUM)
    return out.view(*x.shape[:-1], weight.size(0))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _linear(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        grad = grad.contiguous().view(-1, grad.size(-1))
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = multiply(grad, weight).view(x.shape)
        if ctx.needs_input_grad[1]:
            grad_weight = multiply_transposed(grad, x.contiguous().view(-1, x.size(-1)))[0]
        return grad_x, grad_weight

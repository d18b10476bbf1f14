"""Equation 7 in the same product as equation 5: an extra tap, applied to the node itself."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

from node2seq.ops.sequences import multiply


def matrix_of(weight: Tensor, root: Tensor | None) -> Tensor:
    """The taps [K, C, D] below each other, and the transposed root [D, C] below them, if there is one."""
    taps = weight.flatten(-3, -2)
    return taps if root is None else torch.cat([taps, root.mT], dim=-2)


def add_product(bias: Tensor | None, x: Tensor, matrix: Tensor) -> Tensor:
    """Rows times one matrix, or each run's rows times its own, and the bias."""
    if bias is None:
        return multiply(x, matrix)
    if matrix.dim() == 2:
        return torch.addmm(bias, x, matrix)
    by_run = x.view(matrix.size(0), -1, x.size(-1))
    return torch.baddbmm(bias.unsqueeze(-2), by_run, matrix).view(-1, matrix.size(-1))


@overload
def cast(value: Tensor, dtype: torch.dtype) -> Tensor: ...
@overload
def cast(value: Tensor | None, dtype: torch.dtype) -> Tensor | None: ...
def cast(value: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A tensor in another type, which takes a call only where it has another; nothing stays nothing."""
    return value if value is None or value.dtype == dtype else value.to(dtype)

"""Rows times weights, and back; for R runs as one disjoint union, each run's rows meet its own weights."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops.native.tables import Table
from node2seq.ops.reference import project as project

# Products run over a row in one go: over longer ones they lose more than twice what a convolution loses.
_LONGEST_ROW = 64


def project_to_table(x: Tensor, weight: Tensor) -> Table:
    """The same as ``project(x, weight)``, for what is soon thrown away."""
    table = Table((x.size(0), weight.size(-1)), x.dtype)
    if weight.dim() == 2:
        torch.mm(x, weight, out=table.tensor)
    else:
        runs = weight.size(0)
        torch.bmm(x.view(runs, -1, x.size(-1)), weight, out=table.tensor.view(runs, -1, weight.size(-1)))
    return table


def project_long(x: Tensor, weight: Tensor) -> Tensor:
    """The same as ``project(x, weight)`` for long rows: cut into parts, a product loses fewer digits."""
    parts = list(zip(x.split(_LONGEST_ROW, -1), weight.split(_LONGEST_ROW, -2), strict=True))
    out = project(*parts[0])
    for x_part, weight_part in parts[1:]:
        if weight.dim() == 2:
            out.addmm_(x_part, weight_part)
        else:
            runs = weight.size(0)
            x_part = x_part.view(runs, -1, x_part.size(-1))
            out.view(runs, -1, out.size(-1)).baddbmm_(x_part, weight_part)
    return out


def project_weight_grad(x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the weight in ``project(x, weight)``."""
    if weight.dim() == 2:
        return x.t() @ grad
    runs = weight.size(0)
    return x.view(runs, -1, x.size(-1)).transpose(1, 2) @ grad.view(runs, -1, grad.size(-1))

"""Dense maps whose weights may be those of R runs, with a leading dimension of runs.

Features of one kind for all runs are [N, C], features of each run [R, N, C]; results of stacked weights are
[R, N, D]. A plain layer works as usual.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.module import _has_any_global_hook
from torch.nn.parameter import UninitializedParameter

from node2seq.ops.sparse import SparseRows


def runs_of(x: Tensor | SparseRows) -> int:
    """How many runs' features these are."""
    return x.size(0) if x.dim() == 3 else 1


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a linear layer may be read as a matrix: nobody put another in its place or listens to it."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    is_linear = type(module) in (nn.Linear, torch_geometric.nn.Linear) and "forward" not in vars(module)
    return is_linear and not any(hooks) and not _has_any_global_hook()


def linear(x: Tensor | SparseRows, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows times the transposed weight [D, C], or each run's rows times its own, [R, D, C]."""
    if isinstance(x, SparseRows):
        return add_bias(x.times(weight), bias)
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    if x.dim() == 2:  # one product for all runs
        out = F.linear(x, weight.flatten(0, 1)).view(x.size(0), *weight.shape[:2]).transpose(0, 1)
    else:
        out = x @ weight.transpose(1, 2)
    return add_bias(out, bias)


def initialize(lin: nn.Module, x: Tensor | SparseRows) -> None:
    """Gives a linear layer without a size the size of its first input."""
    if isinstance(lin, torch_geometric.nn.Linear) and isinstance(lin.weight, UninitializedParameter):
        lin.initialize_parameters(lin, (x,))


def project(lin: torch_geometric.nn.Linear, x: Tensor | SparseRows) -> Tensor:
    """A linear map, in float32 or better; each run's rows lie behind each other."""
    initialize(lin, x)
    dtype = torch.promote_types(torch.promote_types(x.dtype, lin.weight.dtype), torch.float32)
    if x.dtype == lin.weight.dtype == dtype:
        return apply(lin, x).contiguous()
    wide = {name: parameter.to(dtype) for name, parameter in lin.named_parameters()}
    if is_plain_linear(lin):
        return linear(x.to(dtype), wide["weight"], wide.get("bias")).contiguous()
    return functional_call(lin, wide, (dense(x).to(dtype),)).contiguous()


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Leaves autocast for a while; where it is off already, that would take as long as starting a kernel.

    Rounded to 16 bits, projections reorder a third of the longer sequences.
    """
    is_on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if is_on else nullcontext()


def add_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """A bias [D] for all rows, or one for each run's rows, [R, D]."""
    if bias is None:
        return x
    return x + (bias if bias.dim() == 1 else bias.unsqueeze(-2))


def dense(x: Tensor | SparseRows) -> Tensor:
    """Features as a plain matrix, for what knows no other."""
    return x.to_dense() if isinstance(x, SparseRows) else x


def apply(module: nn.Module, x: Tensor | SparseRows) -> Tensor:
    """Call a linear layer, a normalisation, or several modules in a row, of one run or of R."""
    if isinstance(module, nn.Sequential):
        for part in module:
            x = apply(part, x)
        return dense(x)
    weight = getattr(module, "weight", None)
    if weight is None or isinstance(weight, UninitializedParameter):
        return module(dense(x))
    is_linear = isinstance(module, (nn.Linear, torch_geometric.nn.Linear))
    if is_linear and (weight.dim() == 3 or (isinstance(x, SparseRows) and is_plain_linear(module))):
        return linear(x, weight, module.bias)
    x = dense(x)
    if isinstance(module, nn.BatchNorm1d) and weight.dim() == 2:
        return _batch_norm(module, x)
    if isinstance(module, nn.LayerNorm) and weight.dim() == 2:
        normed = F.layer_norm(x, x.shape[-1:], eps=module.eps)
        return add_bias(normed * weight.unsqueeze(-2), module.bias)
    return module(x)


def _batch_norm(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    """Each run's channels as channels of their own."""
    runs, nodes, channels = x.shape
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    if norm.training:
        norm.num_batches_tracked.add_(1)
    out = F.batch_norm(
        x.transpose(0, 1).reshape(nodes, runs * channels),
        norm.running_mean.view(-1),
        norm.running_var.view(-1),
        norm.weight.view(-1),
        norm.bias.view(-1),
        norm.training,
        norm.momentum,
        norm.eps,
    )
    return out.view(nodes, runs, channels).transpose(0, 1)

"""Features times weights, where the weights may be those of R runs, with a leading dimension of runs.

Features of one kind for all runs are [N, C], features of each run [R, N, C]; results of stacked weights are
[R, N, D]. A plain layer works as usual.

Features that are mostly zeros, as bags of words are, are dropped and multiplied without them: a row of
features is a sequence whose sources are the columns, so that a product with weights is the weighted sum that
GCN layers take over neighbours, forward and backward, for one run or for R.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.module import _has_any_global_hook
from torch.nn.parameter import UninitializedParameter

from node2seq.ops import eager
from node2seq.ops.dispatch import NATIVE_DTYPES, fastest_for
from node2seq.ops.dropout import counter_dropout
from node2seq.ops.plan_cache import PLANS
from node2seq.ops.sequences import MOST_ENTRIES, Root, Rows, Sequences

# Above that share of values that are not zero a dense product is faster.
_LARGEST_SHARE = 0.1
# Products run over a row in one go: over longer ones they lose more than twice what a convolution loses, so
# that long rows are cut into parts.
_LONGEST_ROW = 64
# So many rows tell dense features from others before all of them are looked at.
_PROBED_ROWS = 1000
# Layers that are a product and nothing else.
_LINEAR = (nn.Linear, torch_geometric.nn.Linear)


class SparseRows:
    """The values of a matrix that are not zero, of one run or of R that have them in the same places.

    Has of a tensor what layers ask of their input before they multiply it.

    Args:
        sequences (Sequences): The columns of each row.
        values (torch.Tensor): The value of each entry, [E] or [R, E].
    """

    def __init__(self, sequences: Sequences, values: Tensor) -> None:
        self.sequences = sequences
        self.values = values
        self.shape = torch.Size([*values.shape[:-1], sequences.rows.num_rows, sequences.num_sources])
        self.dtype, self.device, self.is_cuda = values.dtype, values.device, values.is_cuda

    def dim(self) -> int:
        """Two, or three for R runs."""
        return len(self.shape)

    def size(self, dim: int) -> int:
        """The length of a dimension."""
        return self.shape[dim]

    def is_floating_point(self) -> bool:
        """Whether the values are no whole numbers."""
        return self.values.is_floating_point()

    def isfinite(self) -> Tensor:
        """Whether each of the values is."""
        return self.values.isfinite()

    def to(self, target: torch.dtype | torch.device) -> SparseRows:
        """The same in another precision, or on another device."""
        if target in (self.dtype, self.device):
            return self
        if isinstance(target, torch.dtype):
            return SparseRows(self.sequences, self.values.to(target))
        rows, index = self.sequences.rows, self.sequences.index.to(target)
        rows = Rows(rows.ptr.to(target), rows.target.to(target))
        return SparseRows(Sequences(rows, index, self.sequences.num_sources), self.values.to(target))

    def take(self, rows: Tensor) -> SparseRows:
        """Some rows of one run's matrix."""
        ptr = self.sequences.rows.ptr
        first, length = ptr[rows], ptr[rows + 1] - ptr[rows]
        taken = Rows.from_lengths(length)
        entry = torch.arange(taken.num_entries) + (first - taken.ptr[:-1])[taken.target]
        index = self.sequences.index[entry]
        return SparseRows(Sequences(taken, index, self.sequences.num_sources), self.values[entry])

    def to_dense(self) -> Tensor:
        """The matrix with its zeros."""
        out = self.values.new_zeros(self.shape)
        out[..., self.sequences.rows.target, self.sequences.index] = self.values
        return out

    def drop(
        self,
        p: float | Tensor,
        seed: Tensor,
        step: Tensor,
        layer: int,
        nodes: Tensor | None = None,
        whole_rows: bool = False,
    ) -> SparseRows:
        """What :func:`node2seq.ops.counter_dropout` makes of the matrix: its zeros stay zeros anyway."""
        row, column = self.sequences.rows.target, self.sequences.index
        element = row if nodes is None else nodes[row]
        if not whole_rows:
            element = element * self.sequences.num_sources + column
        values = counter_dropout(self.values.unsqueeze(-1), p, seed, step, layer, element)
        return SparseRows(self.sequences, values.squeeze(-1))

    def times(self, weight: Tensor) -> Tensor:
        """The product with the transposed weight, [D, C] or [R, D, C]: [N, D] or [R, N, D]."""
        rows, runs = self.size(-2), weight.shape[:-2]
        if self.dim() == 2:  # one product for all runs
            table = weight.flatten(0, -2).t().contiguous()
            out = self._sum(table, self.sequences)
            return out.view(rows, *weight.shape[:-1]).movedim(0, -2) if runs else out
        table = weight.transpose(-2, -1).expand(self.size(0), -1, -1).flatten(0, 1)
        return self._sum(table, self.sequences.copies(self.size(0))).view(-1, rows, weight.size(-2))

    def _sum(self, table: Tensor, sequences: Sequences) -> Tensor:
        backend = fastest_for(table) or eager
        return backend.aggregate(table, sequences, self.values.reshape(-1))


def sparse_rows(x: Tensor) -> SparseRows | None:
    """The values of ``x`` that are not zero, if they are few enough to be worth it; found once per ``x``."""
    if x.dim() != 2 or x.dtype not in NATIVE_DTYPES or x.requires_grad:
        return None
    return PLANS.get(x, "sparse rows", lambda: find_sparse_rows(x))


def find_sparse_rows(x: Tensor) -> SparseRows | None:
    """The same, found now."""
    few = x[:: x.size(0) // _PROBED_ROWS + 1]
    if int(few.count_nonzero()) > 2 * _LARGEST_SHARE * few.numel():  # nothing large is made of dense features
        return None
    is_set = x != 0
    length = is_set.sum(1)
    if int(length.sum()) > min(_LARGEST_SHARE * x.numel(), MOST_ENTRIES):
        return None
    column = is_set.nonzero()[:, 1].contiguous()
    return SparseRows(Sequences(Rows.from_lengths(length), column, x.size(1)), x[is_set])


def runs_of(x: Tensor | SparseRows) -> int:
    """How many runs' features these are."""
    return x.size(0) if x.dim() == 3 else 1


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a linear layer may be read as a matrix: nobody put another in its place or listens to it."""
    if type(module) not in _LINEAR or "forward" in vars(module):
        return False
    own = module._forward_hooks or module._forward_pre_hooks
    own = own or module._backward_hooks or module._backward_pre_hooks
    return not own and not _has_any_global_hook()


def root_of(lin: nn.Module | None, bias: Tensor | None) -> Root | None:
    """A map of the own features and a bias behind it as tensors, where the map may be read as a matrix."""
    if lin is None or lin.bias is not None or not is_plain_linear(lin):
        return None
    return Root(lin.weight, bias)  # pyright: ignore[reportArgumentType]


def linear(x: Tensor | SparseRows, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows times the transposed weight [D, C], or each run's rows times its own, [R, D, C]."""
    if isinstance(x, SparseRows):
        return add_bias(x.times(weight), bias)
    x = dense(x)
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


def project(lin: torch_geometric.nn.Linear, x: Tensor | SparseRows, backend: Any = None) -> Tensor:
    """A linear map, in float32 or better; each run's rows lie behind each other.

    Args:
        lin (torch.nn.Module): The linear layer.
        x (torch.Tensor or SparseRows): The rows.
        backend (module, optional): What multiplies them if it is quicker at that than PyTorch.
    """
    initialize(lin, x)
    dtype = product_dtype(x, lin)
    multiply = None if torch.compiler.is_compiling() else getattr(backend, "linear", None)
    if multiply is not None and isinstance(x, Tensor) and lin.bias is None and is_plain_linear(lin):
        product = multiply(dense(x).to(dtype), lin.weight.to(dtype))
        if product is not None:
            return product
    if x.dtype == lin.weight.dtype == dtype:
        return apply(lin, x).contiguous()
    wide = {name: parameter.to(dtype) for name, parameter in lin.named_parameters()}
    if is_plain_linear(lin):
        return linear(x.to(dtype), wide["weight"], wide.get("bias")).contiguous()
    return functional_call(lin, wide, (dense(x).to(dtype),)).contiguous()


def product_dtype(x: Tensor | SparseRows, lin: nn.Module) -> torch.dtype:
    """What rows are multiplied in: the wider type of both, and at least float32."""
    first, second = x.dtype, lin.weight.dtype
    if first == second == torch.float32:  # as nearly always
        return torch.float32
    return torch.promote_types(torch.promote_types(first, second), torch.float32)  # pyright: ignore[reportArgumentType]


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Leaves autocast for a while; where it is off already, that would take as long as starting a kernel.

    Rounded to 16 bits, projections reorder a third of the longer sequences.
    """
    is_on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if is_on else nullcontext()


def storage_dtype(x: Tensor) -> torch.dtype:
    """The type that rows may be stored in: autocast's, or that of 16-bit features; else 32 bits."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype if x.dtype in (torch.bfloat16, torch.float16) else torch.float32


def add_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """A bias [D] for all rows, or one for each run's rows, [R, D]."""
    if bias is None:
        return x
    return x + (bias if bias.dim() == 1 else bias.unsqueeze(-2))


def dense(x: Tensor | SparseRows) -> Tensor:
    """Features as a plain matrix, for what knows no other."""
    return x.to_dense() if isinstance(x, SparseRows) or x.layout != torch.strided else x


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
    if is_linear and (weight.dim() == 3 or is_plain_linear(module)):
        return linear(x, weight, module.bias)
    x = dense(x)
    if isinstance(module, nn.BatchNorm1d) and weight.dim() == 2:
        return _batch_norm(module, x)
    if isinstance(module, nn.BatchNorm1d) and x.dim() == 3:  # the nodes of several graphs
        return module(x.flatten(0, 1)).view(x.shape)
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


def multiply_in_parts(rows: Tensor, matrix: Tensor) -> Tensor:
    """Rows times a matrix, or each run's rows times its own, added up over parts of the rows."""
    parts = zip(rows.split(_LONGEST_ROW, -1), matrix.split(_LONGEST_ROW, -2), strict=True)
    out = torch.matmul(*next(parts))
    for part in parts:
        out = out.baddbmm_(*part) if matrix.dim() == 3 else out.addmm_(*part)
    return out

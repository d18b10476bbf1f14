"""Features that are mostly zeros, as bags of words are: their other values alone are dropped and multiplied.

A row of features is a sequence whose sources are the columns, so that a product with weights is the weighted
sum that GCN layers take over neighbours, forward and backward, for one run or for R.
"""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops import eager
from node2seq.ops.dispatch import NATIVE_DTYPES, fastest_for
from node2seq.ops.dropout import counter_dropout
from node2seq.ops.plan_cache import PLANS
from node2seq.ops.sequences import MOST_ENTRIES, Rows, Sequences

# Above that share of values that are not zero a dense product is faster.
_LARGEST_SHARE = 0.1
# So many rows tell dense features from others before all of them are looked at.
_PROBED_ROWS = 1000


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

    def to(self, dtype: torch.dtype) -> SparseRows:
        """The same in another precision."""
        return self if dtype == self.dtype else SparseRows(self.sequences, self.values.to(dtype))

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

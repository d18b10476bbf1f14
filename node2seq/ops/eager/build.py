"""The sequences of a small graph on a CPU, sorted by NumPy, whose calls take half the time of PyTorch's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from node2seq.ops.sequences import Rows, Sequences

_FEW_ENTRIES = 2**15


def build(
    source: Tensor,
    target: Tensor,
    num_sources: int,
    num_targets: int,
    *,
    add_self_loops: bool,
    merge_duplicates: bool,
    expect_backward: bool = False,  # noqa: ARG001
) -> Sequences | None:
    """Sorts edges into sequences, sources ascending; nothing if an id does not exist or the graph is large.

    The arguments are those of :func:`node2seq.ops.plan_cache.build_sequences`.
    """
    bits = num_sources.bit_length()
    is_small = max(source.numel(), num_targets) <= _FEW_ENTRIES and num_targets.bit_length() + bits <= 31
    if source.is_cuda or not is_small or not source.numel():
        return None
    columns, rows = source.numpy(), target.numpy()
    # Without a sign, negative ids are the largest.
    largest = np.maximum.reduce
    if largest(columns.view(np.uint64)) >= num_sources or largest(rows.view(np.uint64)) >= num_targets:
        return None
    loops = min(num_sources, num_targets) if add_self_loops else 0
    if add_self_loops and not merge_duplicates:
        is_edge = columns != rows
        columns, rows = columns[is_edge], rows[is_edge]
    # Numbers that sort by target, then source, in half the time of 64 bits; the first is below all others.
    key, step = np.empty(1 + rows.size + loops, np.int32), (1 << bits) + 1
    key[0] = -1
    np.add(rows << bits, columns, out=key[1 : 1 + rows.size], casting="unsafe")
    key[1 + rows.size :] = np.arange(0, loops * step, step)
    key.sort()
    key = key[1:][key[1:] != key[:-1]] if merge_duplicates else key[1:]
    key = key.astype(np.int64)
    rows = key >> bits
    ptr = np.bincount(rows + 1, minlength=num_targets + 1).cumsum()
    key &= (1 << bits) - 1
    ptr, rows, columns = (torch.from_numpy(found) for found in (ptr, rows, key))
    return Sequences(Rows(ptr, rows), columns, num_sources)

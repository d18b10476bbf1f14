"""Neighbours drawn at random by a loop over the nodes of a batch."""

from __future__ import annotations

import numpy as np

from node2seq.ops.native import kernels
from node2seq.ops.sampling import Array, Hop


def sample_hop(
    colptr: Array,
    row: Array,
    frontier: Array,
    first: int,
    fanout: int,
    key: int,
    latest: bool,
    place: Array,
) -> Hop:
    """What :func:`node2seq.ops.sampling.sample_hop` draws, bit for bit."""
    length = colptr[frontier + 1] - colptr[frontier]
    total = int((length if fanout < 0 else np.minimum(length, fanout)).sum())
    node, source, target, edge = (np.empty(total, dtype=np.int64) for _ in range(4))
    drawn = kernels.sample(
        colptr, row, frontier, first, fanout, np.uint64(key), latest, place, node, source, target, edge
    )
    return Hop(node[:drawn].copy(), source, target, edge)

"""Edges → the sequences of a graph, by two sorts that count: first by source, then by target."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import LARGEST_INT32
from node2seq.ops.native.runtime import run
from node2seq.ops.sequences import Rows, Sequences


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
    """Sorts edges into sequences, sources ascending; nothing if an id does not exist.

    Args:
        source (torch.Tensor): The source of each edge, [E].
        target (torch.Tensor): Its target, [E].
        num_sources (int): The number of source nodes M.
        num_targets (int): The number of target nodes N.
        add_self_loops (bool): Whether each node is its own source; given self loops are left out then.
        merge_duplicates (bool): Whether an edge that is listed twice counts once.
        expect_backward (bool): Of no use here: the transposed graph is as quick to build later.
    """
    self_entries = min(num_sources, num_targets) if add_self_loops else 0
    fits = max(source.numel() + self_entries, num_sources, num_targets) <= LARGEST_INT32
    by_source = torch.empty(num_sources + 1, dtype=torch.int32 if fits else torch.int64)
    ptr = source.new_empty(num_targets + 1)
    edges = (source, target, self_entries)
    run(kernels.count_edges, [0, 1], *edges, by_source, ptr)
    entries = int(ptr[-1])
    if ptr[0] < 0:
        return None
    row, index = source.new_empty(entries), source.new_empty(entries)
    run(kernels.sort_edges, [0, 1], *edges, merge_duplicates, by_source, ptr, row, index)
    kept = int(ptr[-1])
    if kept < entries:  # copied: a view would hold the memory of the duplicates
        row, index = row[:kept].clone(), index[:kept].clone()
    return Sequences(Rows(ptr, row), index, num_sources)

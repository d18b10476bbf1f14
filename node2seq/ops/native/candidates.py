"""Who lies within several hops of each node, found by walking from one after the other; listed once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from node2seq.ops.candidates import Candidates, DrawnCandidates, most_kept
from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import cut_evenly, plan_of, run
from node2seq.ops.sequences import Sequences, lasting

# Counting ends soon after there are too many: so often it is looked at.
_STOPS = 8


@dataclass
class Lists:
    """The candidates of each row of a graph, ascending."""

    ptr: Tensor  # [N + 1] where each list starts, and where the last one ends
    index: Tensor  # the nodes, int32 where they fit
    cuts: list[int]  # rows at which to cut


def find_lists(sequences: Sequences, hops: int, most: int) -> Lists | None:
    """For every node, the others with a path of two to ``hops`` edges to it and none of one.

    Args:
        sequences (Sequences): The neighbours of each node in a square graph.
        hops (int): The largest number of edges of a path.
        most (int): How many there may be in all; nothing is listed if there are more.
    """
    plan, rows = plan_of(sequences), sequences.rows
    length = rows.length()
    touched = torch.zeros_like(length).index_add_(0, rows.target, length[sequences.index])
    cuts = cut_evenly(_running_total(touched))
    count = torch.empty_like(length)
    stops = [*cuts[: -1 : max(len(cuts) // _STOPS, 1)], cuts[-1]]
    for first, last in pairwise(stops):
        part = cuts[cuts.index(first) : cuts.index(last) + 1]
        run(kernels.count_candidates, part, hops, plan.ptr, plan.index, count)
        if int(count[:last].sum()) > most:
            return None
    ptr = _running_total(count)
    index = torch.empty(int(ptr[-1]), dtype=plan.dtype)
    run(kernels.list_candidates, cuts, hops, plan.ptr, plan.index, ptr, index)
    return Lists(ptr, index, cut_evenly(ptr))


def lists_of(candidates: Candidates) -> Lists | None:
    """The lists of a graph, kept with its candidates; none where they are too many to keep."""
    if "native" not in candidates.plans:
        with lasting():
            candidates.plans["native"] = _make_lists(candidates)
    return candidates.plans["native"]


def _make_lists(candidates: Candidates) -> Lists | None:
    if isinstance(candidates, DrawnCandidates):
        drawn = candidates.listed()
        assert drawn is not None
        index = drawn.index.to(plan_of(candidates.sequences).dtype)
        return Lists(drawn.rows.ptr, index, cut_evenly(drawn.rows.ptr))
    most = most_kept(candidates.sequences.index.device)
    return find_lists(candidates.sequences, candidates.hops, most)


def _running_total(count: Tensor) -> Tensor:
    return torch.cat([count.new_zeros(1), count.cumsum(0)])

"""Equations 2 to 4 for local neighbours in one pass over the rows; what is not needed only if asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import CpuPlan, plan_of
from node2seq.ops.native.runtime import run
from node2seq.ops.ranking import Convolution, Layout, Positions, Ranking
from node2seq.ops.sequences import Sequences

# Scores are sorted as whole numbers of the same width.
_KEY = {torch.float32: torch.int32, torch.float64: torch.int64}


def score_and_place(query: Tensor, key: Tensor, plan: CpuPlan) -> tuple[Tensor, Tensor, Layout]:
    """Scores each target's neighbours and sorts them.

    Returns:
        Who goes first where scores tie, as whole numbers, the smaller first, [M]; the score of each of the
        graph's own entries, [E]; and the sequences in their new order.
    """
    own = torch.empty(key.size(0), dtype=_KEY[key.dtype])
    run(kernels.own_keys, plan.source_cuts, key, own)
    scores = query.new_empty(plan.rows.num_entries)
    layout = Layout(plan, torch.empty_like(plan.index), torch.empty_like(plan.index))
    given = (query, key, own, plan.ptr, plan.index, plan.longest)
    run(kernels.arrange, plan.cuts, *given, scores, layout.index, layout.place)
    return own, scores, layout


def score_and_rank(
    query: Tensor, key: Tensor, sequences: Sequences, _then: Convolution | None = None
) -> Ranking:
    """Scores each target's neighbours and ranks them. No gradient passes through."""
    plan = sequences.plans.get("native") or plan_of(sequences)
    _, scores, layout = score_and_place(query.contiguous(), key.contiguous(), plan)

    def find() -> Positions:
        order = layout.order()
        return Positions(layout.index.long(), scores[order], order)

    return Ranking(sequences, layout, find)

"""The adaptive non-local selection: candidates are listed once, or walked to where they are too many."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops.candidates import Candidates
from node2seq.ops.native import kernels
from node2seq.ops.native.candidates import lists_of
from node2seq.ops.native.runtime import own_keys, plan_of, run, score_and_place
from node2seq.ops.sequences import Positions, Ranking, Sequences


def select(
    query: Tensor,
    key: Tensor,
    sequences: Sequences,
    candidates: Candidates,
    threshold: float | Tensor,
    joint: bool,
) -> Ranking:
    """Local selection, non-local selection and index ranking; see :func:`node2seq.ops.selection.select`.

    Args:
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [N, D].
        sequences (Sequences): The local neighbours.
        candidates (Candidates): The candidates several hops away.
        threshold (float or torch.Tensor): β; one for all, or one for each target, [N].
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
    """
    plan = plan_of(sequences)
    query, key = query.contiguous(), key.contiguous()
    own, (scores, local_order) = own_keys(key, plan), score_and_place(query, key, plan)
    limit = torch.as_tensor(threshold, dtype=query.dtype).expand(plan.rows.num_rows).contiguous()

    # Row by row in the place of its own sequence: no more come in than go out.
    far_score, far = torch.empty_like(scores), torch.empty_like(plan.index)
    found = plan.index.new_empty(plan.rows.num_rows)
    local, best = (query, key, own, scores, limit, plan.ptr, plan.longest), (far_score, far, found)
    lists = lists_of(candidates.base)
    if lists is None:
        run(kernels.best_walked, plan.cuts, *local, plan.index, candidates.hops, *best)
    else:
        nodes = len(lists.ptr) - 1
        copies = plan.rows.num_rows // max(nodes, 1)
        cuts = [0, *(cut + copy * nodes for copy in range(copies) for cut in lists.cuts[1:])]
        run(kernels.best_listed, cuts, *local, lists.ptr, lists.index, *best)

    positions = Positions(
        node=torch.empty_like(sequences.index),
        score=torch.empty_like(scores),
        entry=torch.empty_like(sequences.index),
    )
    ranked = (own, plan.ptr, plan.index, plan.longest, scores, local_order.place, limit)
    run(kernels.merge, plan.cuts, *ranked, *best, joint, *positions)
    return Ranking(sequences, sequences.with_sources(positions.node), lambda: positions)

"""The adaptive non-local selection, row by row in bounded memory: no list of candidates is ever kept."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops.native import kernels
from node2seq.ops.native.plan import plan_of
from node2seq.ops.native.pool import run
from node2seq.ops.native.ranking import own_keys
from node2seq.ops.reach import Reach
from node2seq.ops.selection import Ranking
from node2seq.ops.sequences import Sequences


def select(
    query: Tensor, key: Tensor, sequences: Sequences, reach: Reach, threshold: float | Tensor, joint: bool
) -> Ranking:
    """Local selection, non-local selection and index ranking; see :func:`node2seq.ops.selection.select`.

    Args:
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [N, D].
        sequences (Sequences): The local neighbours.
        reach (Reach): How many hops to go; the candidates themselves are found by walking.
        threshold (float or torch.Tensor): β; one for all, or one for each target, [N].
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
    """
    plan = plan_of(sequences)
    query, key = query.contiguous(), key.contiguous()
    limit = torch.as_tensor(threshold, dtype=query.dtype).expand(plan.rows.num_rows).contiguous()
    ranking = Ranking(
        node=torch.empty_like(sequences.index),
        score=query.new_empty(plan.rows.num_entries),
        entry=torch.empty_like(sequences.index),
    )
    run(
        kernels.select,
        plan.cuts,
        query,
        key,
        own_keys(key, plan),
        plan.ptr,
        plan.index,
        plan.longest,
        reach.hops,
        limit,
        joint,
        *ranking,
    )
    return ranking

"""The adaptive selection: weak neighbours make room for strong nodes several hops away."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from node2seq.ops.candidates import Candidates
from node2seq.ops.sequences import Positions, Ranking, Rows, Sequences, rank_parallel


def select(
    backend: Any,
    query: Tensor,
    key: Tensor,
    sequences: Sequences,
    candidates: Candidates,
    threshold: float | Tensor,
    joint: bool,
    added: Tensor | None = None,
    *,
    parallel: bool = False,
) -> Ranking:
    """Local selection, non-local selection and index ranking; every sequence keeps its length.

    Args:
        backend: What holds the ``score``, the ``precedence`` and the ``rank`` to use.
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [N, D].
        sequences (Sequences): The local neighbours.
        candidates (Candidates): Those several hops away.
        threshold (float or torch.Tensor): β: a local neighbour stays if its score is larger; one for all
            targets, or one for each, [N].
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
        added (torch.Tensor, optional): What the attributes of edges add to each local score, [E].
        parallel (bool): Whether parallel edges have an entry each.
    """
    score = backend.score(query, key, sequences)
    ties = backend.precedence((key * key).sum(-1))
    local = (query, key, score if added is None else score + added, ties, sequences)
    return select_by_score(backend, *local, candidates, threshold, joint, parallel=parallel)


def select_by_score(
    backend: Any,
    query: Tensor,
    key: Tensor,
    score: Tensor,
    order_of_ties: Tensor,
    sequences: Sequences,
    candidates: Candidates,
    threshold: float | Tensor,
    joint: bool,
    *,
    parallel: bool = False,
) -> Ranking:
    """The same by the score of each local entry, [E], and the precedence of each node, [N].

    Parallel edges have an entry each.
    """
    rows = sequences.rows

    def rank(score: Tensor, listed: Sequences) -> Tensor:
        if parallel:
            return rank_parallel(backend, score, order_of_ties[listed.index], sequences)
        return backend.rank(score, order_of_ties, listed)

    order = rank(score, sequences)
    if not rows.num_entries:
        return Ranking(sequences, sequences, lambda: Positions(sequences.index, score, order))
    kept = score[order] > (threshold[rows.target] if isinstance(threshold, Tensor) else threshold)
    wanted = _sum_per_row(~kept, rows)
    nonlocal_row, found_node, found_score = _best_candidates(
        backend, query, key, order_of_ties, candidates, wanted
    )
    found = torch.bincount(nonlocal_row, minlength=rows.num_rows)

    # Where candidates are too few, the best of the dropped come back.
    dropped = ~kept
    before = dropped.cumsum(0) - dropped.long()
    dropped_rank = before - before[rows.ptr[:-1].clamp(max=rows.num_entries - 1)][rows.target]
    chosen = kept | (dropped_rank < (wanted - found)[rows.target])

    # Both kinds are in rank order already: locals fill a row from its start, non-locals up to its end.
    local_entry = order[chosen]
    local_row = rows.target[chosen]
    local_at = rows.ptr[local_row] + Rows.from_lengths(rows.length() - found).position()
    nonlocal_at = rows.ptr[nonlocal_row + 1] - found[nonlocal_row] + Rows.from_lengths(found).position()
    at = torch.cat([local_at, nonlocal_at])
    positions = Positions(
        node=_place(at, torch.cat([sequences.index[local_entry], *found_node])),
        score=_place(at, torch.cat([score[local_entry], *found_score])),
        entry=_place(at, torch.cat([local_entry, torch.full_like(nonlocal_at, -1)])),
    )
    if joint:
        by_node = Sequences(rows, positions.node, sequences.num_sources)
        positions = positions.reorder(rank(positions.score, by_node))
    return Ranking(sequences, sequences.with_sources(positions.node), lambda: positions)


def _best_candidates(
    backend: Any, query: Tensor, key: Tensor, order_of_ties: Tensor, candidates: Candidates, wanted: Tensor
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The candidates of the rows that dropped someone, best first, as many as there is room for.

    Returns:
        The row of each, and in parts the node and the score.
    """
    row, node, score = [], [], []
    for block, listed in candidates.blocks(wanted.nonzero().view(-1)):
        listed_score = backend.score(query[block], key, listed)
        best = backend.rank(listed_score, order_of_ties, listed)
        taken = best[listed.rows.position() < wanted[block][listed.rows.target]]
        row.append(block[listed.rows.target[taken]])
        node.append(listed.index[taken])
        score.append(listed_score[taken])
    return torch.cat([wanted.new_zeros(0), *row]), node, score


def _sum_per_row(mask: Tensor, rows: Rows) -> Tensor:
    total = torch.cat([rows.ptr.new_zeros(1), mask.cumsum(0)])
    return total[rows.ptr[1:]] - total[rows.ptr[:-1]]


def _place(at: Tensor, values: Tensor) -> Tensor:
    placed = torch.empty_like(values)
    placed[at] = values
    return placed

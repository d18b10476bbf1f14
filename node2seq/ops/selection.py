"""The adaptive selection: weak neighbours make room for strong nodes several hops away."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

from node2seq.ops.candidates import Candidates
from node2seq.ops.sequences import Rows, Sequences


class Ranking(NamedTuple):
    """What stands at each position of the ranked sequences, all [E]."""

    node: Tensor
    """The source node."""
    score: Tensor
    """Its score."""
    entry: Tensor
    """Its entry among the graph's own, or −1 for a non-local node."""

    def ranked(self, sequences: Sequences, hops: int) -> Sequences:
        """The graph's sequences in this order."""
        if hops == 1:
            return sequences.reorder(self.entry)
        return Sequences(sequences.rows, self.node, sequences.num_sources)

    def reorder(self, order: Tensor) -> Ranking:
        """The same in another order within the rows: position e holds what stands at ``order[e]``."""
        return Ranking(*(values[order] for values in self))


def select(
    backend: ModuleType | SimpleNamespace,
    query: Tensor,
    key: Tensor,
    score: Tensor,
    order_of_ties: Tensor,
    sequences: Sequences,
    candidates: Candidates,
    threshold: float | Tensor,
    joint: bool,
) -> Ranking:
    """Local selection, non-local selection and index ranking; every sequence keeps its length.

    Args:
        backend: What holds the ``score`` and the ``rank`` to use.
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [N, D].
        score (torch.Tensor): The score of each local entry, [E].
        order_of_ties (torch.Tensor): The precedence of each node, [N].
        sequences (Sequences): The local neighbours.
        candidates (Candidates): The candidates several hops away.
        threshold (float or torch.Tensor): β: a local neighbour stays if its score is larger; one for all
            targets, or one for each, [N].
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
    """
    rows = sequences.rows
    order = backend.rank(score, order_of_ties, sequences)
    if not rows.num_entries:
        return Ranking(sequences.index, score, order)
    kept = score[order] > (threshold[rows.target] if isinstance(threshold, Tensor) else threshold)
    wanted = _sum_per_row(~kept, rows)

    # Non-local candidates of the rows that dropped someone, best first; as many as there is room for.
    found_row, found_node, found_score = [], [], []
    for block, listed in candidates.blocks(wanted.nonzero().view(-1)):
        candidate_score = backend.score(query[block], key, listed)
        best = backend.rank(candidate_score, order_of_ties, listed)
        room = wanted[block][listed.rows.target]
        taken = best[listed.rows.position() < room]
        found_row.append(block[listed.rows.target[taken]])
        found_node.append(listed.index[taken])
        found_score.append(candidate_score[taken])
    nonlocal_row = torch.cat([rows.ptr.new_zeros(0), *found_row])
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
    ranking = Ranking(
        node=_place(at, torch.cat([sequences.index[local_entry], *found_node])),
        score=_place(at, torch.cat([score[local_entry], *found_score])),
        entry=_place(at, torch.cat([local_entry, torch.full_like(nonlocal_at, -1)])),
    )
    if not joint:
        return ranking
    again = backend.rank(ranking.score, order_of_ties, Sequences(rows, ranking.node, sequences.num_sources))
    return Ranking(*(values[again] for values in ranking))


def _sum_per_row(mask: Tensor, rows: Rows) -> Tensor:
    total = torch.cat([rows.ptr.new_zeros(1), mask.cumsum(0)])
    return total[rows.ptr[1:]] - total[rows.ptr[:-1]]


def _place(at: Tensor, values: Tensor) -> Tensor:
    placed = torch.empty_like(values)
    placed[at] = values
    return placed

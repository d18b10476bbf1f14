"""The order by a number on each edge, such as its time: largest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq.ops import reference
from node2seq.ops.edge_values import EdgeValues, per_entry
from node2seq.ops.plan_cache import PlanCache
from node2seq.ops.sequences import Positions, Ranking, Sequences


class EdgeOrder(NamedTuple):
    """The order of a graph's own entries as far as the numbers of the edges decide it."""

    group: Tensor
    """The place of each entry among all, by target and number; equal where entries tie, [E]."""
    order: Tensor | None
    """The entry at each position, [E], where nothing ties."""


def find_order(sequences: Sequences, edges: EdgeValues, self_last: bool) -> EdgeOrder:
    """The order by the numbers of the edges; found once for a graph and its numbers.

    Args:
        sequences (Sequences): The sequences of one run, with an entry for each edge.
        edges (EdgeValues): What edges carry; their numbers among it.
        self_last (bool): Whether self entries, which are no edges, come last instead of first.
    """
    number = edges.order
    assert number is not None
    cache = sequences.plans.setdefault("edge order", PlanCache())
    return cache.get(number, self_last, lambda: _find_order(number, sequences, edges.entry, self_last))


def _find_order(number: Tensor, sequences: Sequences, entry: Tensor, self_last: bool) -> EdgeOrder:
    rows, edges = sequences.rows, number.numel()
    # In whole numbers: 32 bits are too few for the seconds of a timestamp.
    place = per_entry(
        reference.dense_rank(number) + 1, entry, rows.num_entries, edges + 1 if self_last else 0
    )
    group = reference.dense_rank(-(rows.target * (edges + 2) + place))
    is_distinct = not group.numel() or int(group.max()) + 1 == group.numel()
    return EdgeOrder(group, group.argsort() if is_distinct else None)


def rank_by_edges(
    found: EdgeOrder, ties: Callable[[], Tensor], score: Callable[[], Tensor], union: Sequences
) -> Ranking:
    """The graph's own entries by the numbers of their edges.

    Args:
        found (EdgeOrder): Their order in one run.
        ties (callable): Gives who goes first where numbers tie, [R * M].
        score (callable): Gives the score of each entry, [R * E], if a trace asks for it.
        union (Sequences): The sequences of all runs.
    """
    if found.order is None:
        group = _of_all(found.group, union)
        order = (group * max(union.num_sources, 1) + ties()[union.index]).argsort(stable=True)
    else:
        order = _of_all(found.order, union)
    ranked = union.reorder(order)
    return Ranking(union, ranked, lambda: Positions(ranked.index, score()[order], order))


def rearrange_by_edges(found: EdgeOrder, ties: Tensor, ranking: Ranking) -> Ranking:
    """What was selected, by the numbers of the edges. Non-local nodes have none and come last.

    Args:
        found (EdgeOrder): The order of the graph's own entries in one run.
        ties (torch.Tensor): Who goes first where numbers tie, [R * M].
        ranking (Ranking): What stands at each position now.
    """
    union, (node, _, entry) = ranking.sequences, ranking.positions
    target, everywhere = union.rows.target, entry.numel()
    group = torch.cat([_of_all(found.group, union), entry.new_full((1,), everywhere)])[entry]
    # Four keys, the last one first: parallel edges as they are listed.
    order = entry.argsort(stable=True)
    order = order[(group * max(union.num_sources, 1) + ties[node])[order].argsort(stable=True)]
    positions = ranking.positions.reorder(order[target[order].argsort(stable=True)])
    return Ranking(union, union.with_sources(positions.node), lambda: positions)


def _of_all(values: Tensor, union: Sequences) -> Tensor:
    """Numbers of the entries of one run as those of all runs."""
    runs = union.index.numel() // max(values.numel(), 1)
    if runs < 2:
        return values
    run: Any = torch.arange(runs, device=values.device)[:, None]
    return (values + run * values.numel()).view(-1)

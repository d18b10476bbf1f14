"""Orders that are not learned: by degree, at random, and by a number on each edge, such as its time.

The first two are what the order by attention is compared with. The last one puts the largest number first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq.ops import reference
from node2seq.ops.dropout import pair_word
from node2seq.ops.edge_values import EdgeValues, per_entry
from node2seq.ops.plan_cache import PlanCache
from node2seq.ops.sequences import Positions, Ranking, Sequences


def rearrange(ranking: Ranking, hops: int, seed: Tensor | None, *, parallel: bool = False) -> Ranking:
    """Sorts what was chosen by a fixed order instead of its scores.

    Args:
        ranking (Ranking): What stands at each position now.
        hops (int): How far away the chosen may be; with one hop they are the graph's own entries.
        seed (torch.Tensor, optional): For a random order of each target's own, or one for each of the R runs
            that the graph is a disjoint union of, [R]; by degree if not given.
        parallel (bool): Whether parallel edges have an entry each; these stay as they are listed.
    """
    sequences, positions = ranking.sequences, ranking.positions
    target = sequences.rows.target
    if parallel:  # the sorts below are stable
        listed = target * (target.numel() + 1) + positions.entry + 1
        positions = positions.reorder(listed.argsort(stable=True))
    if seed is None:
        place, places = degree_order(sequences)[positions.node], max(sequences.num_sources, 1)
    else:
        word = _word_of_each(seed, positions.node, sequences).long()
        place, places = reference.precedence(-word), word.numel()
    # Numbers that are all different where no edges are parallel: ONNX has no sort that is stable.
    number = target * places + place
    positions = positions.reorder(number.argsort(stable=True) if parallel else number.argsort())
    if hops == 1:
        return Ranking(sequences, sequences.reorder(positions.entry), lambda: positions)
    return Ranking(sequences, sequences.with_sources(positions.node), lambda: positions)


def _word_of_each(seed: Tensor, node: Tensor, sequences: Sequences) -> Tensor:
    """A random word for each entry, by the numbers that its two nodes have within a run."""
    target = sequences.rows.target
    if seed.dim():
        runs = seed.numel()
        target = target % (sequences.rows.num_rows // runs)
        node = node % (sequences.num_sources // runs)
        seed = seed.repeat_interleave(target.numel() // runs, output_size=target.numel())
    return pair_word(seed, target, node)


def degree_order(sequences: Sequences) -> Tensor:
    """The place of each source node, [M]: in more sequences first, then in longer ones, then smaller id.

    Whole numbers only, so the sums are exact in any order.
    """
    rows, nodes = sequences.rows, sequences.num_sources
    # Behind the last target: the row of traced leftovers, which count for nothing.
    length = torch.cat([rows.length(), rows.ptr.new_zeros(1)])
    counts = (length > 0).long()[rows.target]
    zeros = torch.zeros(nodes, dtype=torch.int64, device=sequences.index.device)
    degree = zeros.index_add(0, sequences.index, counts)
    around = zeros.index_add(0, sequences.index, length[rows.target])
    return reference.precedence(reference.dense_rank(degree) * -nodes - reference.precedence(around))


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

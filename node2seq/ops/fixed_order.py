"""Orders that are not learned: what the order by attention is compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops import reference
from node2seq.ops.dropout import pair_word
from node2seq.ops.sequences import Ranking, Sequences


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

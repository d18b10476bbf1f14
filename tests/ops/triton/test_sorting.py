"""Rows sorted by score, ties by precedence."""

import itertools

import torch
from kernel_cases import DEVICE, LENGTHS, SOURCES, assert_ran, ragged

from node2seq.ops import triton as fused


def test_rows_are_sorted_by_score_then_precedence():
    """Exact integers: infinities, subnormal numbers, both zeros, many ties, hubs that are merged."""
    sequences = ragged(LENGTHS, SOURCES)
    levels = torch.tensor([-torch.inf, -1e30, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, 3e38, torch.inf])
    scores = levels[torch.randint(0, levels.numel(), (sequences.index.numel(),))]
    precedence = torch.randperm(SOURCES)
    order = fused.rank(scores.to(DEVICE), precedence.to(DEVICE), sequences)
    index, expected = sequences.index.cpu(), []
    for first, last in itertools.pairwise(sequences.rows.ptr.tolist()):
        keys = [(-float(scores[e]), int(precedence[index[e]]), e) for e in range(first, last)]
        expected += [e for _, _, e in sorted(keys)]
    assert order.tolist() == expected
    assert_ran("merge_chunks")  # the hubs


def test_precedence_is_by_own_score_then_node():
    own = torch.tensor([1.0, 3.0, 1.0, 0.0, 3.0, -0.0], device=DEVICE)
    assert fused.precedence(own).tolist() == [2, 0, 3, 4, 1, 5]

"""The order of few entries in one sort of numbers, and where scores tie."""

import pytest
import torch
from ragged import LENGTHS, ragged

from node2seq.ops import reference
from node2seq.ops.eager import ranking


@pytest.mark.parametrize("seed", range(5))
def test_few_entries_are_ranked_as_by_the_reference(seed):
    sequences = ragged(LENGTHS, 900, seed)
    entries = sequences.rows.num_entries
    scores = torch.randn(entries, generator=torch.Generator().manual_seed(seed))
    scores[:3] = torch.tensor([torch.inf, -torch.inf, 0.0])
    order = ranking._rank_few(scores, sequences)
    assert order is not None
    assert torch.equal(order, reference.rank(scores, torch.arange(900), sequences))


@pytest.mark.parametrize("tied", [(1.5, 1.5), (0.0, -0.0)])
def test_ties_are_noticed_within_a_row_alone(tied):
    sequences = ragged([2, 2], 9)
    within, between = torch.tensor([*tied, 3.0, 4.0]), torch.tensor([tied[0], 3.0, tied[1], 4.0])
    assert ranking._rank_few(within, sequences) is None
    assert ranking._rank_few(between, sequences) is not None


def test_tied_scores_fall_to_the_larger_own_score():
    """Both neighbours of the first node score 1; the second of them has the larger product with itself."""
    sequences = ragged([2], 2)
    query, key = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 5.0]])
    assert ranking.score_and_rank(query, key, sequences).entry.tolist() == [1, 0]

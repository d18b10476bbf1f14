"""Scores of entries."""

import pytest
import torch
from kernel_cases import LENGTHS, SOURCES, integers, normal, ragged

from node2seq.ops import reference
from node2seq.ops import triton as fused


@pytest.mark.parametrize("channels", [1, 7, 64, 200])
def test_scores_of_whole_numbers_are_exact(channels: int):
    """In one block of channels and in several."""
    sequences = ragged(LENGTHS, SOURCES)
    query, key = integers(len(LENGTHS), channels), integers(SOURCES, channels)
    expected = reference.score(query, key, sequences)
    assert torch.equal(fused.score(query.float(), key.float(), sequences).double(), expected)


def test_scores_are_about_as_close_as_plain_ones():
    sequences = ragged(LENGTHS, SOURCES)
    query, key = normal(len(LENGTHS), 64), normal(SOURCES, 64)
    truth = reference.score(query, key, sequences)
    error = (fused.score(query.float(), key.float(), sequences) - truth).norm()
    assert error <= 2 * (reference.score(query.float(), key.float(), sequences) - truth).norm()

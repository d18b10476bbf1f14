"""Scores and order in one step."""

import pytest
import torch
from kernel_cases import (
    DEVICE,
    HUB_LENGTHS,
    HUB_SOURCES,
    LENGTHS,
    REAL_LENGTHS,
    SOURCES,
    integers,
    ragged,
)

from node2seq import ops
from node2seq.ops import reference
from node2seq.ops import triton as fused


@pytest.mark.parametrize(
    ("lengths", "sources", "channels"),
    [
        *((LENGTHS, SOURCES, channels) for channels in (1, 7, 64, 200)),
        pytest.param(HUB_LENGTHS, HUB_SOURCES, 8, marks=pytest.mark.gpu),
    ],
    ids=["1", "7", "64", "200", "real blocks"],
)
def test_scores_and_order_are_those_of_the_reference(lengths: list[int], sources: int, channels: int):
    """Whole numbers, many of which tie: every score and every place is exact."""
    sequences = ragged(lengths, sources)
    query, key = integers(len(lengths), channels), integers(sources, channels)
    found = fused.score_and_rank(query.float(), key.float(), sequences)
    truth = ops.rank(query, key, sequences, backend=reference)
    for ours, plain in zip(found, truth, strict=True):
        assert torch.equal(ours.double(), plain.double())


@pytest.mark.parametrize(
    ("lengths", "sources"),
    [([0, 1, 2, 3, 4, 5, 8, 17], 20), pytest.param(REAL_LENGTHS, 1200, marks=pytest.mark.gpu)],
    ids=["small", "real blocks"],
)
def test_equal_scores_get_a_position_each(lengths: list[int], sources: int):
    """Sources that are alike score alike, rounding and all: every entry has a position of its own.

    Threads that hold the same sum must hold the same bits of it. They do not where a product is fused into
    the first addition: each thread leaves its own product unrounded, and entries count each other as before
    them.
    """
    sequences = ragged(lengths, sources)
    expected = torch.arange(sequences.index.numel(), device=DEVICE)
    for channels in (3, 5, 7, 8, 16, 64):
        query = torch.randn(len(lengths), channels, device=DEVICE)
        key = torch.randn(1, channels, device=DEVICE).repeat(sources, 1)
        place = (
            fused.score_and_rank(query, key, sequences).layout.place.long()
            + sequences.rows.ptr[sequences.rows.target]
        )
        assert torch.equal(place.sort().values, expected), f"{channels} channels: positions met twice"
        assert torch.equal(place, expected), f"{channels} channels: ties in another order"
        ones = torch.eye(channels, device=DEVICE).repeat(3, 1, 1)
        summed = fused.score_and_rank(query, key, sequences, ops.Convolution(3, "sum")).layout
        out = fused.convolve_sum(key, ones, summed)
        length = sequences.rows.length()
        met = torch.where(length < 3, length, 3 * (length - 2))
        torch.testing.assert_close(out, met[:, None] * key[0], rtol=1e-4, atol=1e-4)

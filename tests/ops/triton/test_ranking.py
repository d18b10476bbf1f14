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
from node2seq.ops.triton import plan
from node2seq.ops.triton.launch import LAUNCHES


@pytest.mark.parametrize(
    ("lengths", "sources", "channels"),
    [
        *((LENGTHS, SOURCES, channels) for channels in (1, 7, 64, 200)),
        pytest.param(HUB_LENGTHS, HUB_SOURCES, 8, marks=pytest.mark.gpu),
    ],
    ids=["1", "7", "64", "200", "real blocks"],
)
def test_scores_and_order_are_those_of_the_reference(
    lengths: list[int], sources: int, channels: int, is_small: bool
):
    """Whole numbers, many of which tie: every score and every place is exact."""
    sequences = ragged(lengths, sources)
    query, key = integers(len(lengths), channels), integers(sources, channels)
    found = fused.score_and_rank(query.float(), key.float(), sequences)
    truth = ops.rank(query, key, sequences, backend=reference)
    for ours, plain in zip(found, truth, strict=True):
        assert torch.equal(ours.double(), plain.double())
    assert LAUNCHES["place_by_key_kernel"] == (is_small and max(lengths) < 5000)
    assert bool(LAUNCHES["merge_chunks_kernel"]) != bool(LAUNCHES["place_by_key_kernel"])


@pytest.mark.parametrize(
    ("lengths", "sources"),
    [([0, 1, 2, 3, 4, 5, 8, 17], 20), pytest.param(REAL_LENGTHS, 1200, marks=pytest.mark.gpu)],
    ids=["small", "real blocks"],
)
@pytest.mark.usefixtures("is_small")
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


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 1e-40, -0.0])
def test_a_small_graph_has_the_order_of_a_large_one(value: float, monkeypatch: pytest.MonkeyPatch):
    """Whatever the features hold: lost, infinite or subnormal scores, many ties."""
    query, key = integers(len(LENGTHS), 4).float(), integers(SOURCES, 4).float()
    key[::3, 1] = value
    key[5] = key[6]
    torch.manual_seed(1)
    apart = fused.score_and_rank(query, key, ragged(LENGTHS, SOURCES)).layout
    assert LAUNCHES["rank_short_kernel"] == 2
    assert not LAUNCHES["place_by_key_kernel"]
    monkeypatch.setattr(plan, "MOST_PADDED", 2**20)
    monkeypatch.setattr(plan, "MOST_COMPARED", 2**29)
    torch.manual_seed(1)
    LAUNCHES.clear()
    found = fused.score_and_rank(query, key, ragged(LENGTHS, SOURCES)).layout
    assert dict(LAUNCHES) | {"row_key_kernel": 1, "place_by_key_kernel": 1} == dict(LAUNCHES)
    assert not LAUNCHES["rank_short_kernel"]
    assert torch.equal(found.place, apart.place)
    assert torch.equal(found.index, apart.index)


def test_short_rows_of_a_small_graph_are_ranked_in_one_launch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan, "MOST_PADDED", 2**20)
    sequences = ragged([0, 1, 2, 3, 4, 2, 4], 9)
    query, key = integers(7, 4), integers(9, 4)
    found = fused.score_and_rank(query.float(), key.float(), sequences)
    assert LAUNCHES["rank_short_kernel"] == 1
    truth = ops.rank(query, key, sequences, backend=reference)
    for ours, plain in zip(found, truth, strict=True):
        assert torch.equal(ours.double(), plain.double())


@pytest.mark.parametrize("lengths", [[3], [9] * 5, [40, 3], [17] * 4, [17, 18, 50], LENGTHS], ids=str)
def test_comparisons_are_never_more_than_are_thought(lengths: list[int], monkeypatch: pytest.MonkeyPatch):
    """The bound that tells which graphs are small holds, and is within a few times what is compared."""
    work = plan.plan_of(ragged(lengths, 60)).work
    compared = sum(length**2 for length in lengths)
    monkeypatch.setattr(plan, "MOST_COMPARED", compared - 1)
    assert not work.compares_few(sum(lengths))
    monkeypatch.setattr(plan, "MOST_COMPARED", 12 * compared + 64)
    assert work.compares_few(sum(lengths))

"""Sums over windows whose order is known at both ends only."""

from unittest.mock import patch

import pytest
import torch
from kernel_cases import (
    DEVICE,
    HUB_LENGTHS,
    HUB_SOURCES,
    LENGTHS,
    SOURCES,
    assert_close,
    assert_exact,
    assert_ran,
    blocks,
    integers,
    normal,
    ragged,
    scored_sum,
)

from node2seq import ops
from node2seq.ops import triton as fused
from node2seq.ops.triton import fused_window_sum, plan
from node2seq.ops.triton.launch import LAUNCHES

LONG = [0, 1, 17, 31, 33, 64, 65, 128, 129, 257]


@pytest.mark.parametrize(
    ("lengths", "sources", "kernel_size", "channels", "item", "short"),
    [
        (LENGTHS, SOURCES, 1, 5, 8, (2, 4)),
        (LENGTHS, SOURCES, 2, 1, 8, (2, 4)),
        (LENGTHS, SOURCES, 3, 5, 8, (2, 4)),
        (LONG, 300, 16, 5, 128, (64,)),
    ],
    ids=["k=1", "k=2", "k=3", "k=16"],
)
@pytest.mark.parametrize("most_padded", [0, 2**20], ids=["width by width", "as small graphs"])
def test_sums_of_whole_numbers_are_exact(
    lengths: list[int],
    sources: int,
    kernel_size: int,
    channels: int,
    item: int,
    short: tuple[int, ...],
    most_padded: int,
):
    """Short rows, long ones, hubs; many ties. Nothing is ranked in between."""
    with blocks(item, short, (512,)), patch.object(plan, "MOST_PADDED", most_padded):
        run = scored_sum(integers(len(lengths), channels), ragged(lengths, sources))
        inputs = [integers(sources, channels), integers(kernel_size, channels, 3)]
        assert_exact(run, inputs, integers(len(lengths), 3))
    assert_ran("sum_short", "sum_long", "sum_hub", "window_sum_grad")
    assert LAUNCHES["sum_short_kernel"] == (1 if most_padded else len(short))
    assert not LAUNCHES["window_sum_kernel"]
    assert not LAUNCHES["rank_kernel"]


@pytest.mark.parametrize(
    ("lengths", "sources", "item", "short"),
    [(LENGTHS, SOURCES, 8, (2, 4)), (LONG, 300, 128, (64,))],
    ids=["small", "long"],
)
def test_sums_are_about_as_close_as_plain_ones(
    lengths: list[int], sources: int, item: int, short: tuple[int, ...]
):
    with blocks(item, short, (512,)):
        run = scored_sum(normal(len(lengths), 16), ragged(lengths, sources))
        assert_close(run, [normal(sources, 16), normal(3, 16, 16)], normal(len(lengths), 16))


def test_nan_of_all_bits_is_not_taken_for_padding():
    """The NaN that a GPU writes."""
    lost = torch.full((60, 3), 0x7FFFFFFF, dtype=torch.int32, device=DEVICE).view(torch.float32)
    some = ragged([0, 3, 7, 9, 60], 60)
    scored = fused.score_and_rank(lost[:5], lost, some, ops.Convolution(3, "sum")).layout
    sums = fused_window_sum.Sums(is_mean=False, with_own=False)
    summed, under = fused_window_sum.scored_window_sum(lost[:5], lost, plan.plan_of(some), 3, sums)
    assert summed[1:].isnan().all()
    codes = [row.sort().values.tolist() for row in under[3:].split([7, 9, 60])]
    assert codes == [[0, 1, *[2] * (length - 4), 5, 8] for length in (7, 9, 60)]
    out = fused.convolve_sum(lost, torch.ones(3, 3, 2, device=DEVICE), scored)
    assert torch.equal(out.isnan().all(1).cpu(), torch.tensor([False, True, True, True, True]))


@pytest.mark.gpu
@pytest.mark.parametrize("kernel_size", [3, 10])
def test_sums_over_a_hub_at_the_real_block_sizes(kernel_size: int):
    sequences = ragged(HUB_LENGTHS, HUB_SOURCES)
    run = scored_sum(integers(len(HUB_LENGTHS), 8), sequences)
    inputs = [integers(HUB_SOURCES, 8), integers(kernel_size, 8, 4)]
    assert_exact(run, inputs, integers(len(HUB_LENGTHS), 4))

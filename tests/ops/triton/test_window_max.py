"""The largest window of each sequence."""

import pytest
import torch
from kernel_cases import DEVICE, KERNEL_SIZES, assert_convolves, assert_ran, ragged

from node2seq.ops import triton as fused


@pytest.mark.parametrize("kernel_size", KERNEL_SIZES)
def test_results_winners_and_gradients(kernel_size: int):
    assert_convolves("max", kernel_size)
    assert_ran("window_max", "max_parts", "window_max_grad", "sum_parts")


def test_the_first_of_equal_windows_wins():
    """Across parts of a hub too."""
    sequences = ragged([9, 60], 60)
    winner = fused.convolve_max(
        torch.ones(60, 4, device=DEVICE), torch.ones(3, 4, 4, device=DEVICE), sequences
    )[1]
    assert winner.eq(0).all()
    lowest = torch.full((60, 1), -torch.inf, device=DEVICE)
    out, winner = fused.convolve_max(lowest, torch.ones(1, 1, 1, device=DEVICE), sequences)
    assert out.eq(-torch.inf).all()
    assert winner.eq(0).all()


def test_nan_is_read_out_wherever_it_stands():
    sequences = ragged([9, 60], 60)
    for row in range(0, 60, 7):
        x = torch.randn(60, 3, device=DEVICE)
        x[sequences.index[9 + row]] = torch.nan
        out, _ = fused.convolve_max(x, torch.randn(2, 3, 3, device=DEVICE), sequences)
        assert out[1].isnan().all()

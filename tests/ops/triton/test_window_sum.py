"""The sum over the windows of each sequence."""

import pytest
from kernel_cases import KERNEL_SIZES, assert_convolves, assert_ran


@pytest.mark.parametrize("kernel_size", KERNEL_SIZES)
def test_results_and_gradients(kernel_size: int):
    assert_convolves("sum", kernel_size)
    assert_ran("window_sum", "window_sum_grad", "sum_parts")

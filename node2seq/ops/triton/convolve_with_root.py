"""Equations 5 to 7 in one step, for graphs whose sources are their targets."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops.ranking import Layout
from node2seq.ops.sequences import Sequences
from node2seq.ops.triton.fused_window_sum import TapSums
from node2seq.ops.triton.window_max import convolve_max
from node2seq.ops.triton.window_sum import convolve_sum


def convolve_with_root(
    x: Tensor,
    weight: Tensor,
    root: Tensor,
    bias: Tensor | None,
    sequences: Sequences | Layout | TapSums,
    readout: str,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor | None]:
    """The convolution over each sequence, its readout, and the own rows with their bias, [N, D].

    What is multiplied and gathered is of the type asked for.

    Returns:
        The output, and for ``readout="max"`` the winning window of each channel.
    """
    if readout == "max":
        assert not isinstance(sequences, TapSums), "ranked for another convolution"
        return convolve_max(x, weight, sequences, root, bias, dtype=dtype)
    is_mean = readout == "mean"
    return convolve_sum(x, weight, sequences, root, bias, is_mean=is_mean, dtype=dtype), None

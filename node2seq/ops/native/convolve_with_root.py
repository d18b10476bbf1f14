"""Equations 5 to 7 in one step, for graphs whose sources are their targets."""

from __future__ import annotations

from torch import Tensor

from node2seq.ops.native.window_max import convolve_max
from node2seq.ops.native.window_sum import convolve_sum
from node2seq.ops.ranking import Layout
from node2seq.ops.sequences import Sequences


def convolve_with_root(
    x: Tensor,
    weight: Tensor,
    root: Tensor,
    bias: Tensor | None,
    sequences: Sequences | Layout,
    readout: str,
) -> tuple[Tensor, Tensor | None]:
    """The convolution over each sequence, its readout, and the own rows with their bias, [R * N, D].

    The own rows go through the same product as the taps: many small products take longer than one.

    Returns:
        The output, and for ``readout="max"`` the winning window of each channel.
    """
    if readout == "max":
        return convolve_max(x, weight, sequences, root, bias)
    return convolve_sum(x, weight, sequences, root, bias, is_mean=readout == "mean"), None

"""Equations 1 to 7 for small graphs on a CPU: what lies between the steps takes as long as some of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq.ops.eager.few_windows import convolve_few, few_windows_of
from node2seq.ops.eager.ranking import score_and_order
from node2seq.ops.sequences import Convolution, Root, Sequences


def layer(
    x: Tensor, projection: Tensor, weight: Tensor, root: Root, sequences: Sequences, then: Convolution
) -> Tensor | None:
    """The whole layer over local neighbours, sorted by attention; nothing if they have many windows.

    Args:
        x (torch.Tensor): The features, [N, C].
        projection (torch.Tensor): W1, [D, C].
        weight (torch.Tensor): The taps, [K, D, D].
        root (Root): W2, [D, D], and the bias.
        sequences (Sequences): The neighbours of each target.
        then (Convolution): The convolution, with the own features.
    """
    windows = few_windows_of(sequences, then.kernel_size)
    if windows is None:
        return None
    key = F.linear(x, projection)
    with torch.no_grad():
        _, order = score_and_order(key, key, sequences)
    out, _ = convolve_few(key, weight, sequences.reorder(order), windows, then.readout)
    return F.linear(key, root.weight, root.bias).add_(out)

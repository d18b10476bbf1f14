"""Weighted sums over sequences."""

from typing import Any

import torch
from kernel_cases import DEVICE, LENGTHS, SOURCES, assert_close, assert_exact, integers, normal, ragged
from torch import Tensor

from node2seq.ops import triton as fused
from node2seq.ops.linear import SparseRows, find_sparse_rows
from node2seq.ops.triton import dropout


def test_sums_and_gradients_of_features_and_weights():
    sequences = ragged(LENGTHS, SOURCES)

    def run(backend: Any, x: Tensor, weight: Tensor) -> Tensor:
        return backend.aggregate(x, sequences, weight)

    for channels in (1, 5, 130):
        inputs = [integers(SOURCES, channels), integers(sequences.index.numel())]
        direction = integers(len(LENGTHS), channels)
        assert_exact(run, inputs, direction)
    inputs = [normal(SOURCES, 16), normal(sequences.index.numel())]
    assert_close(run, inputs, normal(len(LENGTHS), 16))


def test_sparse_features_are_dropped_and_multiplied_as_dense_ones():
    """Features without their zeros: dropped bit by bit as the whole, multiplied by the same kernels."""
    dense = integers(30, 60, dtype=torch.float32) * (torch.rand(30, 60, device=DEVICE) < 0.08)
    x = find_sparse_rows(dense)
    assert x is not None
    rate, seed, step = (
        torch.tensor(values, device=DEVICE) for values in ([0.5, 0.0, 0.75], [1, 2, 3], [4, 5, 5])
    )
    element = x.sequences.rows.target * 60 + x.sequences.index
    values = dropout.drop(x.values[:, None], rate.double(), seed, step, 1, element, False)
    dropped = SparseRows(x.sequences, values.squeeze(-1))
    expected = torch.where(
        dropout.drop(torch.ones_like(dense), rate.double(), seed, step, 1, None, False) != 0,
        dense * (1 / (1 - rate)).view(3, 1, 1),
        0.0,
    )
    assert torch.equal(dropped.to_dense(), expected)
    union, weight = x.sequences.copies(3), integers(3 * 60, 5, dtype=torch.float32).requires_grad_()
    out = fused.aggregate(weight, union, dropped.values.reshape(-1))
    assert torch.equal(out, (expected @ weight.view(3, 60, 5)).flatten(0, 1))
    direction = integers(90, 5, dtype=torch.float32)
    gradient = torch.autograd.grad(out, weight, direction)[0]
    assert torch.equal(gradient, (expected.mT @ direction.view(3, 30, 5)).flatten(0, 1))

"""Weighted sums of neighbours."""

import pytest
import torch
from ragged import BACKENDS, LENGTHS, functions_of, ragged


@pytest.mark.parametrize("backend", BACKENDS)
def test_aggregate_is_a_matrix_product_with_its_gradient(backend):
    sequences = ragged(LENGTHS, 900)
    x = torch.randn(900, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(sequences.index.numel(), dtype=torch.float64)
    dense = torch.zeros(len(LENGTHS), 900, dtype=torch.float64)
    dense[sequences.rows.target, sequences.index] = weight
    direction = torch.randn(len(LENGTHS), 5, dtype=torch.float64)
    out = functions_of(backend).aggregate(x, sequences, weight)
    torch.testing.assert_close(out, dense @ x)
    torch.testing.assert_close(torch.autograd.grad((out * direction).sum(), x)[0], dense.t() @ direction)

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


def test_what_is_the_same_in_every_step_is_kept_with_the_graph():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(900, 3, generator=generator, dtype=torch.float64).requires_grad_()
    sequences = ragged(LENGTHS, 900)
    own = torch.rand(sequences.index.numel(), generator=generator, dtype=torch.float64)
    sequences._gcn_weights[torch.float64] = own  # of a square graph, worked out once
    for weight in (own, own.clone(), 2 * own, own):
        (found,) = torch.autograd.grad(
            functions_of("eager").aggregate(x, sequences, weight).square().sum(), x
        )
        dense = torch.zeros(len(LENGTHS), 900, dtype=torch.float64)
        dense.index_put_((sequences.rows.target, sequences.index), weight, accumulate=True)
        expected = 2 * dense.t() @ (dense @ x.detach())
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    entries = sequences.transposed[1]
    kept = {name: values for name, values in sequences.plans.items() if "by source" in name}
    assert list(kept) == ["eager targets by source", "eager torch.float64 by source"]
    assert torch.equal(kept["eager torch.float64 by source"], own[entries]), "weights of one step were kept"

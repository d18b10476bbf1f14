"""Dropout by counters."""

from unittest.mock import patch

import torch
from kernel_cases import DEVICE

from node2seq import ops
from node2seq.ops import triton as fused
from node2seq.ops.triton.launch import LAUNCHES


def test_the_same_elements_are_dropped_as_without_kernels():
    """The same elements, bit for bit: shared features or one's own, rates, parts of a graph, whole nodes."""
    runs = {"seed": torch.tensor([7, 2**50], device=DEVICE), "step": torch.tensor([3, 4], device=DEVICE)}
    alone = {name: value[1] for name, value in runs.items()}
    rates = torch.tensor([0.3, 0.0], dtype=torch.float64, device=DEVICE)
    nodes = torch.randint(0, 2**31, (70,), device=DEVICE)
    shared = torch.randn(70, 30, device=DEVICE)
    own = torch.randn(2, 70, 30, device=DEVICE)
    for x, p, streams, ids, whole_rows in (
        (shared, 0.3, alone, None, False),
        (shared, 1.5 / 2**32, alone, nodes, True),
        (shared, rates, runs, None, True),
        (shared, 0.6, runs, nodes, False),
        (own, rates, runs, nodes, False),
        (own.transpose(1, 2), 0.9, runs, None, False),
        (shared[:0], 0.5, alone, None, False),
    ):
        direction, results = torch.randn(2, 70, 30, device=DEVICE), []
        for backend in (None, fused):
            leaf, step = x.clone().requires_grad_(), streams["step"].clone()
            with patch("node2seq.ops.dropout.fastest_for", lambda *_, backend=backend: backend):
                out = ops.counter_dropout(leaf, p, streams["seed"], step, 2, ids, whole_rows)
            step += 1  # as a module counts before the backward pass
            (grad,) = torch.autograd.grad(
                (out * direction.view(-1)[: out.numel()].view(out.shape)).sum(), leaf
            )
            results.append((out, grad))
        (truth, plain_grad), (out, grad) = results
        assert torch.equal(out, truth)
        # Where runs share their features, sums and scales may be rounded in either order.
        assert torch.allclose(grad, plain_grad, rtol=1e-6, atol=1e-6)
    assert LAUNCHES["drop_kernel"] == 12

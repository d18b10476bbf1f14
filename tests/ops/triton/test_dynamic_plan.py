"""Plans of what was selected, made without waiting for the device."""

from typing import Any

import pytest
import torch
from kernel_cases import NODES, assert_ran, assert_same, graph, integers, plainly
from torch import Tensor

from node2seq import ops
from node2seq.ops import reference
from node2seq.ops import triton as fused
from node2seq.ops.fixed_order import rearrange
from node2seq.ops.triton.dynamic_plan import DynamicPlan, layout_of

pytestmark = pytest.mark.usefixtures("short_blocks_of_candidates")


def _gradients(ranked: Any, backend: Any, readout: str, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(5)
    x = integers(NODES, 5).to(dtype).requires_grad_()
    weight = integers(3, 5, 5).to(dtype).requires_grad_()
    out = getattr(backend, f"convolve_{readout}")(x, weight, ranked)
    out = out[0] if readout == "max" else out
    direction = integers(*out.shape).to(dtype)
    return [out.detach(), *torch.autograd.grad((out * direction).sum(), [x, weight])]


def test_gradients_over_what_was_selected():
    """Convolutions over what was selected: sources that became hubs, and others that nobody selected."""
    sequences = graph()
    key = integers(NODES, 3).clamp(min=0)
    key[9] = 50.0  # stands in as many sequences as can reach it
    found: Any = fused.select(key.float(), key.float(), sequences, ops.Candidates(sequences, 3), 1e9, True)
    counts = torch.bincount(found.node, minlength=NODES)
    assert int(counts.max()) > 16, "no source is longer than two items"
    assert int(counts.min()) == 0
    ranked = found.layout
    truth = plainly(key, sequences, 3, 1e9, True).layout
    for readout in ("max", "sum"):
        ours = _gradients(ranked, fused, readout, torch.float32)
        plain = _gradients(truth, reference, readout, torch.float64)
        for place, (a, b) in enumerate(zip(ours, plain, strict=True)):
            assert torch.equal(a.double(), b.double()), f"{readout}: result {place} differs"
    assert_ran("choose", "sum_parts")
    again = rearrange(found, hops=3, seed=None)
    assert_same(again, rearrange(plainly(key, sequences, 3, 1e9, True), hops=3, seed=None))
    layout = layout_of(again.layout)
    assert isinstance(layout.plan, DynamicPlan), "its plan would wait for the device"
    assert torch.equal(layout.index.long(), again.node)

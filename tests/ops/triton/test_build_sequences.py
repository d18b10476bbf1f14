"""Sequences and plans that are built on the device, beside those of the CPU."""

import itertools
from typing import Any

import pytest
import torch
from kernel_cases import DEVICE
from torch import Tensor

from node2seq import ops
from node2seq.ops import triton as fused
from node2seq.ops.triton import plan
from node2seq.ops.triton.counting_sort import FEW

SIZES = [
    pytest.param(30, 90, id="small"),
    pytest.param(2, 0, id="no edges"),
    pytest.param(20_000, 100_000, id="real blocks", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("few", [pytest.param(FEW, id="few"), pytest.param(0, id="many")])
@pytest.mark.parametrize(("nodes", "edges"), SIZES)
def test_a_new_graph_is_built_as_on_the_cpu(nodes: int, edges: int, few: int, monkeypatch):
    """Sequences and plans of new graphs: duplicates, loops, empty rows, ids that do not exist."""
    monkeypatch.setattr("node2seq.ops.triton.build_few.FEW", few)
    for num_sources, num_targets in ((nodes, nodes), (nodes, nodes // 2), (nodes // 2, nodes)):
        sizes = (num_sources, num_targets)
        source = torch.randint(0, num_sources, (edges,), device=DEVICE)
        target = torch.randint(0, num_targets, (edges,), device=DEVICE) // 2 * 2
        target[: edges // 3] = 0  # a hub
        for loops, merge, backward in itertools.product((True, False), repeat=3):
            how: Any = {"add_self_loops": loops, "merge_duplicates": merge}
            found = fused.build(source, target, *sizes, **how, expect_backward=backward)
            truth = ops.build_sequences(source.cpu(), target.cpu(), *sizes, **how)
            assert found is not None
            for ours, plain in (
                (found.rows.ptr, truth.rows.ptr),
                (found.rows.target, truth.rows.target),
                (found.index, truth.index),
            ):
                assert ours.dtype == plain.dtype
                assert torch.equal(ours.cpu(), plain), f"{sizes} {how}"
            built, alone = plan.plan_of(found), plan.GpuPlan(found)
            assert ("transposed" in vars(built)) == backward
            assert torch.equal(built.index, alone.index)
            _assert_same_work(built.work, alone.work)
            assert torch.equal(built.transposed.target, alone.transposed.target)
            assert torch.equal(built.transposed.entry, alone.transposed.entry)
            _assert_same_work(built.transposed.work, alone.transposed.work)
            for wrong in (-1, num_sources) if edges else ():
                bad = source.clone()
                bad[edges // 2] = wrong
                assert fused.build(bad, target, *sizes, **how, expect_backward=backward) is None


def _assert_same_work(ours: plan.Work, theirs: plan.Work) -> None:
    for name, value in vars(theirs).items():
        other = getattr(ours, name)
        if isinstance(value, plan.Chunks):
            assert torch.equal(other.row, value.row)
            assert torch.equal(other.first, value.first)
        else:
            same = torch.equal(other, value) if isinstance(value, Tensor) else other == value
            assert same, name

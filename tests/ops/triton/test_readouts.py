"""What holds for the largest window and for the sum alike."""

from functools import partial
from typing import Any

import pytest
import torch
from kernel_cases import (
    DEVICE,
    HUB_LENGTHS,
    HUB_SOURCES,
    LENGTHS,
    REAL_LENGTHS,
    SOURCES,
    assert_close,
    assert_exact,
    convolution,
    gradients,
    integers,
    normal,
    ragged,
)
from torch import Tensor

from node2seq import ops
from node2seq.ops import reference
from node2seq.ops import triton as fused

BOTH = pytest.mark.parametrize("readout", ["max", "sum"])


@BOTH
def test_more_channels_than_a_program_takes(readout: str):
    run = convolution(readout, ragged([3, 0, 20, 1], 24))
    assert_exact(run, [integers(24, 130), integers(2, 130, 130)], integers(4, 130))


@BOTH
def test_gradients_find_the_entries_of_a_reordered_graph(readout: str):
    sequences = ragged(LENGTHS, SOURCES)
    scores, ties = torch.rand(sequences.index.numel(), device=DEVICE), torch.arange(SOURCES, device=DEVICE)
    run = convolution(readout, sequences.reorder(reference.rank(scores, ties, sequences)))
    assert_exact(run, [integers(SOURCES, 4), integers(3, 4, 4)], integers(len(LENGTHS), 4))


@BOTH
def test_runs_as_one_union_have_weights_of_their_own(readout: str):
    run = convolution(readout, ragged([5, 0, 9, 20], 20).copies(2))
    assert_exact(run, [integers(40, 4), integers(2, 3, 4, 4)], integers(8, 4))


@BOTH
def test_the_same_bits_twice(readout: str):
    run = partial(convolution(readout, ragged(LENGTHS, SOURCES)), fused)
    inputs, direction = [normal(SOURCES, 8), normal(3, 8, 8)], normal(len(LENGTHS), 8)
    first, second = (gradients(run, inputs, direction, torch.float32) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("readout", "lost"), [("max", 0x7F800000), ("sum", 0x7FFFFFFF)], ids=["inf", "nan"])
@pytest.mark.parametrize(
    ("lengths", "sources"),
    [([0, 1, 3, 4, 5, 8, 17], 20), pytest.param(REAL_LENGTHS, 1200, marks=pytest.mark.gpu)],
    ids=["small", "real blocks"],
)
@pytest.mark.usefixtures("is_small")
def test_a_diverged_run_leaves_the_others_alone(lengths: list[int], sources: int, readout: str, lost: int):
    """A run whose features are lost leaves the runs beside it as they are."""
    rows, channels = len(lengths), 7
    union = ragged(lengths, sources).copies(3)
    query, x = integers(3, rows, channels), integers(3, sources, channels)
    weight, direction = integers(3, 3, channels, channels), integers(3, rows, channels)

    def run(backend: Any, x: Tensor, weight: Tensor) -> Tensor:
        asked, x = query.to(x.dtype).flatten(0, 1), x.flatten(0, 1)
        follows = ops.Convolution(weight.size(-3), readout)
        ranked = ops.rank(asked, x, union, then=follows, backend=backend).layout
        out = getattr(backend, f"convolve_{readout}")(x, weight, ranked)
        return (out[0] if readout == "max" else out).view(3, rows, channels)

    truth = gradients(partial(run, reference), [x, weight], direction, torch.float64)
    bad = x.float()
    bad[1] = torch.full_like(bad[1], lost, dtype=torch.int32).view(torch.float32)
    found = gradients(partial(run, fused), [bad, weight], direction, torch.float32)
    for place, (a, b) in enumerate(zip(found, truth, strict=True)):
        for number in (0, 2):
            assert torch.equal(a[number].double(), b[number]), f"{readout}: result {place} differs"
    assert not found[0][1].isfinite().all()


@pytest.mark.gpu
@BOTH
@pytest.mark.parametrize("kernel_size", [3, 10])
def test_a_hub_at_the_real_block_sizes(readout: str, kernel_size: int):
    run, rows = convolution(readout, ragged(HUB_LENGTHS, HUB_SOURCES)), len(HUB_LENGTHS)
    assert_exact(run, [integers(HUB_SOURCES, 4), integers(kernel_size, 4, 4)], integers(rows, 4))
    assert_close(run, [normal(HUB_SOURCES, 64), normal(kernel_size, 64, 64)], normal(rows, 64))


@pytest.mark.gpu
@BOTH
def test_tables_beyond_31_bits(readout: str):
    nodes = 2**24 + 3
    rows = ops.Rows.from_lengths(torch.tensor([5, 0, 3], device=DEVICE))
    index = torch.tensor([0, 1, nodes - 3, nodes - 2, nodes - 1, 5, nodes - 4, nodes - 1], device=DEVICE)
    sequences = ops.Sequences(rows, index, nodes)
    small = ops.Sequences(rows, torch.arange(8, device=DEVICE), 8)
    x = torch.zeros(nodes, 32, device=DEVICE)
    x[index] = integers(8, 32, dtype=torch.float32)
    weight = integers(5, 32, 32, dtype=torch.float32)
    large = x.clone().requires_grad_()
    out = getattr(fused, f"convolve_{readout}")(large, weight, sequences)
    out = out[0] if readout == "max" else out
    expected = getattr(reference, f"convolve_{readout}")(x[index], weight, small)
    assert torch.equal(out, expected[0] if readout == "max" else expected)
    grad = torch.autograd.grad(out.sum(), large)[0]
    assert grad.isfinite().all()
    assert grad.abs().sum(1).nonzero().numel() <= 7

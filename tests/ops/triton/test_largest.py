"""The largest weighted values of each sequence, channel by channel."""

import pytest
import torch
from kernel_cases import (
    DEVICE,
    HUB_LENGTHS,
    HUB_SOURCES,
    LENGTHS,
    SOURCES,
    assert_close,
    assert_exact,
    assert_ran,
    integers,
    keep_largest,
    normal,
    ragged,
)

from node2seq import ops
from node2seq.ops import reference
from node2seq.ops import triton as fused

SOME = [0, 1, 3, 7, 8, 9, 20]


def test_values_and_gradients_of_whole_numbers_are_exact():
    """Ties, rows shorter than the list, hubs."""
    all_lengths, some = ragged(LENGTHS, SOURCES), ragged(SOME, 24)
    for sequences, count, channels in ((all_lengths, 8, 3), (some, 1, 130), (some, 5, 1), (some, 32, 2)):
        rows, entries = sequences.rows.num_rows, sequences.rows.num_entries
        run = keep_largest(sequences, integers(entries), count)
        assert_exact(run, [integers(sequences.num_sources, channels)], integers(rows, count * channels))
    assert_exact(
        keep_largest(some, torch.ones(48, device=DEVICE), 8),
        [torch.ones(24, 2, device=DEVICE)],
        integers(7, 16),
    )
    assert_ran("largest", "largest_parts", "largest_grad", "sum_parts")


def test_values_and_gradients_are_about_as_close_as_plain_ones():
    """Sources met twice, and graphs without hubs."""
    some = ragged(SOME, 24)
    twice, without_hubs = ops.Sequences(some.rows, some.index // 5, 5), ragged([0, 3, 8, 1], 9)
    for sequences in (some, twice, without_hubs):
        rows, entries = sequences.rows.num_rows, sequences.rows.num_entries
        run = keep_largest(sequences, normal(entries), 4)
        assert_close(run, [normal(sequences.num_sources, 40)], normal(rows, 4 * 40))


@pytest.mark.parametrize("lost", [torch.nan, -torch.nan, torch.inf])
def test_what_is_lost_is_seen_and_stays_in_its_rows(lost: float):
    """NaN passes no gradient on."""
    some = ragged(SOME, 24)
    met = torch.zeros(7, dtype=torch.bool, device=DEVICE)
    source = some.index[-1]
    met[some.rows.target[some.index == source]] = True
    x = torch.ones(24, 3, device=DEVICE)
    x[source] = lost
    x.requires_grad_()
    out = fused.largest(x, some, torch.ones(48, device=DEVICE), 2)
    assert torch.equal(out[:, 0].isfinite().all(1), ~met)
    assert out[:, 1].isfinite().all()
    grad = torch.autograd.grad(out.sum(), x)[0]
    assert grad[source].eq(met.sum() if lost == torch.inf else 0).all()
    assert grad.isfinite().all()


@pytest.mark.parametrize(("lengths", "num_sources"), [([], 0), ([], 3), ([0, 0], 3), ([0], 0)])
def test_empty_graphs(lengths: list[int], num_sources: int):
    rows = ops.Rows.from_lengths(torch.tensor(lengths, dtype=torch.int64, device=DEVICE))
    x = torch.ones(num_sources, 2, device=DEVICE, requires_grad=True)
    out = fused.largest(x, ops.Sequences(rows, rows.ptr.new_zeros(0), num_sources), x.new_zeros(0), 8)
    assert torch.equal(out, torch.zeros(len(lengths), 8, 2, device=DEVICE))
    assert torch.autograd.grad(out.sum(), x)[0].eq(0).all()


@pytest.mark.gpu
def test_winners_anywhere_in_a_hub():
    """Places beyond 16 bits."""
    sequences = ragged(HUB_LENGTHS, HUB_SOURCES)
    distinct = torch.stack([torch.randperm(HUB_SOURCES, device=DEVICE) for _ in range(40)], dim=1).double()
    run = keep_largest(sequences, torch.ones(sequences.index.numel(), device=DEVICE), 8)
    assert_exact(run, [distinct], integers(len(HUB_LENGTHS), 8 * 40))


@pytest.mark.gpu
def test_lists_beyond_31_bits():
    x = integers(8, 32, dtype=torch.float32)
    lengths = torch.zeros(2**23 + 3, dtype=torch.int64, device=DEVICE)
    lengths[-1] = 8
    last = ops.Sequences(ops.Rows.from_lengths(lengths), torch.arange(8, device=DEVICE), 8)
    small = ops.Sequences(ops.Rows.from_lengths(lengths[-1:]), last.index, 8)
    weight, direction = torch.ones(8, device=DEVICE), integers(1, 8, 32, dtype=torch.float32)
    results = []
    for backend, sequences in ((fused, last), (reference, small)):
        features = x.clone().requires_grad_()
        out = backend.largest(features, sequences, weight, 8)
        results.append((out[-1:], torch.autograd.grad((out[-1:] * direction).sum(), features)[0]))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))

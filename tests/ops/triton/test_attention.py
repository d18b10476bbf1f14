"""Attention weights over sequences."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from kernel_cases import (
    DEVICE,
    LENGTHS,
    SOURCES,
    assert_close,
    assert_exact,
    assert_ran,
    blocks,
    gradients,
    integers,
    normal,
    ragged,
)
from torch import Tensor

from node2seq import ops
from node2seq.ops import triton as fused

EVEN = [0, 1, 2, 4, 8, 8, 0, 16, 32]


def weights_of(sequences: ops.Sequences, slope: float) -> Callable[..., Any]:
    """Attention over given sequences, by backend."""

    def run(backend: Any, source: Tensor, target: Tensor) -> Tensor:
        return backend.attention(source, target, sequences, slope)

    return run


def test_weights_and_gradients():
    """Rows that share a program and hubs, each in one block and in several."""
    for item, lengths in ((8, EVEN), (64, [*EVEN, *EVEN, 64]), (8, [2048]), (8, [2] * 1100)):
        with blocks(item, (2, 4), (item, 2 * item)):
            sequences = ragged(lengths, max(lengths) + 1)
            entries = sequences.index.numel()
            # Equal terms in a row of 2^n: every weight and every product is exact, sums around zero too.
            inputs = [integers(1).expand(sequences.num_sources), integers(len(lengths))]
            assert_exact(weights_of(sequences, 0.5), inputs, integers(entries))
            for climb in (0, 1000):  # up to a row's last entry; too much unless the largest is taken off
                rising = torch.linspace(0, climb, sequences.num_sources, device=DEVICE)
                inputs = [2 * normal(sequences.num_sources) + rising, 2 * normal(len(lengths))]
                assert_close(weights_of(sequences, 0.2), inputs, normal(entries))
    assert_ran("attention", "attention_grad", "entry_sum")


def test_the_bits_of_a_row_do_not_depend_on_the_rows_beside_it():
    sequences = ragged(LENGTHS, SOURCES)
    source, target, direction = normal(SOURCES), normal(len(LENGTHS)), normal(sequences.index.numel())
    run = weights_of(sequences, 0.2)
    found = gradients(partial(run, fused), [source, target], direction, torch.float32)
    union = gradients(
        partial(weights_of(sequences.copies(5), 0.2), fused),
        [source.repeat(5), target.repeat(5)],
        direction.repeat(5),
        torch.float32,
    )
    for alone, together in zip(found, union, strict=True):
        assert torch.equal(together, alone.repeat(5))


@pytest.mark.parametrize("lost", [torch.nan, torch.inf, -torch.inf])
def test_what_is_lost_is_seen_as_in_plain_pytorch(lost: float):
    sequences = ragged(LENGTHS, SOURCES)
    source, target, direction = normal(SOURCES), normal(len(LENGTHS)), normal(sequences.index.numel())
    source[sequences.index[-1]] = target[3] = lost
    run = weights_of(sequences, 0.2)
    found, plain = (
        gradients(partial(run, backend), [source, target], direction, torch.float32)
        for backend in (fused, ops.eager)
    )
    torch.testing.assert_close(found, plain, equal_nan=True)


@pytest.mark.parametrize(("lengths", "num_sources"), [([], 0), ([], 3), ([0, 0], 3)])
def test_empty_graphs(lengths: list[int], num_sources: int):
    rows = ops.Rows.from_lengths(torch.tensor(lengths, dtype=torch.int64, device=DEVICE))
    empty = weights_of(ops.Sequences(rows, rows.ptr.new_zeros(0), num_sources), 0.2)
    assert_exact(empty, [integers(num_sources), integers(len(lengths))], integers(0))


@pytest.mark.gpu
def test_hubs_at_the_real_block_sizes():
    """Hubs of 100,000 of both directions and lengths around every block, at the real sizes."""
    lengths = [0, 1, 7, 8, 9, 255, 256, 257, 1023, 1024, 1025, 2049, 100_000, *[3] * 100_000]
    rows = ops.Rows.from_lengths(torch.tensor(lengths, device=DEVICE))
    index = torch.randint(0, 1000, (rows.num_entries,), device=DEVICE)
    index[rows.ptr[:-1][rows.length() > 0]] = 0
    sequences = ops.Sequences(rows, index, 1001)
    inputs = [2 * normal(sequences.num_sources), 2 * normal(len(lengths))]
    assert_close(weights_of(sequences, 0.2), inputs, normal(sequences.index.numel()))

"""Soft ranks and the convolution over them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from kernel_cases import (
    DEVICE,
    SOURCES,
    assert_close,
    assert_exact,
    assert_ran,
    gradients,
    integers,
    normal,
    ragged,
)
from torch import Tensor

from node2seq import ops
from node2seq.ops import reference
from node2seq.ops import triton as fused

# With items of 8: rows that share a program, a hub of one more, and one of several parts.
LENGTHS = [0, 1, 3, 8, 9, 0, 30]


def shuffled(sequences: ops.Sequences) -> ops.Sequences:
    """The same entries in another order within their rows."""
    rows = sequences.rows
    parts = zip(rows.length().tolist(), rows.ptr.tolist(), strict=False)
    return sequences.reorder(
        torch.cat([torch.randperm(length) + start for length, start in parts]).to(DEVICE)
    )


def other_sources(sequences: ops.Sequences) -> ops.Sequences:
    """Sequences of the same lengths with other sources, as a selection leaves them."""
    return sequences.with_sources((sequences.index + 5) % SOURCES)


@pytest.mark.parametrize("arrange", [lambda own: own, shuffled, other_sources])
def test_whole_numbers_are_exact(arrange: Any):
    """Products of pairs and sums weighted by ranks, with all gradients; rows of a power of two, for means."""
    sequences = arrange(ragged([0, 1, 2, 4, 8, 16, 32], SOURCES))
    entries = sequences.index.numel()

    def pairs(backend: Any, query: Tensor, key: Tensor) -> Tensor:
        return backend.pair_scores(query, key, sequences)

    def convolve(backend: Any, x: Tensor, weight: Tensor, ranks: Tensor) -> Tensor:
        return backend.convolve_ranks(x, weight, ranks, sequences)

    assert_exact(pairs, [integers(7, 8), integers(SOURCES, 8)], integers(entries))
    for count, channels, width in ((1, 3, 5), (3, 130, 4)):
        inputs = [integers(SOURCES, channels), integers(count + 1, channels, width), integers(count, entries)]
        assert_exact(convolve, inputs, integers(7, width))
    assert_ran("score", "segment_sum", "rank_sum", "rank_grad", "sum_parts")


def over_ranks(sequences: ops.Sequences, count: int) -> Callable[..., Any]:
    """From features to the convolution over their soft ranks, by backend."""

    def run(backend: Any, query: Tensor, key: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        ranks = backend.soft_ranks(backend.pair_scores(query, key, sequences), sequences, count)
        return backend.convolve_ranks(x, weight, ranks, sequences)

    return run


@pytest.mark.parametrize(("count", "runs"), [(1, 1), (5, 2)])
def test_soft_ranks_are_as_close_as_plain_ones(count: int, runs: int, monkeypatch: pytest.MonkeyPatch):
    """Rows shorter than the ranks, hubs of several parts, more taps than a program takes."""
    monkeypatch.setattr("node2seq.ops.triton.ranks.MOST_TAPS", 4)
    sequences = ragged(LENGTHS, SOURCES).copies(runs)

    inputs = [normal(len(LENGTHS) * runs, 8) / 3, normal(SOURCES * runs, 8), normal(SOURCES * runs, 6)]
    inputs.append(normal(runs, count + 1, 6, 5) if runs > 1 else normal(count + 1, 6, 5))
    assert_close(over_ranks(sequences, count), inputs, normal(len(LENGTHS) * runs, 5))
    assert_ran("soft_ranks", "soft_ranks_hub", "soft_ranks_grad", "soft_ranks_grad_hub")


@pytest.mark.parametrize("scale", [0.0, 4.0, 30.0, 1e4])
def test_shares_close_to_one(scale: float):
    """Ties, and rows whose first neighbour takes nearly everything, or all of it: what it leaves counts."""
    sequences = ragged([1, 2, 3, 8, 9, 40], SOURCES)
    score = (scale * torch.randn(sequences.index.numel())).to(DEVICE)
    direction = torch.randn(3, score.numel()).to(DEVICE)

    def run(backend: Any, score: Tensor) -> Tensor:
        return backend.soft_ranks(score, sequences, 3)

    found = gradients(partial(run, fused), [score], direction, torch.float32)
    expected = gradients(partial(literally, sequences, 3), [score], direction, torch.float64)
    for one, other in zip(found, expected, strict=True):
        assert one.isfinite().all()
        assert (one - other).abs().max() < 2e-6 * other.abs().max().clamp(min=1)


def literally(sequences: ops.Sequences, count: int, score: Tensor) -> Tensor:
    """Row by row; what each share leaves is the sum of all others."""
    found = []
    for value in score.split(sequences.rows.length().tolist()):
        shares = []
        for rank in range(count):
            share = value.softmax(0) if rank < value.numel() else torch.zeros_like(value)
            shares.append(share)
            others = share.expand(value.numel(), -1) * (1 - torch.eye(value.numel(), device=share.device))
            value = value + others.sum(1).clamp(min=reference.LEAST_LEFT).log()
        found.append(torch.stack(shares))
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_of_16_bits(dtype: torch.dtype):
    """As close as plain PyTorch with such rows, and the same bits twice."""
    sequences = ragged(LENGTHS, SOURCES)
    ranks = torch.rand(3, sequences.index.numel(), device=DEVICE)
    inputs = [normal(SOURCES, 6), normal(4, 6, 5)]
    direction = normal(len(LENGTHS), 5)

    def run(backend: Any, how: dict[str, Any], x: Tensor, weight: Tensor, ranks: Tensor) -> Tensor:
        return backend.convolve_ranks(x, weight, ranks, sequences, **how)

    def plainly(x: Tensor, weight: Tensor, ranks: Tensor) -> Tensor:
        return reference.convolve_ranks(x.to(dtype), weight.to(dtype), ranks.to(dtype), sequences).to(x.dtype)

    given = [*inputs, ranks]
    exact = gradients(partial(run, reference, {}), given, direction, torch.float64)
    found, again = (
        gradients(partial(run, fused, {"dtype": dtype}), given, direction, torch.float32) for _ in range(2)
    )
    rough = gradients(plainly, given, direction, torch.float32)
    for one, same, other, truth in zip(found, again, rough, exact, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, same)
        error = (one - truth).norm()
        assert 1e-5 * truth.norm() < error <= 2 * (other - truth).norm() + 1e-4 * truth.norm()


@pytest.mark.gpu
def test_hubs_at_the_real_block_sizes():
    """Hubs of 100,000 of both directions and lengths around every block, at the real sizes."""
    lengths = [0, 1, 2, 15, 16, 17, 64, 65, 128, 129, 256, 257, 1025, 100_000, *[3] * 100_000]
    rows = ops.Rows.from_lengths(torch.tensor(lengths, device=DEVICE))
    index = torch.randint(0, 1000, (rows.num_entries,), device=DEVICE)
    index[rows.ptr[:-1][rows.length() > 0]] = 0
    sequences = ops.Sequences(rows, index, 1001)
    inputs = [normal(len(lengths), 8) / 3, normal(1001, 8), normal(1001, 64), normal(4, 64, 64)]
    assert_close(over_ranks(sequences, 3), inputs, normal(len(lengths), 64))
    assert_ran("soft_ranks_hub", "soft_ranks_grad_hub", "sum_parts")

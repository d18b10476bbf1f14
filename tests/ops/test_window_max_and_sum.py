"""Convolutions over sequences in a given order: errors no larger than the literal ones, memory, NaN."""

import literal
import pytest
import torch
from ragged import BACKENDS, LENGTHS, functions_of, ragged
from torch import Tensor

from node2seq import ops
from node2seq.ops import eager


def literal_readout(x: Tensor, weight: Tensor, sequences: ops.Sequences, readout: str) -> Tensor:
    rows = [x[part] for part in sequences.index.split(sequences.rows.length().tolist())]
    empty = x.new_zeros(weight.size(-1))
    return torch.stack([literal.convolve(r, weight, readout) if len(r) else empty for r in rows])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("readout", ["max", "sum"])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 5, 10, 40])
def test_float32_error_is_at_most_twice_the_literal_one(backend, readout, kernel_size):
    """With the order given: both in float32 against the literal convolution in float64, gradients too."""
    sequences = ragged(LENGTHS, 900)
    generator = torch.Generator().manual_seed(kernel_size)
    x64 = torch.randn(900, 32, dtype=torch.float64, generator=generator)
    weight64 = torch.randn(kernel_size, 32, 32, dtype=torch.float64, generator=generator)
    direction = torch.randn(len(LENGTHS), 32, dtype=torch.float64, generator=generator)

    def run(function, dtype):
        x = x64.to(dtype).requires_grad_()
        weight = weight64.to(dtype).requires_grad_()
        out = function(x, weight)
        return [out, *torch.autograd.grad((out * direction.to(dtype)).sum(), [x, weight])]

    def ours(x, weight):
        convolve = getattr(functions_of(backend), f"convolve_{readout}")
        out = convolve(x, weight, sequences)
        return out[0] if readout == "max" else out

    def by_hand(x, weight):
        return literal_readout(x, weight, sequences, readout)

    exact = run(by_hand, torch.float64)
    for name, truth, found, plain in zip(
        ("out", "x", "weight"), exact, run(ours, torch.float32), run(by_hand, torch.float32), strict=True
    ):
        # And one rounding of the whole: how lucky the literal one is depends on the processor.
        error = (found - truth).norm()
        allowed = 2 * (plain - truth).norm() + torch.finfo(torch.float32).eps * truth.norm()
        assert error <= allowed, f"{name}: {error:.3e} > {allowed:.3e}"


def test_the_first_of_equal_windows_wins():
    sequences = ragged([12], 12)
    x, weight = torch.ones(12, 4), torch.ones(3, 4, 4)
    for backend in ops.BACKENDS.values():
        out, winner = backend.convolve_max(x, weight, sequences)
        assert winner.eq(0).all()
        assert out.eq(12).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_is_seen_in_the_output(backend):
    """A broken feature may not hide behind a maximum."""
    sequences = ragged([9, 9], 9)
    x = torch.randn(9, 3)
    x[4] = torch.nan
    out, _ = functions_of(backend).convolve_max(x, torch.randn(2, 3, 3), sequences)
    assert out.isnan().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_with_weights_of_their_own(backend):
    """R runs as one disjoint union: every run's rows meet its own weights."""
    functions = functions_of(backend)
    weights = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    xs = torch.randn(2, 20, 4, dtype=torch.float64)
    alone = ragged([5, 0, 9, 20], 20)
    lengths = alone.rows.length()
    # The second run's targets and sources follow the first's; 20 nodes are targets in each.
    rows = ops.Rows.from_lengths(torch.cat([lengths, lengths.new_zeros(16)] * 2))
    both = ops.Sequences(rows, torch.cat([alone.index, alone.index + 20]), 40)
    for readout in ("max", "sum"):
        together = getattr(functions, f"convolve_{readout}")(xs.view(40, 4), weights, both)
        together = together[0] if readout == "max" else together
        for run in range(2):
            single = getattr(functions, f"convolve_{readout}")(xs[run], weights[run], alone)
            single = single[0] if readout == "max" else single
            torch.testing.assert_close(together.view(2, 20, 4)[run, :4], single, rtol=0, atol=1e-12)


@pytest.mark.parametrize("readout", ["max", "sum"])
def test_no_edge_sized_features_are_kept_for_the_backward(readout):
    """80 nodes, 4000 entries: autograd may keep node-sized features and entry-sized integers, no more."""
    sequences = ragged([50] * 80, 80)
    x = torch.randn(80, 16, requires_grad=True)
    weight = torch.randn(10, 16, 16, requires_grad=True)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        getattr(eager, f"convolve_{readout}")(x, weight, sequences)
    assert kept
    largest = 80 * 10 * 16  # P of the sums: N x K x C
    assert max(t.numel() for t in kept if t.is_floating_point()) <= largest


def test_blocks_do_not_change_the_result(monkeypatch):
    sequences = ragged(LENGTHS, 900)
    x = torch.randn(900, 8, requires_grad=True)
    weight = torch.randn(3, 8, 8)

    def run() -> list[Tensor]:
        out, winner = eager.convolve_max(x, weight, sequences)
        assert winner is not None
        return [out, winner, *torch.autograd.grad(out.square().sum(), x)]

    whole = run()
    monkeypatch.setattr("node2seq.ops.eager.window_max._WINDOWS_PER_BLOCK", 8)
    assert all(torch.equal(a, b) for a, b in zip(whole, run(), strict=True))

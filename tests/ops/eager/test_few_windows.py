"""Short sequences, whose windows lie in one table: the path is taken, and agrees with the reference."""

import pytest
import torch
from ragged import ragged
from torch import Tensor

from node2seq import Node2SeqConv, ops
from node2seq.ops import eager, reference
from node2seq.ops.eager import few_windows

LENGTHS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 0, 3, 3, 1, 0]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The readout of each pass over a table of windows."""
    found: list[str] = []
    right = few_windows._read_out

    def read_out(value, windows, readout, *others):
        found.append(readout)
        return right(value, windows, readout, *others)

    monkeypatch.setattr(few_windows, "_read_out", read_out)
    return found


def readouts(backend, x: Tensor, weight: Tensor, sequences: ops.Sequences) -> dict[str, Tensor]:
    return {
        "max": backend.convolve_max(x, weight, sequences)[0],
        "sum": backend.convolve_sum(x, weight, sequences),
        "mean": backend.convolve_sum(x, weight, sequences, is_mean=True),
    }


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 5, 10, 40])
@pytest.mark.parametrize("runs", [None, 3])
@pytest.mark.parametrize("has_ties", [False, True])
def test_agrees_with_the_reference(counted, kernel_size, runs, has_ties):
    """Outputs, winners and gradients, recorded or not."""
    sequences = ragged(LENGTHS, 17, seed=kernel_size).copies(runs or 1)
    generator = torch.Generator().manual_seed(kernel_size)
    x = torch.randn(17 * (runs or 1), 4, dtype=torch.float64, generator=generator)
    weight = torch.randn(*([runs] if runs else []), kernel_size, 4, 4, dtype=x.dtype, generator=generator)
    if has_ties:  # sums of whole numbers are exact
        x, weight = x.round(), weight.round()
    given = [x.requires_grad_(), weight.requires_grad_()]
    ours = readouts(eager, x, weight, sequences)
    assert counted == ["max", "sum", "mean"]
    for readout, theirs in readouts(reference, x, weight, sequences).items():
        direction = torch.linspace(-1, 1, theirs.numel(), dtype=x.dtype).view(theirs.shape)
        truth = [theirs, *torch.autograd.grad((theirs * direction).sum(), given)]
        out = ours[readout]
        found = [out, *torch.autograd.grad((out * direction).sum(), given)]
        for a, b in zip(found, truth, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
        with torch.no_grad():
            assert torch.equal(readouts(eager, x, weight, sequences)[readout], out)
    winner = reference.convolve_max(x, weight, sequences)[1]
    assert eager.convolve_max(x, weight, sequences, with_winner=False)[1] is None
    for recorded in (True, False):
        with torch.set_grad_enabled(recorded):
            found = eager.convolve_max(x, weight, sequences)[1]
        assert found is not None
        assert torch.equal(found, winner)


def test_the_first_window_with_nan_wins_and_hands_back_the_gradient():
    sequences = ragged([9, 2, 9], 9)
    x, weight = torch.randn(9, 3, dtype=torch.float64), torch.randn(2, 3, 3, dtype=torch.float64)
    x[[2, 6]] = torch.nan
    x.requires_grad_()
    gradients = []
    for backend in (eager, reference):
        out, winner = backend.convolve_max(x, weight, sequences)
        gradients.append(torch.autograd.grad(out[[0, 2]].sum(), x)[0])
        assert out[[0, 2]].isnan().all()
        assert winner[[0, 2]].eq(1).all()
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("lengths", [[40] * 3, [3] * 20_000, []])
def test_long_sequences_and_many_windows_are_left_to_others(counted, lengths):
    sequences = (
        ragged(lengths, 40)
        if lengths
        else ops.Sequences(
            ops.Rows.from_lengths(torch.zeros(4, dtype=torch.int64)), torch.zeros(0, dtype=torch.int64), 40
        )
    )
    x, weight = torch.randn(40, 4), torch.randn(3, 4, 4)
    assert readouts(eager, x, weight, sequences)["max"].shape == (sequences.rows.num_rows, 4)
    assert not counted


def test_winners_are_found_for_a_trace_alone(counted):
    layer = Node2SeqConv(4, 4, backend="eager")
    x, edges = torch.randn(6, 4), torch.randint(6, (2, 20))
    plain, (traced, trace) = layer(x, edges), layer(x, edges, return_trace=True)
    assert counted == ["max", "max"]
    assert torch.equal(plain, traced)
    truth = Node2SeqConv(4, 4, backend="reference")
    truth.load_state_dict(layer.state_dict())
    assert torch.equal(trace.winner, truth(x, edges, return_trace=True)[1].winner)

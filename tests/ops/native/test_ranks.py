"""The loops of ranks: what no other backend has. Their results are checked beside the others' elsewhere."""

from types import ModuleType

import pytest
import torch
from native_graphs import hub_graph
from torch import Tensor

from node2seq import ops
from node2seq.ops import reference

pool = pytest.importorskip("node2seq.ops.native.runtime", reason="numba is not installed")
native: ModuleType = ops.choose_backend("native", torch.ones(1))

NODES = 400


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def step(backend: ModuleType, sequences: ops.Sequences, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Everything that the layer asks of the backend, forward and backward."""
    shapes = ((NODES, 8), (NODES, 8), (NODES, 20), (4, 20, 20))
    given = [drawn(seed, *shape, dtype=dtype).requires_grad_() for seed, shape in enumerate(shapes)]
    score = backend.pair_scores(given[0], given[1], sequences) / 3
    ranks = backend.soft_ranks(score, sequences, 3)
    out = backend.convolve_ranks(given[2], given[3], ranks, sequences)
    return [score, ranks, out, *torch.autograd.grad(out.square().sum(), given)]


def shuffled(sequences: ops.Sequences) -> ops.Sequences:
    rows = sequences.rows
    parts = zip(rows.length().tolist(), rows.ptr.tolist(), strict=False)
    draw = torch.Generator().manual_seed(0)
    return sequences.reorder(torch.cat([torch.randperm(n, generator=draw) + start for n, start in parts]))


def other_sources(sequences: ops.Sequences) -> ops.Sequences:
    return sequences.with_sources((sequences.index + 5) % NODES)


@pytest.mark.parametrize("arrange", [lambda own: own, shuffled, other_sources])
def test_sequences_of_any_origin(arrange):
    """The graph's own, reordered, and with other sources; each neighbour's row is read once a pass."""
    sequences = arrange(hub_graph(NODES, 3000, 300))
    before = pool.RUNS.copy()
    found = step(native, sequences)
    assert pool.RUNS - before == {
        "pair_scores": 1,
        "soft_ranks": 1,
        "soft_ranks_grad": 1,
        "transpose": 1,
        "weighted_sums": 2,  # of the rows, and of the keys for the queries' gradient
        "weighted_sums_gather": 2,
        "weights_grad": 1,
    }
    for one, other in zip(found, step(reference, sequences), strict=True):
        assert (one - other).abs().max() <= 1e-10 * other.abs().max()


def test_the_number_of_threads_leaves_every_bit(monkeypatch):
    """The loops' own threads: PyTorch's products cut their sums by theirs."""

    def run(threads: int) -> list[Tensor]:
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        return step(native, hub_graph(NODES, 30_000, 300), torch.float32)

    alone, together = run(1), run(4)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


@pytest.mark.parametrize("scale", [10.0, 30.0, 100.0])
def test_shares_close_to_one(scale):
    """What such a share leaves is too little to be told from it, and still decides about the next rank."""
    sequences = ops.Sequences(ops.Rows.from_lengths(torch.tensor([6, 2])), torch.arange(8), 8)
    score = (scale * drawn(2, 8)).requires_grad_()
    direction = drawn(3, 4, 8)

    def by_hand(score: Tensor) -> Tensor:
        found = []
        for value in score.split([6, 2]):
            shares = []
            for rank in range(4):
                share = value.softmax(0) if rank < value.numel() else torch.zeros_like(value)
                shares.append(share)
                others = share * (1 - torch.eye(value.numel(), dtype=torch.float64))  # row i lacks entry i
                value = value + others.sum(1).clamp(min=reference.LEAST_LEFT).log()
            found.append(torch.stack(shares))
        return torch.cat(found, dim=1)

    results = []
    for function in (lambda score: native.soft_ranks(score, sequences, 4), by_hand):
        out = function(score)
        results.append((out, *torch.autograd.grad(out, score, direction)))
    assert results[0][0].max() > 1 - 0.1 / scale
    for one, other in zip(*results, strict=True):
        assert (one - other).abs().max() < 1e-12


@pytest.mark.parametrize("gap", [300.0, 700.0, 800.0, 1e5])
def test_scores_far_apart_have_shares_at_every_rank(gap):
    """More ranks than a double has room to take the best score away from: nothing is divided by zero."""
    sequences = ops.Sequences(ops.Rows.from_lengths(torch.tensor([14])), torch.arange(14), 14)
    score = torch.full((14,), -gap, dtype=torch.float64)
    score[3] = 0.0
    expected = reference.soft_ranks(score, sequences, 12)
    assert (native.soft_ranks(score, sequences, 12) - expected).abs().max() < 1e-12
    assert expected[0, 3] == 1

"""Ranking and convolving: one run or several, every backend; what is worked out only when asked for."""

import literal
import pytest
import torch
from ragged import BACKENDS, functions_of
from torch import Tensor

from node2seq import ops

NODES, RUNS, KERNEL = 40, 3, 3


@pytest.fixture
def sequences() -> ops.Sequences:
    edges = literal.random_graph(2, undirected=True, num_nodes=NODES)
    return ops.build_sequences(edges[0], edges[1], NODES, NODES, add_self_loops=True, merge_duplicates=True)


def whole(*shape: int) -> Tensor:
    """Whole numbers, whose sums are exact in any order."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(sum(shape))).double()


def step(sequences: ops.Sequences, tensors: list[Tensor], readout: str, **options):
    """Rank, convolve and go back; of features, taps, root and bias."""
    given = [tensor.clone().requires_grad_() for tensor in tensors]
    x, weight, *own = given
    follows = ops.Convolution(KERNEL, readout, with_root=True)
    ranking = ops.rank(x, x, sequences, then=follows, **options)
    out, _ = ops.convolve(x, weight, ranking, readout, ops.Root(*own))
    return [ranking, out, *torch.autograd.grad(out.square().sum(), given)]


ORDERS = [
    {},
    {"order": "degree"},
    {"order": "random"},
    {"hops": 2, "threshold": 1.0},
    {"hops": 2, "joint": False, "order": "degree"},
]


@pytest.mark.parametrize("options", ORDERS, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("readout", ["max", "sum"])
def test_a_run_among_others_is_what_it_is_alone(sequences, backend, readout, options):
    tensors = [whole(RUNS, NODES, 4), whole(RUNS, KERNEL, 4, 4), whole(RUNS, 4, 4), whole(RUNS, 4)]
    options = {**options, "backend": functions_of(backend)}
    seeds = torch.arange(RUNS) if options.get("order") == "random" else None
    ranking, *together = step(sequences, tensors, readout, seed=seeds, **options)
    assert together[0].shape == (RUNS, NODES, 4)
    entries = sequences.rows.num_entries
    for run in range(RUNS):
        mine = [tensor[run] for tensor in tensors]
        seed = None if seeds is None else seeds[run]
        order, *alone = step(sequences, mine, readout, seed=seed, **options)
        assert torch.equal(ranking.node.view(RUNS, entries)[run] - run * NODES, order.node)
        for found, expected in zip(together, alone, strict=True):
            assert torch.equal(found[run], expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("readout", ["max", "mean", "sum"])
def test_a_root_in_the_same_step_equals_one_that_is_added(sequences, backend, readout):
    x, weight, root, bias = whole(NODES, 4), whole(KERNEL, 4, 4), whole(4, 4), whole(4)
    ranking = ops.rank(x, x, sequences, backend=functions_of(backend))
    plain, winner = ops.convolve(x, weight, ranking, readout)
    out, same_winner = ops.convolve(x, weight, ranking, readout, ops.Root(root, bias))
    torch.testing.assert_close(out, plain + x @ root.T + bias)
    assert (winner is None) == (same_winner is None) == (readout != "max")
    without_bias, _ = ops.convolve(x, weight, ranking, readout, ops.Root(root, None))
    torch.testing.assert_close(without_bias + bias, out)


@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_every_backend_ranks_alike_and_convolves_over_what_it_ranked(sequences, options):
    """And any backend convolves alike over the order that another found, handed over as sequences."""
    x, weight = whole(NODES, 4), whole(KERNEL, 4, 4)
    seed = torch.tensor(5) if options.get("order") == "random" else None
    truth = ops.rank(x, x, sequences, seed=seed, backend="reference", **options)
    expected, _ = ops.convolve(x, weight, truth, "max")
    ranking = ops.rank(x, x, sequences, seed=seed, backend="eager", **options)
    for found, wanted in zip(ranking, truth, strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(ops.convolve(x, weight, ranking, "max")[0], expected)
    given = ops.Ranking.given(sequences.with_sources(truth.node), ops.eager)
    assert torch.equal(ops.convolve(x, weight, given, "max")[0], expected)
    with pytest.raises(AssertionError, match="has no scores"):
        _ = given.score


@pytest.mark.parametrize("backend", BACKENDS)
def test_positions_are_worked_out_once_and_only_when_asked_for(sequences, backend):
    x, calls = whole(NODES, 4), []
    ranking = ops.rank(x, x, sequences, backend=functions_of(backend))
    find = ranking.find
    ranking.find = lambda: calls.append(1) or find()
    ops.convolve(x, whole(KERNEL, 4, 4), ranking, "sum")
    assert not calls
    node, score, entry = ranking
    assert torch.equal(sequences.index[entry], node)
    assert torch.equal(score, ranking.score)
    assert len(calls) == 1


def test_no_gradient_passes_through_the_order(sequences):
    x = whole(NODES, 4).requires_grad_()
    assert not ops.rank(x, x, sequences).score.requires_grad

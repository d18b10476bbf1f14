"""Soft ranks and the convolution over them: against loops, in every backend, with all gradients."""

from collections.abc import Callable

import literal
import pytest
import torch
from ragged import BACKENDS, LENGTHS, functions_of, ragged
from torch import Tensor

from node2seq import ops


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def step(backend: str, name: str) -> Callable[..., Tensor]:
    return getattr(functions_of(backend), name)


def by_row(values: Tensor, sequences: ops.Sequences) -> list[Tensor]:
    return list(values.split(sequences.rows.length().tolist(), dim=-1))


def literal_ranks(score: Tensor, sequences: ops.Sequences, count: int) -> Tensor:
    return torch.cat([literal.soft_shares(part, count) for part in by_row(score, sequences)], dim=1)


def literal_convolution(x: Tensor, weight: Tensor, ranks: Tensor, sequences: ops.Sequences) -> Tensor:
    both = zip(by_row(sequences.index, sequences), by_row(ranks, sequences), strict=True)
    return torch.stack([literal.convolve_ranks(x[index], shares, weight) for index, shares in both])


def with_gradients(function: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
    given = tuple(tensor.clone().requires_grad_() for tensor in given)
    out = function(*given)
    return [out, *torch.autograd.grad((out * drawn(9, *out.shape).to(out.dtype)).sum(), given)]


def assert_close(found: list[Tensor], expected: list[Tensor]) -> None:
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-10, f"result {number}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_of_pairs_and_their_gradients(backend):
    sequences = ragged(LENGTHS, 900)
    query, key = drawn(0, len(LENGTHS), 8), drawn(1, 900, 8)

    def by_hand(query, key):
        pairs = zip(sequences.rows.target.tolist(), sequences.index.tolist(), strict=True)
        return torch.stack([(query[i] * key[j]).sum() for i, j in pairs])

    found = with_gradients(lambda *given: step(backend, "pair_scores")(*given, sequences), query, key)
    assert_close(found, with_gradients(by_hand, query, key))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_soft_ranks_and_their_gradients(backend, count):
    sequences = ragged(LENGTHS, 900)
    score = 3 * drawn(count, sequences.index.numel())
    found = with_gradients(lambda score: step(backend, "soft_ranks")(score, sequences, count), score)
    assert_close(found, with_gradients(lambda score: literal_ranks(score, sequences, count), score))
    length = sequences.rows.length()
    for t, row in enumerate(found[0].detach()):
        total = torch.zeros(len(LENGTHS), dtype=torch.float64).index_add(0, sequences.rows.target, row)
        assert (total - (length > t).double()).abs().max() < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 3, 5])
def test_convolution_over_ranks_and_its_gradients(backend, count):
    sequences = ragged(LENGTHS, 900)
    given = drawn(0, 900, 6), drawn(1, count + 1, 6, 4), drawn(2, count, sequences.index.numel()).sigmoid()
    found = with_gradients(lambda *given: step(backend, "convolve_ranks")(*given, sequences), *given)

    def by_hand(x, weight, ranks):
        return literal_convolution(x, weight, ranks, sequences)

    assert_close(found, with_gradients(by_hand, *given))
    assert not found[0][sequences.rows.length() == 0].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_have_matrices_of_their_own(backend):
    alone = ragged([5, 0, 9, 20], 20)
    xs, weights, ranks = drawn(0, 2, 20, 6), drawn(1, 2, 3, 6, 4), drawn(2, 2, 2, alone.index.numel())
    convolve = step(backend, "convolve_ranks")
    union = alone.copies(2)

    def together(xs, weights, ranks):
        return convolve(xs.flatten(0, 1), weights, ranks.transpose(0, 1).flatten(1), union)

    def one_by_one(xs, weights, ranks):
        return torch.cat([convolve(*run, alone) for run in zip(xs, weights, ranks, strict=True)])

    assert_close(with_gradients(together, xs, weights, ranks), with_gradients(one_by_one, xs, weights, ranks))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradcheck(backend):
    sequences = ragged([1, 0, 4, 2, 7], 8)
    entries = sequences.index.numel()

    def whole(query, key, x, weight):
        score = step(backend, "pair_scores")(query, key, sequences)
        ranks = step(backend, "soft_ranks")(score, sequences, 3)
        return step(backend, "convolve_ranks")(x, weight, ranks, sequences)

    given = [drawn(0, 5, 3), drawn(1, 8, 3), drawn(2, 8, 4), drawn(3, 4, 4, 2)]
    assert torch.autograd.gradcheck(whole, [tensor.requires_grad_() for tensor in given])
    score = drawn(4, entries).requires_grad_()
    assert torch.autograd.gradcheck(lambda score: step(backend, "soft_ranks")(score, sequences, 4), [score])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3, 1e30])
def test_extreme_scores_stay_finite(backend, dtype, scale):
    """Ties, one neighbour that takes everything, and scores beyond what exp can take."""
    sequences = ragged([1, 2, 3, 100, 0], 100)
    score = (scale * drawn(0, sequences.index.numel())).to(dtype)
    out, grad = with_gradients(lambda score: step(backend, "soft_ranks")(score, sequences, 4), score)
    assert out.isfinite().all()
    assert grad.isfinite().all()
    assert out.min() >= 0
    assert out.max() <= 1 + 4 * torch.finfo(dtype).eps
    if scale == 0.0:  # everyone has the same share
        assert (out[0, -100:] - 0.01).abs().max() < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [5.0, 15.0, 40.0])
def test_confident_scores_keep_their_digits(backend, scale):
    """float32 against float64 where one neighbour has nearly all of the first rank."""
    sequences = ragged([2, 3, 9, 40], 40)
    score = (scale * drawn(0, sequences.index.numel())).float().double()

    def soft(score):
        return step(backend, "soft_ranks")(score, sequences, 3)

    exact, found = with_gradients(soft, score), with_gradients(soft, score.float())
    assert_close(exact, with_gradients(lambda score: literal_ranks(score, sequences, 3), score))
    for one, other in zip(found, exact, strict=True):
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hub_keeps_its_digits(backend):
    """100,000 entries in float32 against float64."""
    sequences = ragged([100_000, 3], 100_000)
    score, x, weight = drawn(0, 100_003), drawn(1, 100_000, 4), drawn(2, 4, 4, 4)

    def whole(score, x, weight):
        ranks = step(backend, "soft_ranks")(score, sequences, 3)
        return step(backend, "convolve_ranks")(x, weight, ranks, sequences)

    exact = with_gradients(whole, score, x, weight)
    found = with_gradients(whole, score.float(), x.float(), weight.float())
    for one, other in zip(found, exact, strict=True):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()
    expected = literal.soft_shares(score[-3:], 3), x[sequences.index[-3:]]
    assert (exact[0][1] - literal.convolve_ranks(expected[1], expected[0], weight)).abs().max() < 1e-10


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_entries_at_all(backend):
    sequences = ragged([0, 0], 3)
    query, key, weight = (
        tensor.requires_grad_() for tensor in (drawn(0, 2, 3), drawn(1, 3, 3), drawn(2, 3, 3, 3))
    )
    score = step(backend, "pair_scores")(query, key, sequences)
    out = step(backend, "convolve_ranks")(
        key, weight, step(backend, "soft_ranks")(score, sequences, 2), sequences
    )
    assert out.tolist() == [[0.0] * 3] * 2
    for grad in torch.autograd.grad(out.sum(), [query, key, weight]):
        assert not grad.any()


def test_nothing_of_the_size_of_entries_times_channels_is_kept():
    sequences = ragged([500] * 40, 500)
    x, weight = drawn(0, 500, 64).requires_grad_(), drawn(1, 4, 64, 64).requires_grad_()
    query, key = drawn(2, 40, 8).requires_grad_(), drawn(3, 500, 8).requires_grad_()
    sizes: list[int] = []

    def pack(saved: Tensor) -> Tensor:
        sizes.append(saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        score = step("eager", "pair_scores")(query, key, sequences)
        ranks = step("eager", "soft_ranks")(score, sequences, 3)
        step("eager", "convolve_ranks")(x, weight, ranks, sequences)
    assert max(sizes) <= max(3 * sequences.index.numel(), weight.numel(), x.numel())

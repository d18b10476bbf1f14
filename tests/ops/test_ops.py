"""The operations one by one: exact orders, errors no larger than the literal ones, memory, determinism."""

import itertools
from types import ModuleType

import literal
import pytest
import torch
from torch import Tensor

from node2seq import ops
from node2seq.ops import eager, reference

BACKENDS = [*sorted(ops.BACKENDS), pytest.param("native", marks=pytest.mark.slow)]


def functions_of(backend: str) -> ModuleType:
    return ops.choose_backend(backend, torch.ones(1))


def ragged(lengths: list[int], num_sources: int, seed: int = 0) -> ops.Sequences:
    """Sequences of the given lengths with distinct random sources."""
    generator = torch.Generator().manual_seed(seed)
    index = [torch.randperm(num_sources, generator=generator)[:length].sort().values for length in lengths]
    return ops.Sequences(ops.Rows.from_lengths(torch.tensor(lengths)), torch.cat(index), num_sources)


# Every width of a group, its neighbours, empty rows, and a hub far beyond the rest.
LENGTHS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 23, 24, 25, 0, 33, 700, 1, 0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rank_equals_a_sorted_list_on_given_scores(backend, dtype):
    sequences = ragged(LENGTHS, 900)
    generator = torch.Generator().manual_seed(1)
    levels = torch.tensor(
        [-torch.inf, -1e30, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, 3e38, torch.inf], dtype=dtype
    )
    scores = levels[torch.randint(0, levels.numel(), (sequences.index.numel(),), generator=generator)]
    precedence = torch.randperm(900, generator=generator)
    order = functions_of(backend).rank(scores, precedence, sequences)
    ptr = sequences.rows.ptr.tolist()
    expected = []
    for first, last in itertools.pairwise(ptr):
        key = lambda e: (-float(scores[e]), int(precedence[sequences.index[e]]))  # noqa: E731
        expected += sorted(range(first, last), key=key)
    assert order.tolist() == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_precedence_puts_the_larger_own_score_first_then_the_smaller_id(backend):
    own = torch.tensor([1.0, 3.0, 1.0, 0.0, 3.0, 0.0])
    assert functions_of(backend).precedence(own).tolist() == [2, 0, 3, 4, 1, 5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_score_is_the_inner_product_of_target_and_source(backend):
    sequences = ragged(LENGTHS, 900)
    query = torch.randn(len(LENGTHS), 7, dtype=torch.float64)
    key = torch.randn(900, 7, dtype=torch.float64)
    expected = (query @ key.t())[sequences.rows.target, sequences.index]
    torch.testing.assert_close(functions_of(backend).score(query, key, sequences), expected)


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_aggregate_is_a_matrix_product_with_its_gradient(backend):
    sequences = ragged(LENGTHS, 900)
    x = torch.randn(900, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(sequences.index.numel(), dtype=torch.float64)
    dense = torch.zeros(len(LENGTHS), 900, dtype=torch.float64)
    dense[sequences.rows.target, sequences.index] = weight
    direction = torch.randn(len(LENGTHS), 5, dtype=torch.float64)
    out = functions_of(backend).aggregate(x, sequences, weight)
    torch.testing.assert_close(out, dense @ x)
    torch.testing.assert_close(torch.autograd.grad((out * direction).sum(), x)[0], dense.t() @ direction)


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


def test_transposed_follows_a_new_order():
    sequences = ragged(LENGTHS, 900)
    order = torch.cat(
        [torch.randperm(n) + first for n, first in zip(LENGTHS, sequences.rows.ptr.tolist(), strict=False)]
    )
    moved = sequences.reorder(order)
    fresh = ops.Sequences(moved.rows, moved.index, 900)
    for source in range(900):
        (ptr, entries), (fresh_ptr, fresh_entries) = moved.transposed, fresh.transposed
        found = set(entries[ptr[source] : ptr[source + 1]].tolist())
        assert found == set(fresh_entries[fresh_ptr[source] : fresh_ptr[source + 1]].tolist())


def test_groups_hold_every_row_once_and_pad_little():
    rows = ops.Rows.from_lengths(torch.tensor(LENGTHS))
    seen = []
    for members, shortest, width in rows.groups:
        lengths = rows.length()[members]
        assert shortest <= int(lengths.min())
        assert int(lengths.max()) <= width <= max(2, 1.5 * shortest)
        seen += members.tolist()
    assert sorted(seen) == [row for row, length in enumerate(LENGTHS) if length]


def test_reach_finds_the_same_in_small_blocks_and_when_too_large_to_keep(monkeypatch):
    edges = literal.random_graph(1, undirected=False, num_nodes=60)
    sequences = ops.build_sequences(edges[0], edges[1], 60, 60, add_self_loops=True, merge_duplicates=True)
    neighbours = literal.neighbour_sets(edges, 60)
    rows = torch.arange(60)[::3]

    def lists() -> dict[int, list[int]]:
        found = {}
        for block, candidates in ops.Candidates(sequences, 3).blocks(rows):
            parts = candidates.index.split(candidates.rows.length().tolist())
            found |= {int(row): part.tolist() for row, part in zip(block, parts, strict=True)}
        return found

    near = {i: literal.within_hops(neighbours, i, 1) for i in rows.tolist()}
    expected = {i: sorted(literal.within_hops(neighbours, i, 3) - near[i]) for i in rows.tolist()}
    assert lists() == expected
    monkeypatch.setattr("node2seq.ops.candidates._MARKS_PER_BLOCK", 2 * 60)
    monkeypatch.setattr("node2seq.ops.candidates._EDGES_PER_BLOCK", 3)
    assert lists() == expected
    monkeypatch.setattr("node2seq.ops.candidates._KEPT_ENTRIES", 10)
    assert lists() == expected


def test_blocks_do_not_change_the_result(monkeypatch):
    sequences = ragged(LENGTHS, 900)
    x = torch.randn(900, 8, requires_grad=True)
    weight = torch.randn(3, 8, 8)

    def run() -> list[Tensor]:
        out, winner = eager.convolve_max(x, weight, sequences)
        return [out, winner, *torch.autograd.grad(out.square().sum(), x)]

    whole = run()
    monkeypatch.setattr("node2seq.ops.eager.window_max._WINDOWS_PER_BLOCK", 8)
    assert all(torch.equal(a, b) for a, b in zip(whole, run(), strict=True))


def test_build_merges_duplicates_and_counts_self_loops_once():
    source, target = torch.tensor([1, 1, 0, 2, 2, 0]), torch.tensor([0, 0, 0, 1, 1, 2])
    merged = ops.build_sequences(source, target, 3, 3, add_self_loops=True, merge_duplicates=True)
    assert merged.rows.ptr.tolist() == [0, 2, 4, 6]
    assert merged.index.tolist() == [0, 1, 1, 2, 0, 2]
    listed = ops.build_sequences(source, target, 3, 3, add_self_loops=True, merge_duplicates=False)
    assert listed.index.tolist() == [0, 1, 1, 1, 2, 2, 0, 2]
    bare = ops.build_sequences(source, target, 3, 3, add_self_loops=False, merge_duplicates=True)
    assert bare.index.tolist() == [0, 1, 2, 0]


def test_reference_rank_needs_no_stable_sort(monkeypatch):
    """ONNX has none: the result may not depend on how a sort leaves equal keys."""
    sequences = ragged(LENGTHS, 900)
    scores = torch.randint(0, 3, (sequences.index.numel(),)).float()
    precedence = torch.randperm(900)
    expected = reference.rank(scores, precedence, sequences)
    sort = Tensor.sort

    def shaken(values: Tensor, descending: bool = False) -> tuple[Tensor, Tensor]:
        shuffle = torch.randperm(values.numel())
        ordered, order = sort(values[shuffle], descending=descending)
        return ordered, shuffle[order]

    monkeypatch.setattr(Tensor, "sort", shaken)
    monkeypatch.setattr(Tensor, "argsort", lambda values, **options: shaken(values, **options)[1])
    assert torch.equal(reference.rank(scores, precedence, sequences), expected)

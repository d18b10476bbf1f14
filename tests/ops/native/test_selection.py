"""The compiled selection and its candidates against the plain ones."""

from types import ModuleType

import pytest
import torch
from native_graphs import assert_same_ranking, hub_graph, whole_numbers

from node2seq import ops
from node2seq.data import load
from node2seq.ops import reference

pool = pytest.importorskip("node2seq.ops.native.runtime", reason="numba is not installed")
native: ModuleType = ops.choose_backend("native", torch.ones(1))


@pytest.mark.slow
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("hops", [2, 3])
def test_the_selection_is_that_of_the_plain_one(joint, hops, listed, monkeypatch):
    """On whole numbers, so with ties everywhere; a threshold for each target too."""
    if not listed:
        monkeypatch.setattr("node2seq.ops.candidates._KEPT_ENTRIES", 10)
    before = pool.RUNS.copy()
    for seed in range(4):
        sequences = hub_graph(150, 100 + 200 * seed, (1, 2, 20, 140)[seed], seed)
        x = whole_numbers(150, 3, seed=seed)
        thresholds = torch.randint(-2, 3, (150,), generator=torch.Generator().manual_seed(seed)).float()
        candidates = ops.Candidates(sequences, hops)
        for threshold in (-9.0, 0.0, 1e9, thresholds):
            found = native.select(x, x, sequences, candidates, threshold, joint)
            expected = ops.rank(
                x,
                x,
                sequences,
                hops=hops,
                threshold=threshold,
                joint=joint,
                backend=reference,
            )
            assert_same_ranking(found, expected)
    assert (pool.RUNS - before)["best_listed" if listed else "best_walked"] == 16


@pytest.mark.slow
def test_the_selection_on_a_real_graph(real_data):
    data = real_data("chameleon", load)
    source, target = data.edge_index
    nodes = data.num_nodes
    sequences = ops.build_sequences(source, target, nodes, nodes, add_self_loops=True, merge_duplicates=True)
    x = whole_numbers(nodes, 8)
    before = pool.RUNS["best_listed"]
    found = ops.rank(x, x, sequences, hops=2, backend=native)
    assert pool.RUNS["best_listed"] == before + 1
    assert bool((found.entry < 0).any())
    assert_same_ranking(found, ops.rank(x, x, sequences, hops=2, backend=ops.eager))


@pytest.mark.slow
def test_the_selection_takes_what_is_no_number_first():
    """Neighbours or not: it has to be seen in the output."""
    sequences = hub_graph(150, 300, 140)
    x = whole_numbers(150, 8)
    x[3], x[110] = torch.nan, -torch.tensor(torch.nan)
    for threshold in (0.0, 1e9):
        found = native.select(x, x, sequences, ops.Candidates(sequences, 2), threshold, True)
        wrong = found.score.isnan()
        assert set(found.node[wrong].tolist()) >= {3, 110}
        assert bool((wrong & (found.entry < 0)).any())
        per_row = torch.zeros(150, dtype=torch.int64).index_add_(0, sequences.rows.target, wrong.long())
        first = ops.Rows.from_lengths(per_row).position()
        assert torch.equal(sequences.rows.position()[wrong], first)


@pytest.mark.slow
def test_copies_of_a_graph_select_by_the_lists_of_one():
    sequences = hub_graph(150, 300, 100)
    candidates, before = ops.Candidates(sequences, 2), pool.RUNS.copy()
    x = whole_numbers(450, 3)
    found = native.select(x, x, sequences.copies(3), candidates.copies(3), 0.0, True)
    assert (pool.RUNS - before)["list_candidates"] == 1
    parts = [native.select(part, part, sequences, candidates, 0.0, True) for part in x.split(150)]
    assert (pool.RUNS - before)["list_candidates"] == 1
    entries = sequences.rows.num_entries
    for copy, part in enumerate(parts):
        node, score, entry = (values[copy * entries : (copy + 1) * entries] for values in found)
        moved = torch.where(part.entry < 0, -1, part.entry + copy * entries)
        expected = ops.Positions(part.node + copy * 150, part.score, moved)
        assert_same_ranking(ops.Positions(node, score, entry), expected)


@pytest.mark.slow
@pytest.mark.parametrize("hops", [2, 3, 5])
def test_candidates_are_those_of_the_plain_search(hops, monkeypatch):
    """More nodes than a group of marks has, some far apart; a hub; nodes that nobody reaches."""
    sequences = hub_graph(9000, 6000, 200)

    def candidates() -> ops.Sequences:
        found = ops.Candidates(sequences, hops).listed()
        assert found is not None
        return found

    before = pool.RUNS["list_candidates"]
    found = candidates()
    assert pool.RUNS["list_candidates"] == before + 1
    assert bool((found.index > 2**12).any())
    monkeypatch.setattr("node2seq.ops.candidates.compiled_loops", lambda: None)
    expected = candidates()
    assert pool.RUNS["list_candidates"] == before + 1
    assert torch.equal(found.rows.ptr, expected.rows.ptr)
    assert torch.equal(found.rows.target, expected.rows.target)
    assert torch.equal(found.index, expected.index)


@pytest.mark.slow
def test_too_many_candidates_are_not_listed():
    sequences = hub_graph(3000, 60_000, 100)
    before = pool.RUNS.copy()
    assert native.find_lists(sequences, 2, 10_000) is None
    ran = pool.RUNS - before
    assert ran["list_candidates"] == 0
    assert ran["count_candidates"] == 1, "the first part is enough to see it"

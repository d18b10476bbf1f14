"""Who lies within several hops."""

import literal
import pytest
import torch

from node2seq import Node2SeqConv, ops
from node2seq.ops.candidates import DrawnCandidates, candidates_of

NODES, RUNS = 60, 3


@pytest.fixture
def sequences() -> ops.Sequences:
    edges = literal.random_graph(1, undirected=False, num_nodes=NODES)
    return ops.build_sequences(edges[0], edges[1], NODES, NODES, add_self_loops=True, merge_duplicates=True)


def test_the_same_are_found_in_small_blocks_and_when_too_large_to_keep(monkeypatch):
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


def test_copies_of_the_candidates_keep_no_lists_of_their_own(sequences):
    candidates = ops.Candidates(sequences, 2)
    assert candidates.copies(1) is candidates
    copied = candidates.copies(RUNS)
    rows = torch.tensor([0, 5, NODES + 5, 2 * NODES + 7])
    lists = {
        int(row): part.tolist()
        for block, found in copied.blocks(rows)
        for row, part in zip(block, found.index.split(found.rows.length().tolist()), strict=True)
    }
    alone = candidates.listed()
    assert alone is not None
    assert copied._listed is None
    parts = alone.index.split(alone.rows.length().tolist())
    assert lists == {
        row: [node + row // NODES * NODES for node in parts[row % NODES].tolist()] for row in rows.tolist()
    }


def _lists(candidates: ops.Candidates) -> list[list[int]]:
    listed = candidates.listed()
    assert listed is not None
    return [part.tolist() for part in listed.index.split(listed.rows.length().tolist())]


@pytest.mark.parametrize("hops", [2, 3])
def test_drawn_candidates_are_some_of_all(sequences, hops, monkeypatch):
    exact, drawn = _lists(ops.Candidates(sequences, hops)), _lists(DrawnCandidates(sequences, hops, 4))
    assert all(set(some) <= set(every) for some, every in zip(drawn, exact, strict=True))
    assert max(map(len, drawn)) <= 4
    assert sum(map(len, drawn)) > NODES  # with four walks each, many of which end in nodes close by
    monkeypatch.setattr("node2seq.ops.candidates._WALKS_PER_BLOCK", 9)
    assert _lists(DrawnCandidates(sequences, hops, 4)) == drawn
    assert _lists(DrawnCandidates(sequences, hops, 40_000)) == exact


def test_walks_end_where_paths_of_equal_steps_lead():
    # 0 reads 1 and 2; 1 reads 3; 2 reads 4, 5 and 6: half of the walks from 0 end in 3.
    source, target = torch.tensor([[1, 2, 3, 4, 5, 6], [0, 0, 1, 2, 2, 2]])
    sequences = ops.build_sequences(source, target, 7, 7, add_self_loops=False, merge_duplicates=True)
    ends = DrawnCandidates(sequences, 2, 60_000)._walk(torch.tensor([0]))
    shares = torch.bincount(ends.flatten(), minlength=7) / ends.numel()
    torch.testing.assert_close(shares[3:], torch.tensor([1 / 2, 1 / 6, 1 / 6, 1 / 6]), atol=0.01, rtol=0)


def test_nodes_without_edges_have_no_candidates():
    for nodes in (0, 3):
        none = torch.empty(0, dtype=torch.int64)
        sequences = ops.build_sequences(none, none, nodes, nodes, add_self_loops=False, merge_duplicates=True)
        assert _lists(DrawnCandidates(sequences, 2, 5)) == [[]] * nodes


@pytest.mark.parametrize("backend", ["reference", "eager", "native"])
@pytest.mark.parametrize("readout", ["max", "ranks"])
def test_a_layer_chooses_among_those_drawn_with_any_backend(backend, readout):
    edges, x = literal.random_graph(1, undirected=False, num_nodes=NODES), torch.randn(NODES, 5)
    how = {"readout": readout, "hops": 2, "threshold": 0.5}
    torch.manual_seed(0)
    few, many, every = (
        Node2SeqConv(5, 4, **how, max_candidates=most, backend=backend) for most in (3, 2000, None)
    )
    plain = Node2SeqConv(5, 4, **how, max_candidates=3, backend="reference")
    for other in (many, every, plain):
        other.load_state_dict(few.state_dict())
    torch.testing.assert_close(few(x, edges), plain(x, edges))
    assert torch.equal(many(x, edges), every(x, edges))
    assert not torch.allclose(few(x, edges), every(x, edges))
    runs = torch.stack([x, x.flip(0)])
    torch.testing.assert_close(few(runs, edges)[1], few(x.flip(0), edges))


def test_each_number_of_walks_is_kept_apart(sequences):
    found = [candidates_of(sequences, 2, most) for most in (None, 3, 4)]
    assert len(set(map(id, found))) == 3
    assert candidates_of(sequences, 2, 3) is found[1]

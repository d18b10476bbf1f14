"""Who lies within several hops."""

import literal
import pytest
import torch

from node2seq import ops

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

"""Ragged sequences: groups of rows, and the entries of each source."""

from functools import partial

import torch
from ragged import LENGTHS, ragged

from node2seq import ops


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


def test_a_small_graph_is_one_group():
    rows = ops.Rows.from_lengths(torch.tensor([0, 5, 2, 0, 9]))
    [(members, shortest, width)] = rows.groups
    assert (members.tolist(), shortest, width) == ([1, 2, 4], 2, 9)
    assert ops.Rows.from_lengths(torch.tensor([0, 0])).groups == []


def test_groups_hold_every_row_once_and_pad_little(monkeypatch):
    monkeypatch.setattr("node2seq.ops.sequences._FEW_ENTRIES", 0)
    rows = ops.Rows.from_lengths(torch.tensor(LENGTHS))
    seen = []
    for members, shortest, width in rows.groups:
        lengths = rows.length()[members]
        assert shortest <= int(lengths.min())
        assert int(lengths.max()) <= width <= max(2, 1.5 * shortest)
        seen += members.tolist()
    assert sorted(seen) == [row for row, length in enumerate(LENGTHS) if length]


def test_copies_of_a_graph_with_leftovers(monkeypatch):
    source, target = torch.tensor([[1, 1, 2, 0, 2], [0, 0, 1, 2, 2]])
    build = partial(ops.build_sequences, source, target, 3, 3, add_self_loops=True, merge_duplicates=True)
    wanted = build().copies(2)
    # As while a CUDA graph is captured.
    monkeypatch.setattr("node2seq.ops.plan_cache.is_tracing", lambda: True)
    found = build().copies(2)
    entries = wanted.rows.num_entries
    assert found.rows.num_entries > entries
    assert torch.equal(found.rows.ptr, wanted.rows.ptr)
    assert torch.equal(found.index[:entries], wanted.index)
    assert torch.equal(found.rows.target[:entries], wanted.rows.target)
    assert bool((found.rows.target[entries:] == 6).all())

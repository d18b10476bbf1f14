"""Edges → sequences."""

import torch

from node2seq import ops


def test_build_merges_duplicates_and_counts_self_loops_once():
    source, target = torch.tensor([1, 1, 0, 2, 2, 0]), torch.tensor([0, 0, 0, 1, 1, 2])
    merged = ops.build_sequences(source, target, 3, 3, add_self_loops=True, merge_duplicates=True)
    assert merged.rows.ptr.tolist() == [0, 2, 4, 6]
    assert merged.index.tolist() == [0, 1, 1, 2, 0, 2]
    listed = ops.build_sequences(source, target, 3, 3, add_self_loops=True, merge_duplicates=False)
    assert listed.index.tolist() == [0, 1, 1, 1, 2, 2, 0, 2]
    bare = ops.build_sequences(source, target, 3, 3, add_self_loops=False, merge_duplicates=True)
    assert bare.index.tolist() == [0, 1, 2, 0]

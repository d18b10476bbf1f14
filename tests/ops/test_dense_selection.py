"""The selection over all pairs of nodes finds what the selection over lists of candidates finds."""

import pytest
import torch

from node2seq import ops
from node2seq.ops.dense_selection import select_dense


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("hops", [2, 3, 4, 99])
@pytest.mark.parametrize("loops", [True, False])
def test_equals_the_selection_of_candidates(hops, joint, loops):
    """Small whole numbers: no rounding, and many ties."""
    taken = 0
    for seed, (nodes, edges) in enumerate([(20, 30), (20, 60), (9, 40), (5, 0), (1, 3), (0, 0)]):
        generator = torch.Generator().manual_seed(seed)
        query, key = (torch.randint(-2, 3, (nodes, 3), generator=generator).float() for _ in range(2))
        source, target = torch.randint(max(nodes, 1), (2, edges), generator=generator)
        sequences = ops.build_sequences(
            source, target, nodes, nodes, add_self_loops=loops, merge_duplicates=True
        )
        rows, left_over = sequences.rows, 2 if edges else 0
        for threshold in (-1.0, 0.0, 2.0, 1e9):
            expected = ops.rank(
                query, key, sequences, hops=hops, threshold=threshold, joint=joint, backend=ops.eager
            )
            # Traced graphs have entries that duplicates left over, in a row behind the last.
            found = select_dense(
                query,
                key,
                rows.ptr,
                torch.cat([rows.target, torch.full((left_over,), nodes)]),
                torch.cat([sequences.index, torch.zeros(left_over, dtype=torch.int64)]),
                hops,
                threshold,
                joint,
            )
            for one, other in zip(found, expected, strict=True):
                assert one.tolist() == [*other.tolist(), *[0] * left_over]
            taken += int((expected.entry < 0).sum())
    assert taken > 100

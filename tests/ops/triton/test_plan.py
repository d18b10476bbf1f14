"""Plans of the kernels' work: items, parts of hubs, chunks, buckets, the transposed graph."""

import itertools

import pytest
from kernel_cases import LENGTHS, SOURCES, ragged

from node2seq.ops.triton import plan


@pytest.mark.parametrize("all_lengths", [LENGTHS, LENGTHS * 40], ids=["few rows", "many rows"])
def test_plan_holds_what_is_counted_without_kernels(all_lengths: list[int]):
    """Items, parts of hubs, chunks, buckets and the transposed graph, as counted without kernels."""
    sequences = ragged(all_lengths, SOURCES)
    graph = plan.plan_of(sequences)
    ptr, index = sequences.rows.ptr.tolist(), sequences.index.tolist()
    sizes = [2**power for power in range(1, 10)]
    for work, lengths in (
        (graph.work, all_lengths),
        (graph.transposed.work, [index.count(source) for source in range(SOURCES)]),
    ):
        starts = [sum(lengths[:row]) for row in range(len(lengths) + 1)]
        rows = sorted(range(len(lengths)), key=lambda row: -sum(lengths[row] > size for size in sizes))
        assert work.ptr.tolist() == starts
        assert work.rows.tolist() == rows
        hubs = [row for row in rows if lengths[row] > 8]
        parts = [(row, first) for row in hubs for first in range(starts[row], starts[row + 1], 8)]
        whole = [(row, starts[row]) for row in rows if lengths[row] <= 8]
        assert list(zip(work.item_row.tolist(), work.item_first.tolist(), strict=True)) == parts + whole
        assert (work.hubs, work.parts, work.items) == (len(hubs), len(parts), len(parts + whole))
        assert work.long_items == len(parts) + sum(4 < length <= 8 for length in lengths)
        assert work.part_ptr.tolist() == [0, *itertools.accumulate(-(-lengths[row] // 8) for row in hubs)]
        longest = [row for row in hubs if lengths[row] > 16]
        chunks = [(row, first) for row in longest for first in range(starts[row], starts[row + 1], 16)]
        assert list(zip(work.chunks.row.tolist(), work.chunks.first.tolist(), strict=True)) == chunks
        for bucket in (*work.short_buckets, *work.sort_buckets):
            shortest = {2: -1, 4: 2, 8: 4, 16: 8}[bucket.width]
            inside = [row for row in rows if shortest < lengths[row] <= bucket.width]
            assert rows[bucket.first : bucket.first + bucket.count] == inside
    entries = sorted(range(len(index)), key=lambda entry: index[entry])
    assert graph.transposed.entry.tolist() == entries
    rows_of = [row for row, (first, last) in enumerate(itertools.pairwise(ptr)) for _ in range(first, last)]
    assert graph.transposed.target.tolist() == [rows_of[entry] for entry in entries]

"""Rows sorted by score, ties by precedence."""

import itertools

import pytest
import torch
from kernel_cases import DEVICE, LENGTHS, SOURCES, assert_ran, ragged

from node2seq.ops import triton as fused
from node2seq.ops.triton import counting_sort, sorting
from node2seq.ops.triton.counting_sort import sort
from node2seq.ops.triton.launch import LAUNCHES


def test_rows_are_sorted_by_score_then_precedence():
    """Exact integers: infinities, subnormal numbers, both zeros, many ties, hubs that are merged."""
    sequences = ragged(LENGTHS, SOURCES)
    levels = torch.tensor([-torch.inf, -1e30, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, 3e38, torch.inf])
    scores = levels[torch.randint(0, levels.numel(), (sequences.index.numel(),))]
    precedence = torch.randperm(SOURCES)
    order = fused.rank(scores.to(DEVICE), precedence.to(DEVICE), sequences)
    index, expected = sequences.index.cpu(), []
    for first, last in itertools.pairwise(sequences.rows.ptr.tolist()):
        keys = [(-float(scores[e]), int(precedence[index[e]]), e) for e in range(first, last)]
        expected += [e for _, _, e in sorted(keys)]
    assert order.tolist() == expected
    assert_ran("merge_chunks")  # the hubs


def test_precedence_is_by_own_score_then_node():
    own = torch.tensor([1.0, 3.0, 1.0, 0.0, 3.0, -0.0], device=DEVICE)
    assert fused.precedence(own).tolist() == [2, 0, 3, 4, 1, 5]


def test_few_numbers_are_sorted_in_one_launch_and_equal_ones_stay_in_their_order():
    for dtype in (torch.int32, torch.int64):
        numbers = torch.randint(-3, 90, (300,), device=DEVICE, dtype=dtype) << (
            33 if dtype == torch.int64 else 0
        )
        ordered, order = sort(numbers)
        expected = numbers.sort(stable=True)
        assert ordered.tolist() == expected.values.tolist()
        assert order.tolist() == expected.indices.tolist()
    assert_ran("sort_few")
    assert [part.tolist() for part in sort(numbers[:0])] == [[], []]


def test_many_numbers_are_left_to_pytorch(monkeypatch):
    numbers = torch.tensor([3, 1, 2, 1], device=DEVICE)
    monkeypatch.setattr(counting_sort, "FEW", 3)
    ordered, order = sort(numbers)
    assert ordered.tolist() == [1, 1, 2, 3]
    assert order.tolist() == [1, 3, 2, 0]
    assert not LAUNCHES["sort_few_kernel"]


@pytest.mark.parametrize("few", [True, False])
def test_precedence_of_infinities_nan_and_subnormal_numbers(few, monkeypatch):
    own = torch.tensor([0.0, torch.inf, -torch.nan, 1e-40, torch.nan, 3e38, -0.0], device=DEVICE)
    if not few:
        monkeypatch.setattr(sorting, "FEW", 0)
    assert fused.precedence(own).tolist() == [5, 2, 0, 4, 1, 3, 6]
    assert LAUNCHES["place_few_kernel"] == few

"""Scores, precedence and exact orders."""

import itertools

import pytest
import torch
from ragged import BACKENDS, LENGTHS, functions_of, ragged
from torch import Tensor

from node2seq.ops import reference


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

"""The sequences of small graphs by NumPy: the same as PyTorch's."""

import pytest
import torch

from node2seq.errors import Node2SeqError
from node2seq.ops import eager
from node2seq.ops.plan_cache import build_sequences


@pytest.mark.parametrize("add_self_loops", [False, True])
@pytest.mark.parametrize("merge_duplicates", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (7, 7), (64, 5), (5, 64)])
def test_the_same_sequences(sizes, add_self_loops, merge_duplicates):
    sources, targets = sizes
    source, target = torch.randint(sources, (60,)), torch.randint(targets, (60,))
    choices = {"add_self_loops": add_self_loops, "merge_duplicates": merge_duplicates}
    built = eager.build(source, target, sources, targets, **choices)
    assert built is not None
    truth = build_sequences(source, target, sources, targets, **choices, backend="reference")
    for ours, theirs in ((built.rows.ptr, truth.rows.ptr), (built.rows.target, truth.rows.target)):
        assert torch.equal(ours, theirs)
    assert torch.equal(built.index, truth.index)
    assert built.num_sources == sources


@pytest.mark.parametrize("wrong", [-1, 7])
@pytest.mark.parametrize("side", [0, 1])
def test_an_id_that_does_not_exist_is_left_to_the_error(wrong, side):
    edges = torch.randint(7, (2, 20))
    edges[side, 3] = wrong
    choices = {"add_self_loops": True, "merge_duplicates": True}
    assert eager.build(edges[0], edges[1], 7, 7, **choices) is None
    with pytest.raises(Node2SeqError, match=f"the {('source', 'target')[side]} id {wrong}"):
        build_sequences(edges[0], edges[1], 7, 7, **choices, backend="eager")


def test_large_graphs_and_empty_ones_are_left_to_pytorch():
    choices = {"add_self_loops": True, "merge_duplicates": True}
    many, none = torch.zeros(2, 2**15 + 1, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)
    assert eager.build(many[0], many[1], 7, 7, **choices) is None
    assert eager.build(none[0], none[1], 7, 7, **choices) is None
    assert build_sequences(none[0], none[1], 7, 7, **choices, backend="eager").rows.num_entries == 7

"""Custom ops give out what their fakes promise: generated code counts on it."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from node2seq.ops import compiled
from node2seq.ops.own_memory import in_own_memory
from node2seq.ops.plan_cache import GraphNumbers

NODES, INPUTS, CHANNELS, TAPS = 20, 5, 5, 3
EDGES = torch.randint(NODES, (2, 60), generator=torch.Generator().manual_seed(0))
GRAPH = list(GraphNumbers(1, NODES, NODES, 1, 0))


def _call(function="convolve", readout="max", given=None):
    if given is None:
        shapes = (NODES, INPUTS), (TAPS, INPUTS, CHANNELS), (CHANNELS, INPUTS), (CHANNELS,)
        given = [torch.randn(shape) for shape in shapes]
    return compiled.Call(
        function, "auto", GRAPH, EDGES, given, [True] * len(given), 2.0, readout=readout, num_ranks=3
    )


def _tensors(returned):
    return [returned] if isinstance(returned, torch.Tensor) else [*returned]


def _assert_as_promised(op, *arguments):
    found = _tensors(op(*arguments))
    with FakeTensorMode() as mode:
        promised = _tensors(op(*tree_map_only(torch.Tensor, mode.from_tensor, arguments)))
    for tensor, fake in zip(found, promised, strict=True):
        assert (tensor.shape, tensor.stride(), tensor.dtype) == (fake.shape, fake.stride(), fake.dtype)
        assert tensor.storage_offset() == fake.storage_offset() == 0
    memory = [tensor.untyped_storage().data_ptr() for tensor in found if tensor.numel()]
    assert len({*memory}) == len(memory)


@pytest.mark.parametrize("readout", ["max", "sum", "mean"])
def test_convolutions(readout):
    call = _call(readout=readout)
    _assert_as_promised(compiled._forward, *call)
    _assert_as_promised(compiled._forward, *call._replace(wants=[False] * 4))
    _assert_as_promised(compiled._backward, torch.randn(NODES, CHANNELS), EDGES.new_empty(0), *call)


@pytest.mark.parametrize("part", ["ptr", "length", "target", "index", "entry", "gcn_weights"])
def test_parts_of_plans(part):
    dtype = torch.float32 if part == "gcn_weights" else torch.int64
    _assert_as_promised(compiled._part_of_plan, part, dtype, GRAPH, EDGES)


def test_ranks_and_winners():
    call = _call()
    _assert_as_promised(compiled._winner, *call)
    _assert_as_promised(compiled._rank, *call._replace(given=call.given[:1], wants=[]))


def test_gradients_that_are_slices_of_a_product(monkeypatch):
    """As on a GPU, where one product yields the gradients of the taps and of the root."""
    call = _call()

    def gradients(_record, given, _grad):
        x, taps, root, bias = given
        both = torch.randn(taps.numel() + root.numel())
        return [torch.randn(x.shape), torch.randn(taps.shape), both[-root.numel() :].view_as(root), bias + 1]

    monkeypatch.setattr(compiled.Record, "gradients", gradients)
    _assert_as_promised(compiled._backward, torch.randn(NODES, CHANNELS), EDGES.new_empty(0), *call)


def test_only_parts_of_others_are_copied():
    whole, pair, argument = torch.randn(4, 5), torch.randn(2, 5), torch.randn(3)
    returned = [whole, pair[:1], pair[1:], torch.randn(2, 3).mT, argument]
    own, first, second, turned, given = in_own_memory(lambda _: returned)([argument])
    assert own is whole
    assert first.data_ptr() == pair.data_ptr()
    assert second.data_ptr() != pair[1:].data_ptr()
    assert torch.equal(second, pair[1:])
    assert turned.is_contiguous()
    assert given.data_ptr() != argument.data_ptr()

"""Batches from workers: what was read, in memory that is written again once nothing refers to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from node2seq.data import shared_memory
from node2seq.data.sampler import NeighbourSampler, SeedBatches, batch_loader
from node2seq.data.shared_memory import SharedMemoryTransform, take_rows

NODES, BATCH_SIZE = 600, 20


class Read:
    """Rows of features, and more of later batches: blocks have to grow."""

    def __init__(self) -> None:
        self.x = torch.arange(NODES * 8.0).view(NODES, 8)

    def __call__(self, batch: Any) -> Any:
        nodes = batch.n_id
        if int(nodes[0]) >= NODES // 2:
            nodes = nodes.repeat(3)
        return {
            "x": take_rows(self.x, nodes),
            "edges": batch.edge_index.t(),  # not contiguous
            "none": self.x[:0],
            "first": (nodes[0], nodes > 3, {"sizes": batch.num_sampled_nodes}),
        }


@pytest.fixture
def batches() -> Iterator[Any]:
    """The batches of one epoch after the other, by the number of workers that stay alive."""
    edge_index = torch.randint(NODES, (2, 6000), generator=torch.Generator().manual_seed(0))
    loaders: dict[int, Any] = {}

    def iterate(workers: int) -> Iterator[dict[str, Any]]:
        if workers not in loaders:
            sampler = NeighbourSampler.from_edges(edge_index, NODES, (4, 4))
            order = SeedBatches(torch.arange(NODES), BATCH_SIZE, shuffle=False)
            loaders[workers] = batch_loader(sampler, order, Read(), workers=workers)
        return iter(loaders[workers])

    yield iterate
    for loader in loaders.values():
        loader._iterator = None


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert_same(value, other[key])
    elif isinstance(one, (tuple, list)):
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert one == other


@pytest.mark.parametrize("workers", [1, 2])
def test_all_batches_can_be_kept(batches, workers):
    """More than there are blocks for, and of several sizes."""
    for _ in range(2):
        assert_same(list(batches(workers)), list(batches(0)))


def test_memory_is_written_again_but_not_under_a_view(batches):
    for _ in batches(1):  # the first batch says how large a block should be
        pass
    expected, in_blocks, views = list(batches(0)), 0, []
    for number, (batch, known) in enumerate(zip(batches(1), expected, strict=True)):
        assert_same(batch, known)
        in_blocks += not batch["x"].is_shared()  # which memory of its own would be
        if number in (5, 20):
            views.append((batch["x"][3:7], known["x"][3:7]))
        del batch
    assert in_blocks > 3 * shared_memory._MOST_BLOCKS
    for view, known in views:
        assert torch.equal(view, known)


def test_one_process_reads_as_it_is_told():
    read = Read()
    assert SharedMemoryTransform(lambda batch: take_rows(read.x, batch))(torch.tensor([3, 1])).tolist() == (
        read.x[[3, 1]].tolist()
    )

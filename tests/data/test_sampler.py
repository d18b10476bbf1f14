"""Neighbours are drawn uniformly, as a function of the seed alone, and never from the future."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import NodeSamplerInput

from node2seq import Node2SeqError
from node2seq.data.sampler import NeighbourSampler, SeedBatches, batch_loader, compressed
from node2seq.ops import dispatch

NODES, EDGES = 120, 900


@pytest.fixture(scope="module")
def edge_index() -> Tensor:
    """A graph with a hub that most nodes are neighbours of, parallel edges and nodes without any."""
    generator = torch.Generator().manual_seed(3)
    edges = torch.randint(NODES - 5, (2, EDGES), generator=generator)
    edges[1, :80] = 0
    return edges


def sample(sampler: NeighbourSampler, seeds: list[int], time: Tensor | None = None) -> Any:
    return sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor(seeds), time))


def ids(sampler: NeighbourSampler, found: Any) -> Tensor:
    """The drawn edges as the graph numbers them."""
    assert sampler.edge_permutation is not None
    return sampler.edge_permutation[found.edge]


def parts(found: Any) -> dict[str, Any]:
    tensors = {name: getattr(found, name).tolist() for name in ("node", "row", "col", "edge")}
    return {**tensors, "nodes": found.num_sampled_nodes, "edges": found.num_sampled_edges}


@pytest.mark.parametrize("fanout", [(4, 3), (1, -1, 2), (-1,)])
@pytest.mark.parametrize("order", ["uniform", "latest"])
def test_compiled_and_plain_draw_the_same(edge_index, fanout, order):
    if dispatch.compiled_loops() is None:
        pytest.skip("numba is not installed")
    time = torch.rand(EDGES, generator=torch.Generator().manual_seed(1))
    made = {"edge_time": time, "order": order, "seed": 7}
    both = [
        NeighbourSampler.from_edges(edge_index, NODES, fanout, backend=backend, **made)
        for backend in ("auto", "plain")
    ]
    for epoch in range(3):
        for sampler in both:
            sampler.epoch = epoch
        one, other = (parts(sample(sampler, [0, 5, 119, 7])) for sampler in both)
        assert one == other


@pytest.mark.parametrize("backend", ["auto", "plain"])
def test_batches_are_parts_of_the_graph(edge_index, backend):
    fanout = (5, 4)
    sampler = NeighbourSampler.from_edges(edge_index, NODES, fanout, backend=backend)
    found = sample(sampler, list(range(0, NODES, 3)))
    edge = ids(sampler, found)
    assert torch.equal(found.node[found.row], edge_index[0, edge])
    assert torch.equal(found.node[found.col], edge_index[1, edge])
    assert edge.unique().numel() == edge.numel()  # no edge twice
    assert found.node.unique().numel() == found.node.numel()
    assert found.node[: NODES // 3].tolist() == list(range(0, NODES, 3))
    ends = np.cumsum(found.num_sampled_nodes)
    degree = torch.bincount(edge_index[1], minlength=NODES)
    drawn = torch.bincount(found.col, minlength=found.node.numel())
    for first, last, most in zip([0, ends[0]], ends[:2], fanout, strict=True):
        assert torch.equal(drawn[first:last], degree[found.node[first:last]].clamp(max=most))
    assert drawn[ends[1] :].sum() == 0
    assert sum(found.num_sampled_nodes) == found.node.numel()
    assert sum(found.num_sampled_edges) == edge.numel()


@pytest.mark.parametrize("backend", ["auto", "plain"])
def test_every_set_of_neighbours_is_as_likely_as_any_other(backend):
    """Chi-squared over the ten pairs of five neighbours; one in 10,000 such tests would fail by chance."""
    edges = torch.stack([torch.arange(1, 6), torch.zeros(5, dtype=torch.int64)])
    sampler = NeighbourSampler.from_edges(edges, 6, [2], backend=backend)
    counts, draws = Counter(), 3000
    for epoch in range(draws):
        sampler.epoch = epoch
        counts[frozenset(sample(sampler, [0]).node[1:].tolist())] += 1
    assert len(counts) == 10
    statistic = sum((count - draws / 10) ** 2 / (draws / 10) for count in counts.values())
    assert statistic < 33.7  # 9 degrees of freedom


def test_draws_depend_on_seed_epoch_node_and_hop_and_on_nothing_else(edge_index):
    def drawn(seeds: list[int], seed: int = 0, epoch: int = 0, fanout: tuple[int, ...] = (6,)) -> list[int]:
        sampler = NeighbourSampler.from_edges(edge_index, NODES, fanout, seed=seed)
        sampler.epoch = epoch
        found = sample(sampler, seeds)
        return found.edge[found.node[found.col] == 0].tolist()

    alone = drawn([0])
    assert len(alone) == 6
    assert drawn([4, 0, 9]) == alone
    others = [drawn([0], seed=1), drawn([0], epoch=1), drawn([int(edge_index[1, -1])], fanout=(-1, 6))]
    assert all(other != alone for other in others)


def read(batch: Data) -> Data:
    batch.x = batch.n_id[:, None].float()
    return batch


def test_any_number_of_workers_gives_the_same_batches(edge_index):
    def epochs(workers: int) -> list[list[Any]]:
        sampler = NeighbourSampler.from_edges(edge_index, NODES, (3, 3), seed=5)
        batches = SeedBatches(torch.arange(0, NODES, 2), 16, seed=5)
        loader, found = batch_loader(sampler, batches, read, workers=workers), []
        for epoch in range(2):
            sampler.epoch = batches.epoch = epoch
            found.append([(b.n_id.tolist(), b.e_id.tolist(), b.x.view(-1).tolist()) for b in loader])
        return found

    state = torch.get_rng_state()
    here, there = epochs(0), epochs(2)
    assert torch.equal(torch.get_rng_state(), state)
    assert here == there
    assert len(here[0]) == 4
    assert here[0] != here[1]
    for epoch in here:  # every seed node once
        seeds = [node for nodes, _, _ in epoch for node in nodes[:16]]
        assert set(range(0, NODES, 2)) <= set(seeds)


def test_trimmed_layers_give_the_seed_nodes_the_same(edge_index):
    sampler = NeighbourSampler.from_edges(edge_index, NODES, (4, 4, 4))
    found = sample(sampler, [0, 1, 2, 50])
    torch.manual_seed(0)
    x, edges = torch.randn(found.node.numel(), 5), torch.stack([found.row, found.col])
    model = GraphSAGE(5, 6, num_layers=3)
    sizes = (found.num_sampled_nodes, found.num_sampled_edges)
    trimmed = model(x, edges, num_sampled_nodes_per_hop=sizes[0], num_sampled_edges_per_hop=sizes[1])
    assert found.num_sampled_nodes[3] > 0
    torch.testing.assert_close(trimmed[:4], model(x, edges)[:4])


def test_no_edge_is_newer_than_the_seed_node(edge_index):
    time = torch.randint(100, (EDGES,), generator=torch.Generator().manual_seed(2))
    sampler = NeighbourSampler.from_edges(edge_index, NODES, (5, 5), edge_time=time, order="latest")
    until = torch.tensor([30, 70, -1])
    found = sample(sampler, [0, 0, 7], until)
    edge = ids(sampler, found)
    assert found.batch is not None
    assert (time[edge] <= until[found.batch[found.col]]).all()
    assert torch.equal(found.batch[found.row], found.batch[found.col])
    assert torch.equal(found.node[found.row], edge_index[0, edge])
    assert torch.equal(found.node[found.col], edge_index[1, edge])
    for place, most in enumerate(until.tolist()):
        into = time[(edge_index[1] == found.node[place]) & (time <= most)]
        latest = into.sort(descending=True).values[:5]
        assert time[edge[found.col == place]].sort(descending=True).values.tolist() == latest.tolist()
    pairs = found.batch * NODES + found.node
    assert pairs.unique().numel() == pairs.numel()
    uniform = NeighbourSampler.from_edges(edge_index, NODES, (5, 5), edge_time=time)
    other = sample(uniform, [0, 0, 7], until)
    assert (time[ids(uniform, other)] <= until[other.batch[other.col]]).all()
    assert other.edge.tolist() != found.edge.tolist()


def test_the_graph_may_be_mapped_from_disk(edge_index, tmp_path: Path):
    colptr, row, _ = compressed(edge_index, NODES)
    for name, values in (("colptr", colptr), ("row", row.int())):
        np.save(tmp_path / f"{name}.npy", values.numpy())
    mapped_ptr, mapped_row = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("colptr", "row"))
    expected = parts(sample(NeighbourSampler(colptr, row, (4, 4)), [0, 3]))
    backends: tuple[Any, ...] = ("auto", "plain")
    for backend in backends:
        assert (
            parts(sample(NeighbourSampler(mapped_ptr, mapped_row, (4, 4), backend=backend), [0, 3]))
            == expected
        )


def test_bad_input_is_refused_in_a_sentence(edge_index):
    for fanout, words in (((3, 0), "0 is no number"), ((-2,), "-2 is no number"), ((), "empty fanout")):
        with pytest.raises(Node2SeqError, match=words):
            NeighbourSampler.from_edges(edge_index, NODES, fanout)
    with pytest.raises(Node2SeqError, match="batch size 0"):
        SeedBatches(torch.arange(3), 0)
    with pytest.raises(Node2SeqError, match="the edges have no times"):
        NeighbourSampler.from_edges(edge_index, NODES, (3,), order="latest")
    sampler = NeighbourSampler.from_edges(edge_index, NODES, (3,))
    with pytest.raises(Node2SeqError, match="seed node 120: the nodes are 0 to 119"):
        sample(sampler, [1, 120])
    with pytest.raises(Node2SeqError, match="the edges have no times to compare with"):
        sample(sampler, [1], torch.tensor([3]))
    assert parts(sample(sampler, [119]))["edge"] == []

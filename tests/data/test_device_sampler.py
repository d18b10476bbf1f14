"""Where the graph lies on a device, the same neighbours are drawn there, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput

from node2seq.data.device_sampler import DeviceLoader, DeviceSampler
from node2seq.data.sampler import NeighbourSampler, SeedBatches, batch_loader, compressed
from node2seq.ops.eager.sampling import sample_hop

NODES, EDGES = 300, 4000
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
        ],
    ),
]


@pytest.fixture(scope="module")
def edge_index() -> Tensor:
    """A graph with a hub that most nodes are neighbours of, parallel edges and nodes without any."""
    generator = torch.Generator().manual_seed(3)
    edges = torch.randint(NODES - 5, (2, EDGES), generator=generator)
    edges[1, :600] = 0
    return edges


def both(
    edge_index: Tensor, device: str, fanout: tuple[int, ...], seed: int, time: Tensor | None = None
) -> tuple[NeighbourSampler, DeviceSampler]:
    order: Any = "uniform" if time is None else "latest"
    colptr, row, edge_id = compressed(edge_index, NODES, time)
    ordered = None if time is None else time[edge_id]
    host = NeighbourSampler(colptr, row, fanout, edge_time=ordered, order=order, seed=seed)
    there = compressed(edge_index.to(device), NODES, None if time is None else time.to(device))
    return host, DeviceSampler(there[0], there[1].int(), fanout, time is not None, seed)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fanout", [(4, 3), (1, -1, 2), (-1,), (10, 10, 10)])
@pytest.mark.parametrize("is_latest", [False, True])
def test_the_same_is_drawn_as_in_main_memory(edge_index, device, fanout, is_latest):
    time = torch.rand(EDGES, generator=torch.Generator().manual_seed(1)) if is_latest else None
    for seed in (7, 2**40):
        samplers = both(edge_index, device, fanout, seed, time)
        for epoch in range(3):
            found = []
            for sampler in samplers:
                sampler.epoch = epoch
                drawn = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0, 5, 299, 7])))
                tensors = [getattr(drawn, name).tolist() for name in ("node", "row", "col", "edge")]
                found.append([*tensors, drawn.num_sampled_nodes, drawn.num_sampled_edges])
            assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
def test_a_loader_gives_the_same_batches(edge_index, device):
    def read(batch: Any) -> Any:
        return batch.n_id.tolist(), batch.edge_index.tolist(), batch.e_id.tolist(), batch.batch_size

    host, there = both(edge_index, device, (3, 3), 5)
    order = SeedBatches(torch.arange(0, NODES, 2), 16, seed=5)
    loaders: list[Any] = [batch_loader(host, order, read), DeviceLoader(there, order, read)]
    for epoch in range(2):
        host.epoch = there.epoch = order.epoch = epoch
        one, other = (list(loader) for loader in loaders)
        assert one == other
        assert len(one) == 10


def test_a_batch_that_fails_leaves_nothing_behind(edge_index, monkeypatch: pytest.MonkeyPatch):
    _, sampler = both(edge_index, "cpu", (4, 4), 1)
    nodes = NodeSamplerInput(None, torch.tensor([0, 5]))
    expected, hops = sampler.sample_from_nodes(nodes), []

    def fail_at_the_second(*given: Any) -> Any:
        hops.append(given)
        if len(hops) == 2:
            raise MemoryError
        return sample_hop(*given)

    with monkeypatch.context() as patched:
        patched.setattr("node2seq.data.device_sampler.sample_hop", fail_at_the_second)
        with pytest.raises(MemoryError):
            sampler.sample_from_nodes(nodes)
    assert torch.equal(sampler.sample_from_nodes(nodes).node, expected.node)

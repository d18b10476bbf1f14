"""A graph on the GPU that trains: the batches, losses and weights of one in main memory."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch_geometric.data import Data

from node2seq.data import Split
from node2seq.environment import Processes
from node2seq.nn.models.network import Network, hops_of_network
from node2seq.train import BatchSettings, TrainSettings, minibatch
from node2seq.train import device_batches as module
from node2seq.train.batches import BatchGraph, MiniBatches, batches_in_words
from node2seq.train.device_batches import DeviceGraph, fits_on
from node2seq.train.inference import infer_by_layers
from node2seq.train.minibatch import BatchTrainer
from node2seq.train.settings import make_network

NODES, FEATURES, CLASSES = 90, 6, 3


@pytest.fixture(scope="module")
def data() -> Data:
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    edge_index = torch.randint(NODES, (2, 600), generator=generator)
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=edge_index, y=y)


@pytest.fixture(scope="module")
def split() -> Split:
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(2))
    parts = {"train": order[:50], "val": order[50:70], "test": order[70:], "test_rest": order[70:]}
    return Split(**parts, rule="given", seed=0)


def network(name: str = "node2seq", **options: Any) -> Network:
    torch.manual_seed(0)
    return make_network(name, FEATURES, CLASSES, {"hidden_channels": 8, **options}).double()


@pytest.mark.parametrize(
    ("name", "options", "carried"),
    [
        ("node2seq", {}, None),
        ("gcn", {}, "edge_weight"),
        ("node2seq", {"order": "edge"}, "edge_order"),
    ],
)
def test_training_gives_the_same_bits(data, split, monkeypatch, name, options, carried):
    given = data.clone()
    if carried is not None:
        given[carried] = torch.rand(600, generator=torch.Generator().manual_seed(3)).double()

    def train() -> tuple[list[Any], list[torch.Tensor], torch.Tensor]:
        model = network(name, **options)
        batches = BatchSettings(16, (3,) * hops_of_network(model))
        trainer = BatchTrainer(model, given, split, TrainSettings(epochs=4, lr=0.02), batches, seed=3)
        while trainer.active:
            trainer.advance(1)
        trainer.finish()
        history = [(record.loss, record.val_loss) for record in trainer.runs[0].history]
        exact = infer_by_layers(model.eval(), trainer._graph, torch.device("cpu"))
        return history, list(model.state_dict().values()), exact

    expected = train()
    made = []

    def on_device(model: Network, graph: Data, _: Processes) -> BatchGraph:
        made.append(DeviceGraph.of(model, graph))
        return made[-1]

    monkeypatch.setattr(minibatch, "_graph_in_memory", on_device)
    found = train()
    assert len(made) == 1
    assert found[0] == expected[0]
    assert all(torch.equal(one, other) for one, other in zip(found[1], expected[1], strict=True))
    assert torch.equal(found[2], expected[2])


def test_a_graph_that_takes_half_of_the_memory_stays_outside(data, monkeypatch):
    device, model = torch.device("cpu"), network()
    monkeypatch.setattr(module, "memory_of", lambda _: 2**30)
    assert fits_on(device, model, data)
    monkeypatch.setattr(module, "memory_of", lambda _: 2 * 600 * 48)  # the edges alone
    assert not fits_on(device, model, data)
    monkeypatch.setattr(module, "memory_of", lambda _: None)
    assert not fits_on(device, model, data)
    assert type(minibatch._graph_in_memory(model, data, Processes())) is BatchGraph


def test_where_batches_are_drawn_is_said():
    told = BatchSettings(16, (4, -1)), (0.1, 0.1), Processes(), ""
    words = "mini-batches of 16 nodes, neighbours by hop: 4, all"
    assert batches_in_words(*told, torch.device("cpu")) == words
    assert batches_in_words(*told, torch.device("cuda")) == f"{words}, drawn on the GPU"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_trains_on_batches_of_its_own(data, split):
    """Losses of the same batches drawn in main memory, up to rounding; the exact pass too."""
    losses = []
    for is_there in (True, False):
        model = network().float().cuda()
        given = data.clone()
        given.x = given.x.float()
        with pytest.MonkeyPatch.context() as patched:
            if not is_there:
                patched.setattr(module, "fits_on", lambda *_: False)
            batches = BatchSettings(16, (3, 3, 3))
            trainer = BatchTrainer(model, given, split, TrainSettings(epochs=3), batches, seed=3)
        assert trainer.drawn_on.type == ("cuda" if is_there else "cpu")
        while trainer.active:
            trainer.advance(1)
        losses.append([(record.loss, record.val_loss) for record in trainer.runs[0].history])
    for one, other in zip(*losses, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_batch_is_not_overwritten_while_a_step_works_on_it():
    """Batches are drawn while the GPU works on the step before: each stays as it was drawn."""
    nodes, generator = 200_000, torch.Generator().manual_seed(0)
    edge_index = torch.randint(nodes, (2, 4_000_000), generator=generator)
    graph = Data(x=torch.randn(nodes, 64, generator=generator), edge_index=edge_index)
    torch.manual_seed(0)
    model = make_network("node2seq", 64, CLASSES, {"hidden_channels": 8}).cuda()
    seeds = torch.arange(0, nodes, 8)
    sums: list[list[float]] = []
    for kind in (DeviceGraph, BatchGraph):
        drawn = MiniBatches(kind.of(model, graph), seeds, BatchSettings(1024, (10, 10, 10)), 3, Processes())
        found, batches = [], cast("Any", drawn.of_epoch(0))
        for part, x in batches:
            part, x = part.to(torch.device("cuda")), x.cuda()
            busy = torch.randn(4096, 4096, device="cuda")
            for _ in range(8):  # the step has not begun when the next batch is drawn
                busy = busy @ busy / 64
            total = x.double().sum() + (part.edges.index.double() * part.seeds.sum()).sum()
            found.append(total + 0 * busy[0, 0].isnan())
        sums.append([float(total) for total in found])
    assert sums[0] == pytest.approx(sums[1], rel=1e-12)

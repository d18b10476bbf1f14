"""Training on a graph that stays on disk is training on the same graph in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from stored_graphs import write_files
from torch_geometric.data import Data

from node2seq.data import make_split
from node2seq.data.convert import Request, convert
from node2seq.data.store import StoredGraph
from node2seq.environment import release_freed_memory
from node2seq.nn.models import MODELS
from node2seq.train.inference import predict
from node2seq.train.minibatch import (
    BatchTrainer,
    StoreTrainer,
    fanout_for_store,
    graph_on_disk,
    predict_store,
)
from node2seq.train.settings import BatchSettings, TrainSettings

pytest.importorskip("duckdb")


@pytest.fixture
def store(tmp_path: Path) -> StoredGraph:
    edges, nodes = write_files(tmp_path)
    return convert(Request(str(edges), str(nodes), "kind", directed=True), tmp_path / "store")


def in_memory(store: StoredGraph) -> Data:
    target = torch.repeat_interleave(torch.arange(300), torch.from_numpy(store.colptr).diff())
    edge_index = torch.stack([torch.from_numpy(store.row).long(), target])
    return Data(x=store.features(torch.arange(300)), edge_index=edge_index, y=store.y.clone())


@pytest.mark.parametrize("name", ["residual-node2seq", "gcn"])
def test_with_all_neighbours_it_is_the_graph_in_memory(store: StoredGraph, name: str):
    data = in_memory(store)
    split = make_split(data, seed=0)
    sizes, settings = BatchSettings(64, (-1, -1)), TrainSettings(epochs=3, averaging=0.5)
    trained = []
    for stays_on_disk in (False, True):
        torch.manual_seed(0)
        model = MODELS[name](6, 8, 3)
        if stays_on_disk:
            trainer = StoreTrainer(model, store, split, settings, sizes, 1)
        else:
            trainer = BatchTrainer(model, data, split, settings, sizes, 1)
        while trainer.active:
            trainer.advance()
        trainer.finish()
        trained.append((model, trainer.runs[0].history, trainer.results()[0]))
    (first, epochs, result), (second, again, stored) = trained
    for name, weights in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], weights, msg=name)
    assert [record.loss for record in again] == pytest.approx([record.loss for record in epochs], rel=1e-5)
    assert stored.val.loss == pytest.approx(result.val.loss, rel=1e-5)
    assert stored.test.loss == pytest.approx(result.test.loss, rel=1e-5)
    assert stored.test.accuracy == result.test.accuracy
    some = torch.tensor([3, 77, 250])
    outputs = predict_store(second, graph_on_disk(second, store), some, sizes, seed=1)
    expected = predict(first, data)[some].double()
    torch.testing.assert_close(outputs.softmax(1).double(), expected, atol=1e-5, rtol=1e-4)


def test_freed_memory_is_given_back_now_and_then(store: StoredGraph, monkeypatch: pytest.MonkeyPatch):
    calls = []
    monkeypatch.setattr("node2seq.train.minibatch.release_freed_memory", lambda: calls.append(1))
    split = make_split(in_memory(store), seed=0)
    sizes = BatchSettings(10, (2, 2))  # 16 batches to train on, and 21 to measure
    StoreTrainer(MODELS["gcn"](6, 4, 3), store, split, TrainSettings(epochs=1), sizes).advance()
    assert len(calls) == 37 // 8
    release_freed_memory()  # the function itself works on any system


def test_default_fanout_reads_about_as_many_nodes_for_any_number_of_hops():
    assert [fanout_for_store(hops)[:1] for hops in (1, 2, 3, 4, 8)] == [(10,), (10,), (5,), (3,), (2,)]
    assert len(fanout_for_store(4)) == 4

"""Inference layer by layer gives what one pass over the whole graph gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from node2seq import MODELS, Node2SeqError
from node2seq.nn.models.network import Network
from node2seq.ops import SparseRows
from node2seq.train import batches
from node2seq.train.batches import BatchGraph, check_parts
from node2seq.train.inference import infer_by_layers
from node2seq.train.settings import make_network

NODES, FEATURES = 60, 7


def graph(*names: str) -> Data:
    """A directed graph with a hub, loops, parallel edges, nodes without edges, and equal scores."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES - 4, (2, 400), generator=generator)
    edge_index[1, :50] = 3
    edge_index[:, 50:52] = torch.tensor([[36, 22], [12, 12]])
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
    x[10:20] = 0.0  # all neighbours have the same score
    x[20:52] = torch.eye(FEATURES, dtype=torch.float64).repeat(5, 1)[:32]
    x[36:52] *= -1  # the same score of their own as another node, such as 36 and 22
    values = {
        "edge_weight": torch.rand(400, generator=generator, dtype=torch.float64) + 0.1,
        "edge_attr": torch.randn(400, 2, generator=generator, dtype=torch.float64),
        "edge_order": torch.randint(50, (400,), generator=generator),
    }
    return Data(x=x, edge_index=edge_index, **{name: values[name] for name in names})


def by_layers(network: Network, data: Data, call: Any = None) -> torch.Tensor:
    check_parts(network, {})
    return infer_by_layers(call or network, BatchGraph.of(network, data), torch.device("cpu"))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CHUNK_EDGES", 40)


CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    **{name: ({}, ()) for name in MODELS},
    "node2seq, position 1": ({"position": 1, "readout": "mean", "skip": "concat"}, ()),
    "node2seq, position 1, max": ({"position": 1}, ()),
    "node2seq, weights and attributes": ({}, ("edge_weight", "edge_attr")),
    "node2seq, order of the edges": ({"order": "edge", "readout": "ranks"}, ("edge_order",)),
    "node2seq-plus, smoothed": ({"smoothing": 3, "smoothed": "first"}, ("edge_weight",)),
    "residual-gcn, smoothed": ({"smoothing": 2}, ()),
    "residual-node2seq, normalised sums": ({"normalized_sum": True}, ()),
    "residual-node2seq, largest neighbours": ({"readout": "ranks", "neighbour_max": True}, ()),
    "node2seq-plus, own apart": ({"own": "apart", "self_loops": False}, ()),
    "residual-node2seq, soft ranks": ({"readout": "ranks", "num_layers": 3}, ()),
    "gcn, weights": ({}, ("edge_weight",)),
    "sgc, weights": ({"K": 3}, ("edge_weight",)),
    "gat, attributes": ({}, ("edge_attr",)),
    "gin, attributes": ({}, ("edge_attr",)),
}


@pytest.mark.parametrize("case", CASES)
def test_layer_by_layer_equals_the_whole_pass(case):
    options, carried = CASES[case]
    data, name = graph(*carried), case.split(",")[0]
    edge_dim = 2 if "edge_attr" in carried else None
    torch.manual_seed(0)
    network = make_network(name, FEATURES, 4, {"hidden_channels": 8, **options}, edge_dim).double().eval()
    values = {key: data[key] for key in carried}
    assert data.x is not None
    with torch.no_grad():
        expected = network(data.x, data.edge_index, **values)
        hidden = network.embed(data.x, data.edge_index, **values)
    torch.testing.assert_close(by_layers(network, data), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(by_layers(network, data, network.embed), hidden, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_features_without_their_zeros_give_the_same(name):
    data, columns = graph(), 80
    data.x = torch.zeros(NODES, columns, dtype=torch.float64)
    data.x[torch.arange(NODES), torch.arange(NODES) % columns] = 1.5
    torch.manual_seed(0)
    network = make_network(name, columns, 4, {"hidden_channels": 8}).double().eval()
    features = BatchGraph.of(network, data).features(torch.arange(3, 9))
    assert isinstance(features, SparseRows) == getattr(network, "reads_sparse_rows", False)
    with torch.no_grad():
        expected = network(data.x, data.edge_index)
    torch.testing.assert_close(by_layers(network, data), expected, rtol=0, atol=1e-10)


def test_chunks_cover_all_nodes_and_are_bounded(monkeypatch: pytest.MonkeyPatch):
    network = make_network("gcn", FEATURES, 4, {"hidden_channels": 8})
    data = graph()
    parts = BatchGraph.of(network, data)
    chunks = list(parts.chunks())
    assert torch.cat(chunks).tolist() == list(range(NODES))
    edges = [int(parts.colptr[chunk[-1] + 1] - parts.colptr[chunk[0]]) for chunk in chunks]
    assert all(count <= 40 or chunk.numel() == 1 for count, chunk in zip(edges, chunks, strict=True))
    assert max(edges) > 40  # the hub
    monkeypatch.setattr(batches, "CHUNK_NODES", 2)
    assert {chunk.numel() for chunk in parts.chunks()} == {1, 2}


def test_networks_of_the_whole_graph_are_refused():
    for name, options, words in (
        ("node2seq", {"hops": 2}, "chosen in the whole graph"),
        ("node2seq", {"order": "degree"}, "this order is one of the whole graph"),
        ("node2seq-plus", {"directed": True}, "directed=True"),
    ):
        network = make_network(name, FEATURES, 4, {"hidden_channels": 8, **options})
        with pytest.raises(Node2SeqError, match=words):
            check_parts(network, {})
    with pytest.raises(Node2SeqError, match="the largest weight"):
        check_parts(make_network("cheby", FEATURES, 4, {"hidden_channels": 8}), {"edge_weight": None})
    with pytest.raises(Node2SeqError, match="not a network of this package"):
        check_parts(torch.nn.Linear(2, 2), {})

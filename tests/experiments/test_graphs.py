"""The graphs of the columns: packed and back, without duplicates, standardised."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from node2seq.data import load, make_split
from node2seq.errors import Node2SeqError
from node2seq.experiments.graphs import (
    UNIQUE_NODES,
    pack,
    read_graph_of,
    standardized,
    unpack,
    without_duplicates,
)


def test_a_packed_graph_is_the_same(tmp_path):
    pack(tmp_path / "graphs.npz", [("karate", load("karate"))])
    found, data = unpack(tmp_path / "graphs.npz", "karate"), load("karate")
    for name in ("x", "edge_index", "y"):
        assert torch.equal(found[name], data[name])
    assert torch.equal(make_split(found, seed=3).test, make_split(data, seed=3).test)
    with pytest.raises(Node2SeqError, match="it holds no such graph"):
        unpack(tmp_path / "graphs.npz", "texas")


def test_fixed_splits_are_packed_too(tmp_path, real_data):
    data = real_data("cora-f", load)
    pack(tmp_path / "graphs.npz", [("cora-f", data)])
    found = unpack(tmp_path / "graphs.npz", "cora-f")
    assert torch.equal(make_split(found).test, make_split(data).test)
    assert make_split(found).test_rest.numel() > 1000


def test_of_nodes_with_the_same_neighbours_and_label_the_first_is_kept():
    # 1 and 2 see node 0 alone and have one label; 3 sees it too, and has another one.
    edges = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
    data = Data(
        x=torch.arange(4.0)[:, None], edge_index=edges, y=torch.tensor([0, 1, 1, 0]), split_rule="60/20/20"
    )
    found = without_duplicates(data).to_dict()
    assert found["x"].flatten().tolist() == [0, 1, 3]
    assert found["y"].tolist() == [0, 1, 0]
    assert sorted(map(tuple, found["edge_index"].t().tolist())) == [(0, 1), (0, 2), (1, 0), (2, 0)]


@pytest.mark.parametrize(("name", "nodes"), [("chameleon", 2277), ("squirrel", 5201)])
def test_wikipedia_has_duplicates(real_data, name: str, nodes: int):
    whole = real_data(name, load)
    unique = read_graph_of(f"{name}-unique")
    assert (whole.num_nodes, unique.num_nodes) == (nodes, UNIQUE_NODES[name])
    assert make_split(unique, seed=0).rule == make_split(whole, seed=0).rule


def test_the_default_network_reads_standardised_features():
    data = Data(x=torch.tensor([[1.0, 5.0], [3.0, 5.0]]), y=torch.tensor([0, 1]))
    assert standardized(data)["x"].tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert data["x"].tolist() == [[1.0, 5.0], [3.0, 5.0]]

"""A store as PyG's loaders read it, and what is said of one that is damaged."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from stored_graphs import write_files
from torch_geometric.loader import NodeLoader

from node2seq.data.convert import Request, convert
from node2seq.data.store import StoredGraph
from node2seq.errors import Node2SeqError

pytest.importorskip("duckdb")


@pytest.fixture
def store(tmp_path: Path) -> StoredGraph:
    edges, nodes = write_files(tmp_path)
    return convert(Request(str(edges), str(nodes), "kind"), tmp_path / "store")


def test_pygs_loader_draws_from_it(store: StoredGraph):
    nodes = torch.arange(0, 300, 3)
    loader = NodeLoader((store, store), store.sampler([4, 3], seed=5), nodes, batch_size=32)
    batches = list(loader)
    assert len(batches) == 4
    for batch in batches:
        assert torch.equal(batch.x, store.features(batch.n_id))
        assert torch.equal(batch.y, store.y[batch.n_id])
        source, target = batch.n_id[batch.edge_index[0]], batch.n_id[batch.edge_index[1]]
        assert torch.equal(source, torch.from_numpy(store.row)[batch.e_id].long())
        assert bool((store.colptr[target] <= batch.e_id.numpy()).all())
        assert bool((store.colptr[target + 1] > batch.e_id.numpy()).all())


def test_pygs_interfaces(store: StoredGraph):
    assert [attr.attr_name for attr in store.get_all_tensor_attrs()] == ["x", "y"]
    assert store.get_tensor_size(group_name=None, attr_name="x") == (300, 6)
    x = store.get_tensor(group_name=None, attr_name="x", index=torch.tensor([2, 5]))
    assert torch.equal(torch.as_tensor(x), store.features(torch.tensor([2, 5])))
    row, colptr = store.get_edge_index(store.get_all_edge_attrs()[0])
    assert row.numel() == store.num_edges == int(colptr[-1])
    with pytest.raises(Node2SeqError, match="a store is read only"):
        store.put_tensor(torch.zeros(1), group_name=None, attr_name="x", index=None)
    again = pickle.loads(pickle.dumps(store))
    assert torch.equal(again.y, store.y)
    assert len(pickle.dumps(store)) < 20_000  # the arrays stay where they are


def test_ids_that_are_not_there_are_named(store: StoredGraph):
    with pytest.raises(Node2SeqError, match="2 ids \\('nobody', ''\\) are not in this graph"):
        store.find([store.ids(torch.tensor([0]))[0], "nobody", ""])


def test_damage_is_named(store: StoredGraph):
    folder = store.path
    manifest = (folder / "manifest.json").read_text()

    def refused(match: str) -> None:
        with pytest.raises(Node2SeqError, match=match):
            StoredGraph(folder)

    content = (folder / "row.bin").read_bytes()
    (folder / "row.bin").write_bytes(content[:-4])
    refused(r"^[^:]*row.bin: it has \d+ bytes, and the manifest of the store says \d+. Restore it")
    (folder / "row.bin").unlink()
    refused("^[^:]*row.bin: the file is missing")
    (folder / "row.bin").write_bytes(content[:-4] + b"\x00\x00\x00\x01")
    with pytest.raises(Node2SeqError, match=r"row.bin: its checksum does not match its content"):
        StoredGraph(folder).check()
    (folder / "manifest.json").write_text(manifest[: len(manifest) // 2])
    refused("manifest.json: is not JSON|manifest.json: it is not JSON")
    (folder / "manifest.json").write_text(json.dumps({**json.loads(manifest), "format": 99}))
    refused("format=99: this version of node2seq reads formats up to 1")
    (folder / "manifest.json").write_text(json.dumps({**json.loads(manifest), "arrays": 3}))
    refused("parts of it are missing or wrong")
    (folder / "manifest.json").unlink()
    refused("it has no manifest.json, so it is not a store")
    with pytest.raises(Node2SeqError, match="there is no such store"):
        StoredGraph(folder / "nowhere")

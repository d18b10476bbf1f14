import os
import sys
from typing import Any

import networkx as nx
import polars as pl
import pytest
import torch
from torch_geometric.data import Data

from node2seq.data import (
    from_frames,
    from_networkx,
    from_pyg,
    load,
    make_split,
    summarise,
    to_frames,
    to_networkx,
    to_pyg,
    write_graph,
)
from node2seq.data.graph import estimate
from node2seq.errors import Node2SeqError


def assert_same(one: Data, other: Data) -> None:
    for name in ("x", "edge_index", "y"):
        assert torch.equal(one[name], other[name]), name


def test_frames_there_and_back():
    karate = load("karate")
    edges, nodes = to_frames(karate)
    assert (edges.height, nodes.height, nodes.columns[:3]) == (78, 34, ["id", "label", "f0"])
    back = from_frames(edges, nodes, "label")
    assert_same(karate, back)
    # Names of nodes and classes survive as well.
    named = from_frames(
        edges.cast(pl.String), nodes.with_columns(pl.format("c{}", "label").alias("label")), "label"
    )
    again = from_frames(*to_frames(named), "label")
    assert_same(named, again)
    assert again.class_names == ["c0", "c1", "c2", "c3"]


def test_pandas_frames():
    pd = pytest.importorskip("pandas")
    karate = load("karate")
    edges, nodes = to_frames(karate)
    nodes = pd.DataFrame({name: nodes[name].to_list() for name in nodes.columns})
    edges = pd.DataFrame({name: edges[name].to_list() for name in edges.columns})
    assert_same(karate, from_frames(edges, nodes, "label"))


def test_masks_and_splits_are_written(tmp_path):
    karate = load("karate")
    split = make_split(karate, seed=1)
    _, nodes = to_frames(karate, split)
    assert nodes["split"].value_counts().sort("split").rows() == [("test", 8), ("train", 19), ("val", 7)]
    masked = from_frames(*to_frames(karate, split), "label", split="split")
    assert to_frames(masked)[1]["split"].to_list() == nodes["split"].to_list()
    with pytest.raises(Node2SeqError) as caught:
        write_graph(karate, tmp_path / "e.csv", tmp_path / "n.xlsx")
    assert "End it in .csv, .tsv or .parquet" in str(caught.value)
    with pytest.raises(Node2SeqError) as caught:
        write_graph(karate, tmp_path / "no" / "e.csv", tmp_path / "n.csv")
    assert "its folder does not exist. Create it first" in str(caught.value)


def test_masks_of_several_splits_are_not_written_as_one():
    karate = load("karate")
    for part in ("train", "val", "test"):
        karate[f"{part}_mask"] = torch.ones(34, 10, dtype=torch.bool)
    assert "split" not in to_frames(karate)[1].columns


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_written_files_have_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_text("")
    write_graph(load("karate"), tmp_path / "e.csv", tmp_path / "n.csv")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="files have no limit there")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_failed_write_leaves_the_old_file(ending: str, tmp_path):
    import resource

    karate = load("karate")
    edges, nodes = tmp_path / f"e.{ending}", tmp_path / f"n.{ending}"
    write_graph(karate, edges, nodes)
    before = edges.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # reported by the system as a full disk is
    try:
        with pytest.raises(
            Node2SeqError, match=rf"e\.{ending}: the disk is full\. Free some space, then run it"
        ):
            write_graph(karate, edges, nodes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert edges.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [edges.name, nodes.name]


@pytest.mark.skipif(sys.platform == "win32", reason="files have no limit there")
def test_of_two_tables_both_are_written_or_none(tmp_path):
    import resource

    karate = load("karate")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # enough for the edges
    try:
        with pytest.raises(Node2SeqError, match=r"n\.csv: the disk is full"):
            write_graph(karate, tmp_path / "e.csv", tmp_path / "n.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_networkx_there_and_back():
    graph = nx.karate_club_graph()
    data = from_networkx(graph, "club")
    assert data.class_names == ["Mr. Hi", "Officer"]
    assert data.edge_index is not None
    assert data.num_edges == 156
    back = to_networkx(data)
    assert nx.is_isomorphic(back, graph)
    assert back.nodes["0"]["label"] == "Mr. Hi"
    assert {frozenset(edge) for edge in back.edges} == {frozenset(map(str, edge)) for edge in graph.edges}


def test_networkx_attributes_are_columns_and_direction_is_kept():
    graph: Any = nx.DiGraph([("a", "b"), ("b", "a"), ("b", "c")])
    nx.set_node_attributes(graph, {"a": 1.0, "b": 2.0, "c": 3.0}, "size")
    nx.set_node_attributes(graph, {"a": "x", "b": "y"}, "kind")
    graph.add_node("d", size=4.0, kind="x")
    graph.add_node("e", size=4.0, kind="y")
    data = from_networkx(graph, "kind", features=["size"])
    assert data.x is not None
    assert data.x.view(-1).tolist() == [1, 2, 3, 4, 4]
    assert data.edge_index is not None
    assert data.edge_index.tolist() == [[0, 1, 1], [1, 0, 2]]
    assert isinstance(data.y, torch.Tensor)
    assert data.y.tolist() == [0, 1, -1, 0, 1]
    assert isinstance(to_networkx(data), nx.DiGraph)
    with pytest.raises(Node2SeqError, match="it has no nodes"):
        from_networkx(nx.Graph())


def test_pyg_there_and_back():
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 1, 0]])
    given = Data(x=torch.eye(3), edge_index=edge_index, y=torch.tensor([0, 1, 0]))
    data = from_pyg(given)
    assert data.edge_index is not None
    assert data.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert summarise(data).self_loops_dropped == 1
    plain = to_pyg(data)
    assert sorted(plain.keys()) == ["edge_index", "x", "y"]
    assert from_pyg(given, directed=True).num_edges == 3
    bare = from_pyg(Data(edge_index=edge_index, num_nodes=4))
    assert bare.x is not None
    assert bare.x.shape == (4, 22)
    assert bare.report.notes[0].startswith("no features: the nodes get 22 structural features")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data(x=torch.eye(2)),
         "the graph: it lacks `edge_index`. Give a torch_geometric.data.Data that has it."),
        (Data(x=torch.eye(2), edge_index=torch.tensor([[0], [2]])),
         "edge_index from 0 to 2: the graph has 2 nodes, numbered from 0. "
         "Number the nodes by the rows of x."),
        (Data(x=torch.eye(2), edge_index=torch.tensor([0, 1])),
         "x of shape [2, 2], edge_index of shape [2]: they must be [N, C] and [2, E]. Reshape them."),
        (Data(x=torch.eye(2) / 0, edge_index=torch.tensor([[0], [1]])),
         "x: it holds NaN or infinite values. Replace them."),
        (Data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([1])),
         "1 labels: the graph has 2 nodes. Give one label per node, −1 for none."),
    ],
)  # fmt: skip
def test_pyg_graphs_that_cannot_be_used(data, message):
    with pytest.raises(Node2SeqError) as caught:
        from_pyg(data)
    assert str(caught.value) == message


def test_summary_by_hand():
    edges = {"source": list("aabcxqq"), "target": list("bacdyqx")}
    nodes = {"id": list("abcdxyqz"), "label": ["1", "1", "2", None, "2", "2", "1", None]}
    summary = summarise(from_frames(edges, nodes, "label"))
    assert (summary.nodes, summary.edges, summary.directed) == (8, 5, False)
    assert (summary.components, summary.largest_component, summary.isolated) == (3, 4, 1)
    assert (summary.largest_degree, summary.self_loops_dropped, summary.duplicates_merged) == (2, 2, 0)
    assert (summary.classes, summary.labelled, summary.class_counts) == (2, 6, {"1": 3, "2": 3})
    assert summary.homophily == pytest.approx(2 / 4)  # a–b, b–c, x–y, q–x between labelled nodes
    assert summary.notes
    assert summary.as_dict()["nodes"] == 8


def test_summary_of_a_directed_graph_and_of_no_edges():
    summary = summarise(from_frames({"source": [1, 2], "target": [2, 1]}, directed=True))
    assert (summary.edges, summary.largest_degree, summary.homophily, summary.classes) == (2, 2, None, 0)
    summary = summarise(from_frames({"source": [], "target": []}, {"id": [1, 2, 3], "f": [0, 1, 2]}))
    assert (summary.edges, summary.components, summary.isolated, summary.largest_degree) == (0, 3, 3, 0)


def test_the_estimate_is_near_what_was_measured():
    # Seconds of one thread for forward, backward and step of the default network, divided by 1.6 for two;
    # bytes.
    measured = {
        (183, 552, 1703): (0.016, 350),
        (2708, 10534, 1433): (0.152, 515),
        (5201, 390824, 2089): (0.879, 637),
        (20000, 199880, 64): (0.432, 515),
        (20000, 798072, 64): (0.803, 581),
    }
    for sizes, (seconds, mebibytes) in measured.items():
        estimated, memory = estimate(*sizes)
        assert 0.5 < estimated / (seconds / 1.6) < 2
        assert 0.7 < memory / 2**20 / mebibytes < 1.4


def test_a_column_without_a_name_is_a_feature():
    nodes = {"id": ["a", "b", "c", "d"], "": [1.0, 2.0, 4.0, 8.0], "kind": ["x", "y", "x", "y"]}
    data = from_frames({"source": ["a"], "target": ["b"]}, nodes, "kind")
    assert data.x is not None
    assert data.x.tolist() == [[1.0], [2.0], [4.0], [8.0]]

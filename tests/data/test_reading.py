"""Users' own graphs: files and frames → tensors, and the schema that carries the encoding to new graphs."""

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch_geometric.data import Data

from node2seq.data import from_frames, make_split, read_graph, write_graph
from node2seq.data.graph import EdgeCounts, clean_edges, connected_components
from node2seq.errors import Node2SeqError

EDGES = "source,target,weight\na,b,1.5\nb,c,2\nc,a,1\nb,a,9\nd,d,1\n"
NODES = "id,age,colour,label\na,1,red,yes\nb,2.5,blue,no\nc,-3,red,yes\nd,4e1,green,no\ne,0,blue,\n"


def tensors(data: Data) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    assert data.x is not None
    assert data.edge_index is not None
    assert isinstance(data.y, torch.Tensor)
    return data.x, data.edge_index, data.y


def assert_same(one: Data, other: Data) -> None:
    for a, b in zip(tensors(one), tensors(other), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "nodes.csv").write_text(NODES)
    return tmp_path / "edges.csv", tmp_path / "nodes.csv"


def test_the_small_graph_by_hand(files):
    data = read_graph(files[0], files[1], "label")
    x, edge_index, y = tensors(data)
    assert edge_index.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    # age, then colour: blue, green, red
    assert x.tolist() == [[1, 0, 0, 1], [2.5, 1, 0, 0], [-3, 0, 0, 1], [40, 0, 1, 0], [0, 1, 0, 0]]
    assert y.tolist() == [1, 0, 1, 0, -1]
    assert data.class_names == ["no", "yes"]
    assert list(data.node_ids) == ["a", "b", "c", "d", "e"]
    assert data.report.edges == EdgeCounts(given=5, self_loops=1, duplicates=1)
    assert data.report.notes == [
        f"column 'weight' of {files[0]} is ignored; to use it, give --edge-weight weight"
    ]
    assert json.loads(json.dumps(data.schema)) == data.schema
    assert make_split(data).rule == "60/20/20"


def test_directed_keeps_both_directions_of_a_pair(files):
    data = read_graph(files[0], files[1], "label", directed=True)
    assert tensors(data)[1].tolist() == [[0, 1, 1, 2], [1, 0, 2, 0]]
    assert data.schema["directed"] is True


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_texas_written_and_read_is_bit_for_bit_texas(ending, known, tmp_path):
    texas = known("texas")
    split = make_split(texas, seed=5)
    edges, nodes = tmp_path / f"edges.{ending}", tmp_path / f"nodes.{ending}"
    write_graph(texas, edges, nodes, split=split)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([edges.name, nodes.name])
    again = read_graph(edges, nodes, "label", split="split")
    assert_same(texas, again)
    resplit = make_split(again)
    assert resplit.rule == "fixed"
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(split, part), getattr(resplit, part))
    assert_same(texas, read_graph(edges, nodes, schema=texas.schema))


def test_shuffled_rows_and_string_ids_are_the_same_graph_renumbered(known, tmp_path):
    texas = known("texas")
    write_graph(texas, tmp_path / "edges.csv", tmp_path / "nodes.csv")
    nodes = pl.read_csv(tmp_path / "nodes.csv", infer_schema=False).sample(fraction=1, shuffle=True, seed=1)
    edges = pl.read_csv(tmp_path / "edges.csv", infer_schema=False).sample(fraction=1, shuffle=True, seed=2)
    prefixed = [pl.format("node {}", column).alias(column) for column in edges.columns]
    named = nodes.with_columns(pl.format("node {}", "id").alias("id"))
    data = from_frames(edges.select(prefixed), named, schema=texas.schema)
    order = torch.tensor(nodes["id"].cast(pl.Int64).to_list())
    x, edge_index, y = tensors(data)
    assert torch.equal(x, tensors(texas)[0][order])
    assert torch.equal(y, tensors(texas)[2][order])
    assert torch.equal(clean_edges(order[edge_index], 183)[0], tensors(texas)[1])


def test_float32_features_survive_text(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator) * 10.0 ** torch.randint(-30, 30, (50, 3), generator=generator)
    graph = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.arange(50) % 2)
    write_graph(graph, tmp_path / "e.csv", tmp_path / "n.csv")
    assert_same(graph, read_graph(tmp_path / "e.csv", tmp_path / "n.csv", "label"))


def test_every_format_gives_the_same_graph(files, tmp_path):
    edges, nodes = files
    expected = read_graph(edges, nodes, "label")
    frames = [pl.read_csv(path) for path in files]
    ways: list[tuple] = []
    for frame, name in zip(frames, ("edges", "nodes"), strict=True):
        frame.write_parquet(tmp_path / f"{name}.parquet")
        frame.write_csv(tmp_path / f"{name}.tsv", separator="\t")
        frame.write_csv(tmp_path / f"{name}2.csv", separator=";")
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress((tmp_path / f"{name}.csv").read_bytes()))
        (tmp_path / f"{name}.parquet.gz").write_bytes(
            gzip.compress((tmp_path / f"{name}.parquet").read_bytes())
        )
        bom = b"\xef\xbb\xbf" + (tmp_path / f"{name}.csv").read_bytes().replace(b"\n", b"\r\n")
        (tmp_path / f"{name}3.csv").write_bytes(bom)
        columns = {
            column.name: column.fill_null("").to_numpy().astype(str)
            for column in frame
            if column.dtype == pl.String
        }
        columns |= {column.name: column.to_numpy() for column in frame if column.dtype != pl.String}
        np.savez(tmp_path / f"{name}.npz", allow_pickle=False, **columns)
    for ending in ("parquet", "tsv", "csv.gz", "parquet.gz", "npz"):
        ways.append((tmp_path / f"edges.{ending}", tmp_path / f"nodes.{ending}", {}))
    ways.append((tmp_path / "edges2.csv", tmp_path / "nodes2.csv", {"delimiter": ";"}))
    ways.append((tmp_path / "edges3.csv", tmp_path / "nodes3.csv", {}))
    for edge_path, node_path, options in ways:
        features = ["age", "colour"]  # an archive of arrays has no order of its own
        data = read_graph(edge_path, node_path, "label", features=features, **options)
        assert_same(expected, data)
    assert len(ways) == 7


def test_npz_with_an_edge_index_and_a_matrix(tmp_path):
    np.savez(tmp_path / "e.npz", edge_index=np.array([[0, 1], [1, 2]]))
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "n.npz", id=np.arange(3), x=matrix)
    data = read_graph(tmp_path / "e.npz", tmp_path / "n.npz", None)
    assert data.x is not None
    assert data.x.tolist() == matrix.tolist()


def test_ids_of_any_kind():
    big = [10**30, 10**30 + 1, 7]
    data = from_frames({"source": big[:2], "target": big[1:]}, {"id": big, "f": [1.0, 2.0, 3.0]})
    assert list(data.node_ids) == [str(number) for number in big]
    assert data.edge_index is not None
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    # Whole numbers that another tool turned into floats, blanks around ids, leading zeros that are part of a
    # name.
    data = from_frames(
        {"source": [1.0, 2.0], "target": [" 2", "01 "]}, {"id": ["1", "2", "01"], "f": [1, 2, 3]}
    )
    assert data.edge_index is not None
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


def test_columns_are_found_by_their_usual_names():
    for source, target in (("src", "dst"), ("From", "To"), ("SOURCE_ID", "Target-Id"), ("u", "v")):
        data = from_frames({target: ["b"], source: ["a"]}, directed=True)
        assert list(data.node_ids) == ["a", "b"]
        assert data.schema["columns"]["source"] == source
    data = from_frames({"x1": ["a"], "x2": ["b"]}, source="x2", target="x1")
    assert list(data.node_ids) == ["b", "a"]


def test_edges_alone_get_structural_features():
    edges = {"source": ["h"] * 5 + ["x"], "target": ["a", "b", "c", "d", "e", "y"]}
    data = from_frames(edges)
    assert list(data.node_ids) == ["h", "a", "b", "c", "d", "e", "x", "y"]
    assert data.x is not None
    assert data.x.shape == (8, 22)
    assert torch.isfinite(data.x).all()
    assert torch.equal(data.x[1], data.x[2])
    assert not torch.equal(data.x[0], data.x[1])
    assert data.x[:, 4:].sum(1).tolist() == [1] * 8
    assert data.report.notes[0].startswith("no feature columns: the nodes get 22 structural features")
    assert data.y is None
    again = from_frames({"source": ["p"], "target": ["q"]}, schema=data.schema)
    assert again.x is not None
    assert again.x.shape == (2, 22)


def test_structural_features_do_not_depend_on_the_order_of_the_nodes():
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(40, (2, 200), generator=generator)
    order = torch.randperm(40, generator=generator)
    one = from_frames({"source": pairs[0].numpy(), "target": pairs[1].numpy()}, {"id": np.arange(40)})
    other = from_frames({"source": pairs[0].numpy(), "target": pairs[1].numpy()}, {"id": order.numpy()})
    assert one.x is not None
    assert other.x is not None
    assert torch.equal(one.x[order], other.x)


def test_missing_values_are_filled_when_told_and_alike_in_a_new_graph():
    nodes = {
        "id": [1, 2, 3, 4],
        "age": [1.0, None, 3.0, None],
        "kind": ["a", "b", None, "a"],
        "flag": [True, False, True, True],
    }
    edges = {"source": [1], "target": [2]}
    data = from_frames(edges, nodes, fill="mean")
    assert data.x is not None
    assert data.x.tolist() == [[1, 1, 0, 1], [2, 0, 1, 0], [3, 0, 0, 1], [2, 1, 0, 1]]
    schema = json.loads(json.dumps(data.schema))
    new = from_frames(
        {"source": [8], "target": [9]},
        {"id": [8, 9], "kind": ["b", "z"], "age": [None, 7], "flag": ["true", "false"], "more": [0, 0]},
        schema=schema,
    )
    assert new.x is not None
    assert new.x.tolist() == [[2, 0, 1, 1], [7, 0, 0, 0]]
    assert new.report.notes == [
        "columns of the nodes frame not used in training are ignored: 'more'",
        "column 'kind': category 'z' is not known from training and counts as none",
    ]
    assert from_frames(edges, nodes, fill=-1).x[1].tolist() == [-1, 0, 1, 0]  # pyright: ignore[reportOptionalSubscript]


def test_numbers_are_standardised_when_told_and_alike_in_a_new_graph():
    edges = {"source": ["a", "b", "c"], "target": ["b", "c", "d"]}
    nodes = {
        "id": ["a", "b", "c", "d"],
        "income": [10_000, 30_000, None, 20_000],
        "visits": [0, 0, 0, 4],
        "member": [1, 0, 1, 0],
        "town": ["x", "y", "x", "x"],
    }
    data = from_frames(edges, nodes, standardize=True, fill="mean")
    assert data.x is not None
    x = data.x
    assert x[:, 0].tolist() == pytest.approx([-(1.5**0.5), 1.5**0.5, 0, 0])
    assert x[:, 1].tolist() == [0, 0, 0, 1]  # mostly zeros: divided by the largest
    assert x[:, 2:].tolist() == [[1, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 0]]
    other = {name: cells[:2] for name, cells in nodes.items()} | {"income": [20_000, 120_000]}
    schema = json.loads(json.dumps(data.schema))
    new = from_frames({"source": ["a"], "target": ["b"]}, other, schema=schema)
    assert new.x is not None
    assert new.x[:, 0].tolist() == pytest.approx([0, 10 * 1.5**0.5])
    assert from_frames(edges, nodes, fill=0).x[0, 0] == 10_000  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize("scale", [0, -1.0, "2", float("inf")])
def test_a_scale_that_was_edited_is_refused(scale):
    edges, nodes = {"source": ["a"], "target": ["b"]}, {"id": ["a", "b"], "age": [30, 40]}
    schema = from_frames(edges, nodes, standardize=True).schema
    schema["features"][0]["scale"] = scale
    with pytest.raises(Node2SeqError, match="the schema: parts of it are missing or wrong"):
        from_frames(edges, nodes, schema=schema)


def test_cells_that_mean_missing_in_a_column_of_numbers():
    nodes = {"id": range(5), "age": ["1", "NA", "nan", " ", "5"], "word": ["NA", "b", "c", "b", "c"]}
    data = from_frames({"source": [0], "target": [1]}, nodes, fill=0)
    assert data.x is not None
    assert data.x[:, 0].tolist() == [1, 0, 0, 0, 5]
    assert data.schema["features"][1]["categories"] == ["b", "c"]
    assert data.x[:, 1:].sum(1).tolist() == [0, 1, 1, 1, 1]
    named = from_frames({"source": [0], "target": [1]}, nodes, fill=0, categorical=["word"])
    assert named.schema["features"][1]["categories"] == ["NA", "b", "c"]  # there it is a word


def test_numbers_can_be_categories_when_told():
    nodes = {"id": [1, 2, 3], "zip": [101, 202, 101]}
    data = from_frames({"source": [1], "target": [2]}, nodes, categorical=["zip"])
    assert data.x is not None
    assert data.x.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_labels_of_whole_numbers_keep_their_order():
    nodes = {"id": range(6), "f": [0.5] * 6, "label": ["10", "9", "10", "9", "2", "2"]}
    data = from_frames({"source": [0], "target": [1]}, nodes, "label")
    assert data.class_names == ["2", "9", "10"]
    assert tensors(data)[2].tolist() == [2, 1, 2, 1, 0, 0]
    # In a new graph, an unknown class counts as no label, and a label column may be absent.
    new = from_frames(
        {"source": [0], "target": [1]}, {"id": [0, 1], "f": [1, 2], "label": [9, 77]}, schema=data.schema
    )
    assert tensors(new)[2].tolist() == [1, -1]
    assert new.report.notes == ["labels that were not there in training count as no label: '77'"]
    new = from_frames({"source": [0], "target": [1]}, {"id": [0, 1], "f": [1, 2]}, schema=data.schema)
    assert new.y is None
    assert new.class_names == ["2", "9", "10"]


def test_a_split_column_decides():
    nodes = {
        "id": range(6),
        "label": [*"ababa", None],
        "part": ["train", "Train", "VAL", "test", "", "test"],
    }
    data = from_frames({"source": [0], "target": [1]}, nodes, "label", split="part")
    split = make_split(data, seed=9)
    assert (split.train.tolist(), split.val.tolist(), split.test.tolist()) == ([0, 1], [2], [3])
    assert split.test_rest.tolist() == [3, 4]
    assert "1 nodes are in the split but have no label: they are in no part" in data.report.notes


def test_a_label_that_was_not_named_is_pointed_at():
    nodes = {"id": [1, 2], "f": [1, 2], "label": [0, 1]}
    data = from_frames({"source": [1], "target": [2]}, nodes)
    assert data.report.notes == ["column 'label' is read as a feature; to predict it, give --label label"]


def test_columns_of_the_edges_that_are_not_used_are_named():
    data = from_frames({"source": [1], "target": [2], "since": [1999], "kind": ["a"]})
    assert data.report.notes[0] == "columns of the edges frame that are not used: 'since', 'kind'"


@pytest.mark.parametrize("end", ["\n", "\n\n\n", "\r\n\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_empty_lines_at_the_end_are_no_rows(end, packed, files, tmp_path):
    there = []
    for name, text in (("edges", EDGES), ("nodes", NODES)):
        there.append(tmp_path / f"more_{name}.csv{'.gz' if packed else ''}")
        content = (text + end).encode()
        there[-1].write_bytes(gzip.compress(content) if packed else content)
    assert_same(read_graph(there[0], there[1], "label"), read_graph(files[0], files[1], "label"))


def test_a_header_line_longer_than_the_first_look(tmp_path):
    names = [f"a column with a long name {number}" for number in range(4000)]
    rows = [f"{node}," + ",".join(["1"] * 4000) for node in "ab"]
    (tmp_path / "n.csv").write_text("\n".join(["id," + ",".join(names), *rows]))
    (tmp_path / "e.csv").write_text("source,target\na,b\n")
    data = read_graph(tmp_path / "e.csv", tmp_path / "n.csv")
    assert data.num_features == 4000


def test_steps_are_said_aloud(files):
    said = []
    read_graph(files[0], files[1], "label", say=said.append)
    assert said == [
        f"reading the nodes of {files[1]}",
        f"reading the edges of {files[0]}",
        "merging duplicate edges",
        "encoding the features",
    ]


def test_clean_edges_against_sets():
    generator = torch.Generator().manual_seed(0)
    for n in (1, 2, 5, 30):
        pairs = torch.randint(n, (2, 40), generator=generator)
        given = [(a, b) for a, b in pairs.t().tolist()]
        distinct = {(a, b) for a, b in given if a != b}
        loops = sum(a == b for a, b in given)
        edge_index, counts = clean_edges(pairs, n, directed=True)
        assert edge_index.t().tolist() == [list(pair) for pair in sorted(distinct)]
        assert counts == EdgeCounts(40, loops, 40 - loops - len(distinct))
        both = distinct | {(b, a) for a, b in distinct}
        edge_index, counts = clean_edges(pairs, n)
        assert edge_index.t().tolist() == [list(pair) for pair in sorted(both)]
        assert counts.duplicates == 40 - loops - len(both) // 2
    empty, counts = clean_edges(torch.empty(2, 0, dtype=torch.int64), 3)
    assert empty.shape == (2, 0)
    assert counts == EdgeCounts(0, 0, 0)


def test_components_of_paths_stars_and_dust():
    n = 3000
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    path = torch.stack(
        [order[:1000], order[1:1001]]
    )  # a long path in random order: the worst case for labels
    star = torch.stack([order[2000].repeat(500), order[2001:2501]])
    label = connected_components(torch.cat([path, star], dim=1), n)
    sizes = torch.bincount(label)
    assert sizes[sizes > 0].sort(descending=True).values[:3].tolist() == [1001, 501, 1]
    assert int((sizes > 0).sum()) == n - 1000 - 500
    assert torch.equal(label[label], label)
    assert (label[order[:1001]] == order[:1001].min()).all()


def test_a_schema_that_was_edited_is_refused():
    for schema in (
        {},
        {"format": 2},
        [],
        {"format": 1, "columns": {}, "directed": 0, "features": [], "class_names": []},
    ):
        with pytest.raises(Node2SeqError, match="schema"):
            from_frames({"source": [0], "target": [1]}, schema=schema)

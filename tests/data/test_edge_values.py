"""Weights and features of edges, from tables to a graph."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from node2seq import Node2SeqError
from node2seq import data as node2seq_data
from node2seq.data.graph import clean_edges, clean_valued_edges

NODES = {"id": ["a", "b", "c", "d"], "f": [1.0, 2.0, 3.0, 4.0], "kind": ["x", "y", "x", "y"]}
EDGES = {
    "source": ["a", "b", "c", "b", "d", "a"],
    "target": ["b", "c", "a", "a", "d", "b"],
    "weight": [0.5, 2.0, 3.0, 0.5, 9.0, 0.25],
    "since": [1, 2, 3, 1, 9, 4],
    "far": ["0.1", "0.2", "0.3", "0.1", "9", "0.4"],
}


def read(*tables: Any, **options: Any) -> Any:
    return node2seq_data.from_frames(*tables, **options)


def listed(data: Any) -> Counter:
    rows = zip(*data.edge_index.tolist(), data.edge_weight.tolist(), strict=True)
    return Counter((source, target, round(weight, 6)) for source, target, weight in rows)


def test_both_directions_of_an_undirected_edge_carry_the_same() -> None:
    """a–b is listed in both directions with one weight, and once more with another: two edges."""
    data = read(EDGES, NODES, "kind", edge_weight="weight")
    once = [(0, 1, 0.5), (0, 1, 0.25), (1, 2, 2.0), (0, 2, 3.0)]
    assert listed(data) == Counter([*once, *((b, a, w) for a, b, w in once)])
    assert data.edge_weight.dtype == torch.float32
    assert (data.report.edges.given, data.report.edges.self_loops, data.report.edges.duplicates) == (6, 1, 1)
    assert data.edge_index.tolist() == sorted(data.edge_index.t().tolist()) or data.is_undirected()
    order = data.edge_index[0] * 4 + data.edge_index[1]
    assert (order.diff() >= 0).all()


def test_a_directed_graph_keeps_every_row_but_self_loops() -> None:
    data = read(EDGES, NODES, "kind", edge_weight="weight", directed=True)
    rows = [(0, 1, 0.5), (1, 2, 2.0), (2, 0, 3.0), (1, 0, 0.5), (0, 1, 0.25)]
    assert listed(data) == Counter(rows)
    ab = (data.edge_index[0] == 0) & (data.edge_index[1] == 1)
    assert data.edge_weight[ab].tolist() == [0.5, 0.25]  # as they are listed


def test_features_are_columns_in_the_order_given_and_may_hold_the_weight() -> None:
    data = read(
        EDGES, NODES, "kind", edge_weight="weight", edge_features=["far", "since", "weight"], directed=True
    )
    assert data.edge_attr.shape == (5, 3)
    assert torch.equal(data.edge_attr[:, 2], data.edge_weight)
    first = data.edge_attr[0]
    assert first.tolist() == pytest.approx([0.1, 1.0, 0.5])
    assert data.schema["edges"] == {"weight": "weight", "features": ["far", "since", "weight"]}


def test_parallel_edges_with_equal_values_are_counted_in_each_direction() -> None:
    edges = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 0, 2, 2]])
    values = torch.tensor([[1.0], [1.0], [1.0], [5.0], [5.0]])
    found, carried, counts = clean_valued_edges(edges, {"edge_attr": values}, 3)
    assert sorted(zip(*found.tolist(), carried["edge_attr"][:, 0].tolist(), strict=True)) == [
        *[(0, 1, 1.0)] * 2,
        *[(1, 0, 1.0)] * 2,
        *[(1, 2, 5.0)] * 2,
        *[(2, 1, 5.0)] * 2,
    ]
    assert counts.duplicates == 1


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("columns", [1, 2])
def test_random_edges(directed: bool, columns: int) -> None:
    """Against a plain count of rows, and without values against the unvalued edges."""
    generator = torch.Generator().manual_seed(columns)
    edges = torch.randint(6, (2, 200), generator=generator)
    values = torch.randint(3, (200, columns), generator=generator).float()
    found, carried, counts = clean_valued_edges(edges, {"edge_attr": values}, 6, directed=directed)
    rows = [(a, b, *v) for (a, b), v in zip(edges.t().tolist(), values.tolist(), strict=True) if a != b]
    expected = Counter(rows)
    if not directed:
        for a, b, *v in [*expected]:
            most = max(expected[a, b, *v], expected[b, a, *v])
            expected[a, b, *v] = expected[b, a, *v] = most
    both = zip(*found.tolist(), carried["edge_attr"].tolist(), strict=True)
    assert Counter((a, b, *v) for a, b, v in both) == +expected
    plain, _ = clean_edges(edges, 6, directed=directed)
    assert torch.equal(found.unique(dim=1), plain)
    kept = found.size(1) if directed else found.size(1) // 2
    assert counts.given - counts.self_loops - counts.duplicates == kept


def test_no_edges() -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    for directed in (False, True):
        given = {"edge_attr": torch.empty(0, 2)}
        edges, carried, counts = clean_valued_edges(none, given, 3, directed=directed)
        assert (edges.shape, carried["edge_attr"].shape, counts.given) == ((2, 0), (0, 2), 0)


def test_another_graph_is_read_by_the_schema() -> None:
    first = read(EDGES, NODES, "kind", edge_weight="weight", edge_features=["since"])
    again = read(EDGES, NODES, schema=first.schema)
    assert torch.equal(again.edge_weight, first.edge_weight)
    assert torch.equal(again.edge_attr, first.edge_attr)
    without = {name: column for name, column in EDGES.items() if name != "since"}
    with pytest.raises(Node2SeqError, match="since"):
        read(without, NODES, schema=first.schema)
    broken = first.schema | {"edges": {"weight": 3, "features": []}}
    with pytest.raises(Node2SeqError, match="the schema"):
        read(EDGES, NODES, schema=broken)


def test_a_graph_without_values_has_the_schema_and_the_edges_of_before() -> None:
    data = read(EDGES, NODES, "kind")
    assert "edges" not in data.schema
    assert data.edge_weight is None
    assert data.edge_attr is None
    assert any("--edge-weight weight" in note for note in data.report.notes)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["1", "x", "3", "4", "5", "6"], "column 'bad': 'x' in row 2 is not a finite"),
        ([1.0, None, 3.0, 4.0, 5.0, 6.0], "column 'bad': an empty cell in row 2"),
        ([1.0, 2.0, float("nan"), 4.0, 5.0, 6.0], "column 'bad': nan in row 3"),
        ([1.0, 2.0, 3.0, float("inf"), 5.0, 6.0], "column 'bad': inf in row 4"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 1e300], "column 'bad': 1e\\+300 in row 6"),
        (["", "2", "3", "4", "5", "6"], "in row 1 is not a finite"),
    ],
)
def test_bad_values_are_named(column: list, message: str) -> None:
    edges = EDGES | {"bad": column}
    with pytest.raises(Node2SeqError, match=message):
        read(edges, NODES, "kind", edge_weight="bad")
    with pytest.raises(Node2SeqError, match=message):
        read(edges, NODES, "kind", edge_features=["since", "bad"])


def test_columns_that_cannot_be_values() -> None:
    with pytest.raises(Node2SeqError, match="wieght"):
        read(EDGES, NODES, "kind", edge_weight="wieght")
    with pytest.raises(Node2SeqError, match="nothere"):
        read(EDGES, NODES, "kind", edge_features=["since", "nothere"])
    with pytest.raises(Node2SeqError, match="an end of each edge"):
        read(EDGES, NODES, "kind", edge_weight="source")


@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_of_pyg_keeps_what_its_edges_carry(directed: bool) -> None:
    table = read(
        EDGES, NODES, "kind", edge_weight="weight", edge_features=["since", "far"], directed=directed
    )
    edge_index = torch.tensor([[0, 1, 2, 1, 3, 0], [1, 2, 0, 0, 3, 1]])
    weight = torch.tensor(EDGES["weight"])
    attr = torch.tensor([[float(a), float(b)] for a, b in zip(EDGES["since"], EDGES["far"], strict=True)])
    given = Data(x=table.x, edge_index=edge_index, edge_weight=weight, edge_attr=attr)
    data = node2seq_data.from_pyg(given, directed=directed)
    for name in ("edge_index", "edge_weight", "edge_attr"):
        assert torch.equal(data[name], table[name]), name
    given.edge_weight = weight[:-1]
    with pytest.raises(Node2SeqError, match="edge_weight of shape"):
        node2seq_data.from_pyg(given)
    given.edge_weight = weight * torch.nan
    with pytest.raises(Node2SeqError, match="NaN"):
        node2seq_data.from_pyg(given)


@pytest.mark.parametrize("directed", [False, True])
def test_frames_come_back_as_the_same_graph(directed: bool) -> None:
    options: dict[str, Any] = {"directed": directed, "edge_weight": "weight"}
    data = read(EDGES, NODES, "kind", edge_features=["since", "far"], **options)
    edges, nodes = node2seq_data.to_frames(data)
    again = read(edges, nodes, "label", edge_features=["e0", "e1"], **options)
    for name in ("edge_index", "edge_weight", "edge_attr"):
        assert torch.equal(again[name], data[name]), name

"""Edges in an order of time, nodes split by time, and edges from the future."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from node2seq import Node2SeqError
from node2seq import data as node2seq_data
from node2seq.data import make_split, summarise
from node2seq.data.splits import split_in_order
from node2seq.data.times import tied_edges

NODES = {
    "id": ["a", "b", "c", "d", "e"],
    "f": [1.0, 2.0, 3.0, 4.0, 5.0],
    "seen": ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"],
    "kind": ["x", "y", "x", "y", "x"],
}
EDGES = {
    "source": ["a", "a", "b", "c", "d", "d"],
    "target": ["b", "b", "c", "d", "e", "e"],
    "time": [
        "2024-01-01T09:00:00",
        "2024-01-01T09:00:01",
        "2024-01-01",
        "2024-01-09",
        "2024-01-02",
        "2024-01-02",
    ],
}


def from_frames(*tables: Any, **options: Any) -> Any:
    return node2seq_data.from_frames(*tables, **options)


def read(edges: Any = EDGES, nodes: Any = NODES, label: str | None = "kind", **options: Any) -> Any:
    return from_frames(edges, nodes, label, **{"order_by": "time", "directed": True, **options})


def test_edges_repeated_over_time_are_kept_with_a_second_between_them() -> None:
    data = read()
    assert data.edge_index.tolist() == [[0, 0, 1, 2, 3, 3], [1, 1, 2, 3, 4, 4]]
    assert data.edge_order.dtype == torch.float64
    day = 1704067200.0
    assert (data.edge_order - day).tolist() == [32400, 32401, 0, 8 * 86400, 86400, 86400]
    assert data.schema["edges"] == {"weight": None, "features": [], "order": "time", "order_kind": "date"}
    assert "split_by" not in data.schema
    assert "edges carry 'time' as order" in data.report.notes
    assert not any("not used" in note for note in data.report.notes)
    assert any("2 of 6 edges have the same 'time' as another edge" in note for note in data.report.notes)


def test_both_directions_of_an_undirected_edge_have_its_time() -> None:
    both = read(directed=False)
    assert both.edge_index.size(1) == 12
    one = {(a, b, t) for a, b, t in zip(*both.edge_index.tolist(), both.edge_order.tolist(), strict=True)}
    assert one == {(b, a, t) for a, b, t in one}


def test_an_order_beside_weights_and_features() -> None:
    edges = EDGES | {"weight": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "hours": [6, 5, 4, 3, 2, 1]}
    carried: Any = {"edge_weight": "weight", "edge_features": ["hours", "weight"]}
    data = read(edges, **carried)
    assert data.edge_weight.dtype == data.edge_attr.dtype == torch.float32
    assert torch.equal(data.edge_weight, torch.tensor(edges["weight"]))
    assert torch.equal(data.edge_attr[:, 1], data.edge_weight)
    assert torch.equal(data.edge_order, read().edge_order)
    plain = from_frames(edges, NODES, "kind", directed=True, **carried)
    assert torch.equal(plain.edge_attr, data.edge_attr)
    by_hours = read(edges, order_by="hours", edge_features=["hours"])
    assert by_hours.edge_order.tolist() == by_hours.edge_attr[:, 0].tolist() == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["2024-01-01", "01/02/2024", *["2024-01-03"] * 4], "'01/02/2024' in row 2 is neither a date nor"),
        (["2024-01-01", "", *["2024-01-03"] * 4], "column 'time': 1 time is missing, the first in row 2"),
        ([1.0, None, None, 2.0, 3.0, 4.0], "column 'time': 2 times are missing, the first in row 2"),
        (["1", "inf", "2", "3", "4", "5"], "inf in row 2 is infinite"),
        (["1", "2024-01-01", "2", "3", "4", "5"], "'2024-01-01' in row 2 is a date, but other cells"),
    ],
)
def test_a_time_that_cannot_be_is_named(cells: list, message: str) -> None:
    with pytest.raises(Node2SeqError) as error:
        read(EDGES | {"time": cells})
    assert message in str(error.value)


def test_columns_that_cannot_be_the_order_or_the_split() -> None:
    with pytest.raises(Node2SeqError, match=r"no column 'tmie'; its columns.*--order-by NAME"):
        read(order_by="tmie")
    with pytest.raises(Node2SeqError, match="an end of each edge"):
        read(order_by="source")
    with pytest.raises(Node2SeqError, match=r"no column 'saen'; its columns.*--split-by NAME"):
        read(split_by="saen")
    with pytest.raises(Node2SeqError, match="these are two splits"):
        read(split="f", split_by="seen")
    with pytest.raises(Node2SeqError, match="column 'kind' is named as label and split_by"):
        read(split_by="kind")
    with pytest.raises(Node2SeqError, match="it is a column of the nodes"):
        read(EDGES, None, None, split_by="seen")
    for options in ({"order_by": None, "split_by": "seen"}, {"split_by": None}):
        with pytest.raises(Node2SeqError, match="no_future_edges: it compares the times of edges and nodes"):
            read(no_future_edges=True, **options)


def test_an_order_that_is_none_is_a_warning() -> None:
    data = read(EDGES | {"time": [7] * 6})
    assert data.report.warnings == ["all edges have the same 'time': it gives no order"]


def test_the_past_trains_and_the_future_tests() -> None:
    data = read(split_by="seen", nodes=NODES | {"seen": NODES["seen"][::-1]})
    split = make_split(data)
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[2, 3, 4], [1], [0]]
    assert data.x.shape == (5, 1)  # the time is no feature
    assert data.schema["split_by"] == {"column": "seen", "kind": "date", "no_future_edges": False}


def test_unlabelled_nodes_need_no_time_and_have_no_part() -> None:
    nodes = {name: [*column, column[0]] for name, column in NODES.items()}
    nodes["id"][-1], nodes["kind"][-1], nodes["seen"][-1] = "g", None, None
    edges = {name: [*column, column[3]] for name, column in EDGES.items()}
    edges["target"][-1] = "g"
    data = read(edges, nodes, split_by="seen", no_future_edges=True)
    assert not (data.train_mask | data.val_mask | data.test_mask)[5]
    assert 5 in data.edge_index[1]  # to be predicted now: nothing is newer
    nodes["kind"][-1] = "x"
    with pytest.raises(Node2SeqError, match="1 labelled node has no time, the first in row 6"):
        read(edges, nodes, split_by="seen")


def test_too_few_different_times() -> None:
    for times, words in (([1, 1, 1, 2, 2], "have 2 different times"), ([1] * 5, "have 1 different time,")):
        with pytest.raises(Node2SeqError, match=words):
            read(split_by="seen", nodes=NODES | {"seen": times})


@pytest.mark.parametrize("size", [3, 10, 101, 1000])
def test_sixty_twenty_twenty_by_time(size: int) -> None:
    times = np.random.default_rng(size).permutation(size).astype(float)
    masks = split_in_order(np.append(times, np.nan))
    assert masks is not None
    assert not any(mask[-1] for mask in masks)
    train, val, test = (times[mask[:-1]] for mask in masks)
    assert train.max() < val.min()
    assert val.max() < test.min()
    assert train.size + val.size + test.size == size
    assert train.size == max(int(0.6 * size), 1)
    assert train.size + val.size == max(int(0.8 * size), 2)


def test_numbers_of_any_size_are_compared() -> None:
    largest = float(np.finfo(np.float64).max)
    edges = torch.tensor([[0, 1, 2, 3], [4, 4, 4, 5]])
    with np.errstate(over="raise"):
        masks = split_in_order(np.array([-largest, 0.0, largest, largest]))
        tied = tied_edges(edges, torch.tensor([-largest, largest, largest, largest], dtype=torch.float64))
    assert np.stack(masks or []).nonzero()[0].tolist() == [0, 1, 2, 2]
    assert tied == 2
    assert tied_edges(edges[:, :0], torch.empty(0).double()) == 0


def test_equal_times_stay_together() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        times = random.integers(random.integers(3, 9), size=30).astype(float)
        masks = split_in_order(times)
        assert masks is not None
        assert (np.stack(masks).sum(0) == 1).all()
        parts = [set(times[mask]) for mask in masks]
        assert all(parts)
        assert max(parts[0]) < min(parts[1]) <= max(parts[1]) < min(parts[2])
    assert [mask.tolist() for mask in split_in_order(np.array([1.0, 1, 1, 1, 2, 3])) or ()] == [
        [True] * 4 + [False] * 2,
        [False] * 4 + [True, False],
        [False] * 5 + [True],
    ]


def test_edges_from_the_future_are_counted_or_dropped() -> None:
    """c – d on the 9th is too late for both; a – b at nine for a, of the midnight before, but not for b."""
    data = read(split_by="seen", directed=False)
    assert len(data.report.warnings) == 1
    assert data.report.warnings[0].startswith("4 of 12 edges are newer than the node that they inform")
    assert "--no-future-edges" in data.report.warnings[0]
    dropped = read(split_by="seen", directed=False, no_future_edges=True)
    assert not dropped.report.warnings
    assert "4 of 12 edges are newer than the node that they inform: dropped" in dropped.report.notes
    assert dropped.edge_index.tolist() == [[0, 0, 1, 2, 3, 3, 4, 4], [1, 1, 2, 1, 4, 4, 3, 3]]
    assert dropped.edge_order.numel() == 8
    # Edges may be left in one direction alone.
    assert summarise(dropped).edges == 8
    assert summarise(dropped).directed
    edges, _ = node2seq_data.to_frames(dropped)
    assert edges.height == 8


def test_an_edge_at_the_time_of_its_node_is_not_newer() -> None:
    data = read(EDGES | {"time": ["2024-01-02"] * 6}, split_by="seen")
    assert not any("newer" in text for text in data.report.warnings)


def test_times_of_edges_and_nodes_that_do_not_compare() -> None:
    years = EDGES | {"time": [2020, 2021, 2022, 2023, 2024, 2025]}
    data = read(years, split_by="seen")
    assert any("cannot be compared" in note for note in data.report.notes)
    with pytest.raises(Node2SeqError, match="cannot be compared"):
        read(years, split_by="seen", no_future_edges=True)
    unix = EDGES | {"time": [1704067200000 + 1000 * i for i in range(6)]}  # milliseconds beside dates
    assert not read(unix, split_by="seen").report.warnings
    assert read(unix, NODES | {"seen": [1704067200 + i for i in range(5)]}, split_by="seen").report.warnings


def test_another_graph_is_read_by_the_schema() -> None:
    first = read(split_by="seen", no_future_edges=True, directed=False)
    again = from_frames(EDGES, NODES, schema=first.schema)
    assert torch.equal(again.edge_index, first.edge_index)
    assert torch.equal(again.edge_order, first.edge_order)
    assert torch.equal(again.x, first.x)
    assert "train_mask" not in again
    for table, column in ((EDGES, "time"), (NODES, "seen")):
        rest = {name: cells for name, cells in table.items() if name != column}
        tables = (rest, NODES) if table is EDGES else (EDGES, rest)
        with pytest.raises(Node2SeqError, match=f"the column {column!r} is missing"):
            from_frames(*tables, schema=first.schema)
    with pytest.raises(Node2SeqError, match=r"it holds numbers\. Give dates, as in training"):
        from_frames(EDGES | {"time": [1, 2, 3, 4, 5, 6]}, NODES, schema=first.schema)
    # Where nothing is dropped by it, a new graph may do without the nodes' times.
    kept = read(split_by="seen")
    rest = {name: cells for name, cells in NODES.items() if name != "seen"}
    assert from_frames(EDGES, rest, schema=kept.schema).num_nodes == 5
    for broken in (
        {"edges": first.schema["edges"] | {"order": 3}},
        {"edges": first.schema["edges"] | {"order_kind": "hour"}},
        {"split_by": first.schema["split_by"] | {"no_future_edges": None}},
        {"split_by": []},
    ):
        with pytest.raises(Node2SeqError, match="the schema"):
            from_frames(EDGES, NODES, schema=first.schema | broken)


@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_of_pyg_and_frames_keep_the_order(directed: bool) -> None:
    data = read(EDGES | {"weight": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}, edge_weight="weight", directed=directed)
    edges, nodes = node2seq_data.to_frames(data)
    options: Any = {"edge_weight": "weight", "order_by": "order", "directed": directed}
    again = from_frames(edges, nodes, "label", **options)
    given = Data(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_weight)
    given.edge_order = data.edge_order
    pyg = node2seq_data.from_pyg(given, directed=directed)
    for name in ("edge_index", "edge_weight", "edge_order"):
        assert torch.equal(again[name], data[name]), name
        assert torch.equal(pyg[name], data[name]), name
        assert pyg[name].dtype == data[name].dtype, name
    given.edge_order = data.edge_order[:, None]
    with pytest.raises(Node2SeqError, match="edge_order of shape"):
        node2seq_data.from_pyg(given)
    given.edge_order = data.edge_order * torch.inf
    with pytest.raises(Node2SeqError, match="infinite"):
        node2seq_data.from_pyg(given)

"""Random bytes, damaged files, strange cells: a graph comes out, or a Node2SeqError, nothing else, soon."""

import contextlib
import gzip
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node2seq.data import from_frames, make_split, read_graph, summarise
from node2seq.errors import Node2SeqError

ENDINGS = ["csv", "tsv", "parquet", "npz", "csv.gz", "parquet.gz", "npz.gz"]
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
bounded = settings(max_examples=120, deadline=5000, suppress_health_check=CHECKS, derandomize=True)
thorough = settings(max_examples=4000, deadline=10000, suppress_health_check=CHECKS)


def use(data: Any) -> None:
    """Whatever could be read must also be usable."""
    summarise(data)
    if data.y is not None:
        make_split(data)


def read_bytes(edges: bytes, nodes: bytes, ending: str, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        edge_path, node_path = Path(folder, f"edges.{ending}"), Path(folder, f"nodes.{ending}")
        edge_path.write_bytes(edges)
        node_path.write_bytes(nodes)
        with contextlib.suppress(Node2SeqError):
            use(read_graph(edge_path, node_path, **options))


def good_files() -> dict[str, tuple[bytes, bytes]]:
    frames = (
        pl.DataFrame({"source": ["a", "b", "c"], "target": ["b", "c", "a"]}),
        pl.DataFrame({"id": ["a", "b", "c", "d"], "f": [1.0, 2.5, -3.0, 0.0], "label": ["x", "y", "x", "y"]}),
    )
    files: dict[str, list[bytes]] = {ending: [] for ending in ENDINGS}
    for frame in frames:
        csv, tsv, parquet, npz = (io.BytesIO() for _ in range(4))
        frame.write_csv(csv)
        frame.write_csv(tsv, separator="\t")
        frame.write_parquet(parquet)
        arrays = {column.name: np.array(column.to_list()) for column in frame}
        np.savez(npz, allow_pickle=False, **arrays)
        for ending, buffer in (("csv", csv), ("tsv", tsv), ("parquet", parquet), ("npz", npz)):
            files[ending].append(buffer.getvalue())
            if f"{ending}.gz" in files:
                files[f"{ending}.gz"].append(gzip.compress(buffer.getvalue()))
    return {ending: (pair[0], pair[1]) for ending, pair in files.items()}


GOOD = good_files()
magic = st.sampled_from(
    [b"", b"PAR1", b"PK\x03\x04", b"\x1f\x8b\x08", b"\x93NUMPY", b"\xef\xbb\xbf", b"source,target\n"]
)
noise = st.tuples(magic, st.binary(max_size=300)).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """A good file with some bytes changed, cut out or put in."""
    spoiled = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(spoiled) - 1, 0)))
        action = draw(st.sampled_from(["change", "cut", "insert", "end"]))
        if action == "change" and spoiled:
            spoiled[place] = draw(st.integers(0, 255))
        elif action == "cut":
            del spoiled[place : place + draw(st.integers(1, 8))]
        elif action == "insert":
            spoiled[place:place] = draw(st.binary(min_size=1, max_size=8))
        else:
            del spoiled[place:]
    return bytes(spoiled)


@st.composite
def damaged_pair(draw: st.DrawFn) -> tuple[bytes, bytes, str]:
    ending = draw(st.sampled_from(ENDINGS))
    edges, nodes = GOOD[ending]
    which = draw(st.sampled_from(["edges", "nodes", "both"]))
    if which != "nodes":
        edges = draw(damaged(edges))
    if which != "edges":
        nodes = draw(damaged(nodes))
    return edges, nodes, ending


cell = st.one_of(
    st.none(),
    st.text(max_size=6),
    st.sampled_from(
        [
            "",
            " ",
            "a",
            "b",
            "1",
            "01",
            "1.0",
            "nan",
            "inf",
            "-1e400",
            "true",
            "null",
            "9" * 40,
            '"',
            ",",
            "\n",
        ]
    ),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(str),
)
names = st.sampled_from(
    ["source", "target", "id", "label", "split", "f", "weight", "Source", "count", "", "literal", "len"]
)


@st.composite
def table(draw: st.DrawFn) -> dict[str, list[str | None]]:
    rows = draw(st.integers(0, 6))
    columns = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    return {name: draw(st.lists(cell, min_size=rows, max_size=rows)) for name in columns}


graphs = (
    table(),
    st.one_of(st.none(), table()),
    st.sampled_from([None, "label"]),
    st.sampled_from([None, 0, "mean"]),
    st.booleans(),
)


def try_frames(edges: dict, nodes: dict | None, label: str | None, fill: Any, directed: bool) -> None:
    with contextlib.suppress(Node2SeqError):
        use(from_frames(edges, nodes, label, fill=fill, directed=directed))


def test_the_undamaged_files_can_be_read():
    for ending, (edges, nodes) in GOOD.items():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, f"e.{ending}").write_bytes(edges)
            Path(folder, f"n.{ending}").write_bytes(nodes)
            use(read_graph(Path(folder, f"e.{ending}"), Path(folder, f"n.{ending}"), "label"))


@bounded
@given(noise, noise, st.sampled_from(ENDINGS))
def test_random_bytes(edges, nodes, ending):
    read_bytes(edges, nodes, ending)
    read_bytes(GOOD[ending][0], nodes, ending, label="label")


@bounded
@given(damaged_pair())
def test_damaged_files(pair):
    read_bytes(*pair, label="label")


@bounded
@given(*graphs)
def test_strange_cells(edges, nodes, label, fill, directed):
    try_frames(edges, nodes, label, fill, directed)


moment = st.one_of(
    cell,
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes(timezones=st.timezones()).map(lambda time: time.isoformat()),
    st.sampled_from(
        ["2024-02-30", "2024-03-31T25:00", "0000-00-00", "2024-03-31T10:00+99:99", "1e308", "-0"]
    ),
)


@bounded
@given(st.lists(moment, min_size=4, max_size=4), st.lists(moment, min_size=4, max_size=4), st.booleans())
def test_strange_times(of_edges, of_nodes, drop):
    edges = {"source": ["a", "b", "c", "a"], "target": ["b", "c", "d", "b"], "time": of_edges}
    nodes = {"id": ["a", "b", "c", "d"], "seen": of_nodes, "label": ["x", "y", "x", "y"]}
    with contextlib.suppress(Node2SeqError):
        data = from_frames(
            edges, nodes, "label", order_by="time", split_by="seen", no_future_edges=drop, directed=drop
        )
        use(data)
        assert data.edge_order.isfinite().all()


@pytest.mark.slow
@thorough
@given(noise, noise, st.sampled_from(ENDINGS))
def test_many_random_bytes(edges, nodes, ending):
    read_bytes(edges, nodes, ending)


@pytest.mark.slow
@thorough
@given(damaged_pair())
def test_many_damaged_files(pair):
    read_bytes(*pair, label="label")


@pytest.mark.slow
@thorough
@given(*graphs)
def test_many_strange_cells(edges, nodes, label, fill, directed):
    try_frames(edges, nodes, label, fill, directed)

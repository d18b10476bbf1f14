from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
import torch

from node2seq.explain import explain
from node2seq.runs.folder import RunFolder
from node2seq.runs.graph import open_again
from node2seq.runs.inference import load_model

NODES = "id,kind,size\nann,a,1\nbob,b,2\ncid,a,3\ndan,b,4\neve,a,5\nfay,b,6\ngus,,7\nhal,a,8\n"
EDGES = "source,target\nann,bob\nbob,cid\ncid,dan\ndan,eve\neve,fay\nfay,gus\ngus,hal\n"


@pytest.fixture
def run(cli) -> Path:
    Path("nodes.csv").write_text(NODES)
    Path("edges.csv").write_text(EDGES)
    files = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind")
    done = cli("train", *files, "--epochs", "3", "--set", "hidden_channels=8", "--out", "run", "--json")
    assert done.status == 0, done.err
    return Path("run")


def test_a_table_with_the_names_of_the_files(cli, run: Path):
    done = cli("explain", run, "--node", "cid")
    assert done.status == 0, done.err
    first, *lines = done.out.splitlines()
    assert first.startswith("cid: ")
    assert "in the files it is a" in first
    assert "prediction without it" in done.out
    layers = sum("Layer blocks." in line for line in lines)
    assert layers >= 2
    for name in ("bob", "cid (itself)", "dan"):
        assert sum(f" {name} " in line for line in lines) == layers, name
    unlabelled = cli("explain", run, "--node", "gus", "--most", "1").out
    assert "it is unlabelled" in unlabelled
    assert "2 more with smaller contributions" in unlabelled


def test_json_is_what_explain_gives(cli, run: Path):
    found = cli("explain", run, "--node", "cid", "--json").json
    folder = RunFolder(run)
    graph = open_again(folder)
    model = load_model(folder, "cpu")
    known = explain(model, graph.data, 2, task=folder.calibrated_task)
    assert found["probabilities"] == pytest.approx(known.probabilities, rel=1e-5)
    assert found["name"] == "cid"
    assert found["class_names"] == ["a", "b"]
    assert len(found["counterfactuals"]) == 2
    off = cli("explain", run, "--node", "cid", "--without", "bob", "--json").json
    without_bob = next(each for each in found["counterfactuals"] if each["name"] == "bob")
    assert off["probabilities"] == pytest.approx(without_bob["probabilities"], rel=1e-5)
    both = cli("explain", run, "--node", "cid", "--both-directions", "--json").json
    assert len(both["counterfactuals"][0]["edges"]) == 2
    assert torch.is_grad_enabled()


def test_a_page_as_a_file(cli, run: Path):
    done = cli("explain", run, "--node", "cid", "--html", "cid.html")
    assert done.out == "page: cid.html\n"
    page = Path("cid.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<title>cid: residual-node2seq on nodes</title>" in page
    again = cli("explain", run, "--node", "cid", "--html", "cid.html")
    assert again.status == 2
    assert "--force" in again.err
    assert cli("explain", run, "--node", "cid", "--html", "cid.html", "--force").status == 0


def test_the_page_says_what_it_needs(cli, run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "node2seq.explain.server", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    done = cli("explore", run)
    assert done.status == 2
    assert done.err == "Error: fastapi is not installed. Run `pip install 'node2seq[page]'`.\n"


def test_a_port_that_is_taken(cli, run: Path):
    pytest.importorskip("fastapi")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("explore", run, "--port", port)
    assert done.status == 2
    assert f"--port {port}: something else listens there" in done.err


def test_numbers(cli, run: Path):
    files = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "size", "--ignore", "kind")
    short = ("--epochs", "2", "--set", "hidden_channels=8", "--out", "sizes", "--json")
    done = cli("train", *files, "--task", "regression", *short)
    assert done.status == 0, done.err
    shown = cli("explain", "sizes", "--node", "eve").out
    assert "is predicted; in the files it is 5" in shown
    assert "to the number" in shown


def test_an_unknown_node_and_a_model_without_an_order(cli, run: Path):
    done = cli("explain", run, "--node", "zoe")
    assert done.status == 2
    assert "Give one of its 8 ids, such as 'ann', 'bob', 'cid'" in done.err
    done = cli("explain", run, "--node", "ann", "--without", "hal")
    assert "no edge of this node leads from it" in done.err
    cli("train", "karate", "--model", "gcn", "--epochs", "1", "--out", "gcn")
    done = cli("explain", "gcn", "--node", "1")
    assert done.status == 2
    assert "it has no Node2Seq layer" in done.err


def test_a_page_that_cannot_be_written_is_refused_before_the_run_is_opened(cli):
    done = cli("explain", "nowhere", "--node", "cid", "--html", "missing/page.html")
    assert done.status == 2
    assert done.err == "Error: missing/page.html: its folder does not exist. Create it first.\n"

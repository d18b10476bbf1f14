"""Stores on the command line: converted, trained on, resumed, measured and predicted from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_graphs import write_files

pytest.importorskip("duckdb")


def test_the_command(tmp_path: Path, cli):
    edges, nodes = write_files(tmp_path)
    flags = ("--edges", edges, "--nodes", nodes, "--out", "graph.store")
    done = cli("data", "convert", *flags, "--label", "kind")
    assert done.status == 0, done.err
    assert "300 nodes, 1956 edges, 6 features, 3 classes: graph.store" in done.out
    assert "step 1 of 9, reading the nodes: 0 % done" in done.err
    again = cli("data", "convert", *flags, "--label", "kind", "--json")
    assert again.json["nodes"] == 300
    assert json.loads(Path("graph.store/manifest.json").read_text())["sha256"] == again.json["sha256"]
    other = cli("data", "convert", *flags, "--label", "since")
    assert other.status == 2
    assert "it is a store of other files" in other.err
    assert "memory 'much': it is no amount" in cli("data", "convert", *flags, "--memory", "much").err

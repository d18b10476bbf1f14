"""``node2seq bench`` on small graphs."""

from __future__ import annotations

import json
import shlex

import pytest
import torch

from node2seq.benchmarking import short
from node2seq.benchmarking.layers import Size
from node2seq.cli.commands import COMMANDS

TINY = (Size("tiny", 40, 200), Size("small", 80, 600))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short, "SIZES", TINY)
    monkeypatch.setattr(short, "SECONDS_A_CASE", 0.0)
    monkeypatch.setattr(short, "EDGES", 1_500)
    monkeypatch.setattr(short, "NODES", 120)


def test_the_verb_prints_a_table_and_writes_rows(cli, tmp_path):
    examples = [shlex.split(line)[1:] for line in COMMANDS["bench"].examples]
    assert len(examples) == 2
    for example in examples:
        done = cli(*example)
        assert done.status == 0
        assert done.out.count("auto chooses ") == len(TINY)
        assert "Node2SeqConv mean k=3" in done.out
        assert "× GATConv" in done.out
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == len(TINY) * (1 + 2 * len(short.runnable_backends(torch.device("cpu"))))
    assert {row["bench"] for row in rows} == {"short"}


def test_the_verb_refuses_a_folder_that_is_not_there_before_it_measures(cli):
    done = cli("bench", "--json", "nowhere/rows.jsonl")
    assert done.status != 0
    assert "nowhere/rows.jsonl" in done.err
    assert "comparing" not in done.err


def test_the_verb_replaces_a_file_only_on_request(cli, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("mine\n")
    done = cli("bench", "--json", "rows.jsonl")
    assert done.status != 0
    assert "rows.jsonl: it exists. Give another name, or --force to replace it" in done.err
    assert rows.read_text() == "mine\n"
    assert cli("bench", "--json", "rows.jsonl", "--force").status == 0
    assert "mine" not in rows.read_text()

"""Rows of benchmarks: whole or not there, and the newest of a case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmark_rows import BASE, MACHINE, OURS

from node2seq import Node2SeqError, storage
from node2seq.benchmarking.rows import Machine, append_rows, read_rows


def test_ratios_are_to_the_base():
    row = OURS.beside(BASE)
    assert (row.base, row.ratio, row.peak_ratio) == ("GATConv", 0.25, 0.25)
    failed = replace(OURS, p50_ms=None, peak_bytes=None).beside(BASE)
    assert (failed.base, failed.ratio, failed.peak_ratio) == (None, None, None)
    assert row.title() == "Node2SeqConv max k=3"
    assert row.compiled_ratio is None
    assert OURS.beside(BASE, replace(BASE, p50_ms=2.0)).compiled_ratio == 0.5
    assert OURS.beside(BASE, replace(BASE, p50_ms=None)).compiled_ratio is None


def test_rows_come_back_and_the_newest_of_a_case_counts(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    assert read_rows(path) == []
    append_rows(path, [BASE, OURS.beside(BASE)], MACHINE)
    append_rows(path, [replace(OURS, p50_ms=9.0), replace(OURS, variant="plan anew")], MACHINE)
    found = read_rows(path)
    assert [row.title() for row in found] == [
        "GATConv",
        "Node2SeqConv max k=3",
        "Node2SeqConv max k=3, plan anew",
    ]
    assert found[1].p50_ms == 9.0
    assert (found[0].device, found[0].threads, found[0].commit) == ("a processor", 2, "0123456789abcdef")
    # The same case on another machine is another case.
    append_rows(path, [BASE], replace(MACHINE, device="another"))
    assert len(read_rows(path)) == 4


def test_an_older_row_that_stands_later_does_not_count(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    append_rows(path, [BASE], MACHINE)
    older = {**json.loads(path.read_text()), "date": "2001-01-01T00:00:00Z", "p50_ms": 99.0}
    path.write_text(path.read_text() + json.dumps(older) + "\n")
    assert [row.p50_ms for row in read_rows(path)] == [4.0]


def test_rows_are_appended_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "rows.jsonl"
    append_rows(path, [BASE], MACHINE)
    before = path.read_bytes()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        append_rows(path, [OURS, OURS], MACHINE)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_row_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    append_rows(path, [BASE], MACHINE)
    path.write_text(path.read_text() + '{"bench": "layer"}\n')
    with pytest.raises(Node2SeqError, match=r"line 2: it is not a row .*missing"):
        read_rows(path)


def test_this_machine_tells_its_name_and_versions():
    import torch

    machine = Machine.here(torch.device("cpu"), commit="c0ffee")
    assert machine.device
    assert "(R)" not in machine.device
    assert machine.threads == torch.get_num_threads()
    assert machine.versions["torch"] == torch.__version__
    assert {"python", "torch_geometric", "numpy"} <= set(machine.versions)
    assert machine.commit == "c0ffee"

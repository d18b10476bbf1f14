"""Rows of benchmarks: whole or not there, the newest of a case, and a page that the rows alone decide."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from node2seq import Node2SeqError
from node2seq.benchmarking.rows import BenchmarkRow, Machine, append_rows, read_rows
from node2seq.benchmarking.timing import growth_exponent
from node2seq.storage import files

ROOT = Path(__file__).parents[2]
MACHINE = Machine("a processor", 2, {"torch": "2.0"}, "0123456789abcdef")
BASE = BenchmarkRow(
    "layer", "Cora", 2708, 10556, "GATConv", p20_ms=3.0, p50_ms=4.0, p80_ms=5.0, peak_bytes=1000
)
OURS = BenchmarkRow(
    "layer",
    "Cora",
    2708,
    10556,
    "Node2SeqConv",
    kernel_size=3,
    readout="max",
    backend="eager",
    p20_ms=0.5,
    p50_ms=1.0,
    p80_ms=2.0,
    peak_bytes=250,
)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render_performance", ROOT / "benchmarks" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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

    monkeypatch.setattr(files.os, "fsync", killed)
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


def test_the_exponent_of_a_power_is_its_exponent():
    sizes = [1e6, 5e6, 2e7, 1e8]
    assert growth_exponent(sizes, [3 * size**1.25 for size in sizes]) == pytest.approx(1.25)
    assert growth_exponent(sizes[:2], [1.0, 2.0]) is None


def kept(tmp_path: Path, *rows: BenchmarkRow) -> list:
    append_rows(tmp_path / "rows.jsonl", rows, MACHINE)
    return read_rows(tmp_path / "rows.jsonl")


def test_a_row_becomes_a_line(page: ModuleType, tmp_path: Path):
    files = page.render(kept(tmp_path, BASE, replace(OURS, bound_share=0.5).beside(BASE)))
    assert list(files) == ["performance.md"]
    text = files["performance.md"]
    assert "### a processor, 2 threads" in text
    assert "Cora: 2,708 nodes, 10,556 edges" in text
    assert "|  | backend | ms | × GATConv | memory | × GATConv | of the gather bound |" in text
    assert "| Node2SeqConv max k=3 | eager | 1.00 (0.500 to 2.00) | 0.25 | 0.00 MiB | 0.25 | 50% |" in text
    assert "| a processor, 2 threads | layer | torch 2.0 | `0123456789` |" in text
    assert "compiled" not in text
    files = page.render(kept(tmp_path, BASE, OURS.beside(BASE, replace(BASE, p50_ms=2.0))))
    assert "| ms | × GATConv | × compiled GATConv | memory |" in files["performance.md"]
    assert "| 1.00 (0.500 to 2.00) | 0.25 | 0.50 |" in files["performance.md"]


def test_growth_is_fitted_and_drawn_without_what_ran_out_of_memory(page: ModuleType, tmp_path: Path):
    rows = []
    for edges in (1_000_000, 10_000_000, 100_000_000):
        about = ("scaling", f"{edges} edges", edges // 50, edges)
        base = BenchmarkRow(*about, "GATConv", p50_ms=edges / 1e5, peak_bytes=edges * 1000)
        if edges == 100_000_000:
            base = BenchmarkRow(*about, "GATConv", result="out of memory")
        ours = BenchmarkRow(*about, "Node2SeqConv", readout="max", p50_ms=edges / 1e6, peak_bytes=edges * 50)
        rows += [base, ours.beside(base)]
    files = page.render(kept(tmp_path, *rows))
    assert list(files) == [
        "performance.md",
        "performance-time-a-processor-2-threads.svg",
        "performance-memory-a-processor-2-threads.svg",
    ]
    text = files["performance.md"]
    assert "| Node2SeqConv max | 100,000,000 | 1.000 | 1.000 |" in text
    assert "| 100,000,000 | 2,000,000 | GATConv | out of memory |" in text
    chart = ElementTree.fromstring(files["performance-time-a-processor-2-threads.svg"])
    assert [len(line.attrib["points"].split()) for line in chart.findall(".//{*}polyline")] == [2, 3]


def test_bits_that_differ_are_shown(page: ModuleType, tmp_path: Path):
    about = ("determinism", "Cora", 2708, 10556)
    rows = [
        BenchmarkRow(*about, "GCN", "200 epochs", result="the same bits"),
        BenchmarkRow(*about, "GAT", "200 epochs", result="different bits"),
    ]
    text = page.render(kept(tmp_path, *rows))["performance.md"]
    assert "| GCN | the same bits |\n| GAT | different bits |" in text


def test_no_rows_make_a_page_too(page: ModuleType):
    assert "There are no rows yet." in page.render([])["performance.md"]


def test_the_committed_page_is_what_the_committed_rows_render_to(page: ModuleType):
    files = page.render(read_rows(ROOT / "benchmarks" / "rows.jsonl"))
    there = {path.name for path in (ROOT / "docs").glob("performance*")}
    assert there == set(files)
    for name, text in files.items():
        assert (ROOT / "docs" / name).read_text() == text, f"{name}: run python benchmarks/render.py"

"""The performance page: the rows alone decide what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from benchmark_rows import BASE, MACHINE, OURS

from node2seq.benchmarking.rows import BenchmarkRow, append_rows, read_rows

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("render")


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

"""The study of explanations and the benchmark of the page: they run, and the page shows their rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from node2seq.storage import read_lines

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explain.md").read_text()


@pytest.fixture(scope="module")
def study(load_script: Callable[[str], ModuleType]) -> Any:
    return load_script("study_explanations")


def test_the_page_shows_the_rows_and_ours_find_the_neighbours_that_decide(study: Any):
    rows = list(read_lines(ROOT / "results/explanations.jsonl"))
    assert {(row["task"], row["seed"]) for row in rows} == {(t, s) for t in study.CASES for s in study.SEEDS}
    assert all(row["auc"]["contributions"] >= 0.99 for row in rows)
    assert study.table(rows) in PAGE


def test_the_page_shows_how_fast_it_answers(load_script: Callable[[str], ModuleType]):
    pytest.importorskip("uvicorn")
    bench: Any = load_script("bench_explore")
    rows = list(read_lines(ROOT / "results/explore.jsonl"))
    assert bench.table(rows) in PAGE
    assert rows[-1]["nodes"] == 100_000
    assert rows[-1]["one"]["p95"] < 0.3
    assert rows[-1]["many"]["lost"] == 0


def test_an_area_counts_ties_half(study: Any):
    assert study.area([3.0, 1.0, 2.0], [0]) == 1.0
    assert study.area([1.0, 1.0, 2.0], [0]) == 0.25
    assert study.area([0.0, 1.0, 2.0, 3.0], [2, 3]) == 1.0


@pytest.mark.slow
def test_a_small_study(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(study, "NODES", 80)
    monkeypatch.setattr(study, "EXPLAINED", 1)
    monkeypatch.setattr(study, "SEEDS", (0,))
    arguments = ["measure", "--epochs", "2", "--device", "cpu", "--rows", str(tmp_path / "rows.jsonl")]
    monkeypatch.setattr(sys, "argv", ["study_explanations.py", *arguments])
    study.main()
    rows = list(read_lines(tmp_path / "rows.jsonl"))
    assert [row["task"] for row in rows] == list(study.CASES)
    assert all(0 <= value <= 1 for row in rows for value in row["auc"].values())
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- study_explanations.py -->\n<!-- end -->\nafter\n<!-- end -->\n")
    for _ in range(2):  # into an empty place, and over what is there
        study.write_between(page, study.START, study.END, study.table(rows))
        assert page.read_text().count("GNNExplainer") == 1
        assert page.read_text().endswith("<!-- end -->\nafter\n<!-- end -->\n")

"""The study of files as people have them: a task in both ways, and the page of the committed rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from node2seq.storage import read_lines

ROOT = Path(__file__).parents[2]


def test_the_page_is_rendered_from_the_committed_rows(load_script: Callable[[str], ModuleType]):
    study = load_script("study_columns")
    rows = read_lines(ROOT / "results" / "columns.jsonl")
    assert {(row["task"], row["when"]) for row in rows if row["when"] == "now"} == {
        (name, "now") for name in study.TASKS
    }
    assert (ROOT / "docs" / "own-files.md").read_text(encoding="utf-8") == study.render(rows)
    changed = [{**rows[0], "test": 0.5}, *rows[1:]]
    assert study.render(changed) != study.render(rows)


@pytest.mark.slow
def test_a_task_is_measured_as_it_was_and_as_it_is(load_script: Callable[[str], ModuleType]):
    study = load_script("study_columns")
    found = [study.measure("dates", when, 1, 2)[0] for when in ("before", "now")]
    assert [row["model"] for row in found] == ["node2seq", "residual-node2seq"]
    assert all(0 <= row["test"] <= 1 for row in found)

"""The table of searches: what a search leaves there, and that it is the committed table's form."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from node2seq.experiments.results_history import Effort, Searched, efforts_of
from node2seq.search.settings import format_seeds, parse_seeds
from node2seq.search.table import add_search
from node2seq.search.trials import Trials

COMMITTED = Path(__file__).parents[2] / "results" / "trials.jsonl"
HEADER = {"data": "karate", "model": "gcn", "space": {"lr": "…"}, "recipe": {"lr": 0.1, "hops": 1}}


def search(path: Path, **header: object) -> Trials:
    trials = Trials(path, {**HEADER, **header})
    first, second = trials.trial({"lr": 0.1}, "anywhere"), trials.trial({"lr": 0.3, "hops": 1}, "near")
    first.accuracies, first.seconds = {101: 0.5, 100: 0.25, 200: 0.75}, 1.5
    second.accuracies, second.pruned = {100: 0.125, 101: None}, True
    trials.trial({"lr": 0.4}, "near")  # asked for, and never trained
    return trials


def test_a_search_is_added_once(tmp_path: Path):
    table = tmp_path / "results" / "trials.jsonl"
    add_search(table, "paper", search(tmp_path / "a"))
    add_search(table, "plus", search(tmp_path / "a"))
    add_search(table, "paper", search(tmp_path / "b", recipe={"lr": 0.2, "hops": 1}))
    before = table.read_text()
    add_search(table, "paper", search(tmp_path / "a"))
    assert table.read_text() == before
    lines = [json.loads(line) for line in before.splitlines()]
    assert [line["round"] for line in lines if "variant" in line] == ["1", "1", "2"]
    assert lines[1] == {
        "trial": 0,
        "stage": "anywhere",
        "settings": {},
        "seeds": "100-101,200",
        "mean": 0.5,
        "sd": 0.25,
        "splits": 3,
        "val": [0.25, 0.5, 0.75],
        "seconds": 1.5,
    }
    assert lines[2]["settings"] == {"lr": 0.3}
    assert (lines[2]["splits"], lines[2]["failed"], lines[2]["pruned"]) == (1, 1, True)
    found = efforts_of(table)
    assert found[Searched("paper", "gcn", "karate")] == Effort(4, 10)
    assert found[Searched("plus", "gcn", "karate")] == Effort(2, 5)


def test_what_a_table_holds_stays_as_it_is(tmp_path: Path):
    table = Path(shutil.copy(COMMITTED, tmp_path))
    add_search(table, "paper", search(tmp_path / "a"))
    text, known = table.read_text(), COMMITTED.read_text()
    assert text.startswith(known)
    assert len(text[len(known) :].splitlines()) == 3


@pytest.mark.parametrize("text", ["100", "100-104", "100-101,103,200-209"])
def test_seeds_are_written_as_they_are_read(text: str):
    assert format_seeds(reversed(parse_seeds(text))) == text

"""What the searches took, counted from the trials that they left."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from node2seq.errors import Node2SeqError
from node2seq.experiments.results_history import Effort, Searched, efforts_of, search_blocks
from node2seq.experiments.results_page import render
from node2seq.reporting.document import to_markdown
from node2seq.search.settings import parse_seeds
from node2seq.storage import JsonLines

ROOT = Path(__file__).parents[2]


def test_counts_settings_and_trainings_of_all_rounds(tmp_path):
    table = JsonLines(tmp_path / "trials.jsonl")
    assert efforts_of(table.path) == {}
    search = {"variant": "paper", "model": "gcn", "column": "karate"}
    first = [{"trial": 0, "splits": 3}, {"trial": 1, "splits": 2}, {"trial": 2, "splits": 2}]
    second = [{"trial": 0, "splits": 2}, {"trial": 1, "splits": 3}]
    other = [{**search, "variant": "plus"}, {"trial": 0, "splits": 9}]
    table.append([{**search, "round": "first"}, *first, *other, {**search, "round": "second"}, *second])
    assert efforts_of(table.path) == {
        Searched("paper", "gcn", "karate"): Effort(5, 12),
        Searched("plus", "gcn", "karate"): Effort(1, 9),
    }
    table.replace(first)
    with pytest.raises(Node2SeqError, match="before its search"):
        efforts_of(table.path)


def test_a_line_for_each_model_and_variant():
    text = to_markdown(
        search_blocks(
            {
                Searched("paper", "gcn", "cora-r"): Effort(5, 12),
                Searched("plus", "gcn", "texas"): Effort(7, 13),
            }
        )
    )
    assert "|  | Cora-R | Texas |" in text
    assert "| GCN, paper | 5<br>12 |  |" in text
    assert "| GCN, plus |  | 7<br>13 |" in text


@pytest.mark.slow
def test_the_page_shows_the_committed_trials(tmp_path):
    (path,) = render(ROOT / "results", tmp_path)
    page = path.read_text()
    efforts = efforts_of(ROOT / "results" / "trials.jsonl")
    mine = efforts[Searched("paper", "node2seq", "cora-r")]
    assert mine.trainings > mine.settings > 1000
    assert f"{mine.settings}<br>{mine.trainings}" in page


def test_a_trial_of_the_table_says_what_was_tried_and_what_came_out():
    lines = JsonLines(ROOT / "results" / "trials.jsonl").refresh().values
    searches = [line for line in lines if "variant" in line]
    trials = [line for line in lines if "variant" not in line]
    assert (len(searches), len(trials)) == (106, 7819)
    assert sum(trial["splits"] for trial in trials) == 70943
    for trial in trials:
        assert trial["splits"] == len(trial["val"]) == len(parse_seeds(trial["seeds"]))
        assert trial["mean"] == pytest.approx(fmean(trial["val"]), abs=1.1e-4)

"""Trials: kept in a file, compared by what they are worth; and the table of searches, as it is committed."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from former_options import FORMER

from node2seq import Node2SeqError
from node2seq.experiments.paper import Cell
from node2seq.experiments.samples import Effort, efforts_of
from node2seq.search.settings import format_seeds, parse_seeds
from node2seq.search.trials import Trial, Trials, add_search, best_of, most_trusted
from node2seq.train.many import TrainingOutcome
from node2seq.train.settings import TrainSettings

COMMITTED = Path(__file__).parents[2] / "results" / "trials.jsonl"
HEADER = {"data": "karate", "model": "gcn", "space": {"lr": "…"}, "recipe": {"lr": 0.1, "hops": 1}}


def test_failed_and_pruned_trials_are_never_the_best():
    good = Trial(0, {}, "", {100: 0.4, 101: 0.6})
    failed = Trial(1, {}, "", {100: 0.9, 101: None})
    pruned = Trial(2, {}, "", {100: 0.9, 101: 0.9}, pruned=True)
    assert best_of([failed, pruned, good])[0] is good
    assert most_trusted([failed, pruned, good]) is good
    assert most_trusted([failed, pruned, Trial(4, {}, "")]) is None


def test_few_splits_are_trusted_less():
    often = Trial(0, {}, "", {seed: 0.7 + 0.05 * (-1) ** seed for seed in range(100, 116)})
    lucky = Trial(1, {}, "", {100: 0.72, 101: 0.72})
    better = Trial(2, {}, "", {seed: 0.75 + 0.05 * (-1) ** seed for seed in range(100, 110)})
    assert most_trusted([often, lucky]) is often
    assert most_trusted([often, lucky, better]) is better


def outcome(accuracy: float | None, error: str | None = None) -> TrainingOutcome:
    return TrainingOutcome(None, error, None, 0.1, accuracy)


def test_trials_are_kept_and_half_a_line_is_dropped(tmp_path):
    path = tmp_path / "trials.jsonl"
    trials = Trials(path, {"model": "gcn"})
    one, two = trials.trial({"lr": 0.1}, "x"), trials.trial({"lr": 0.2}, "x")
    assert trials.trial({"lr": 0.1}, "y") is one
    trials.add([(two, 100, outcome(0.5)), (one, 100, outcome(None, "the loss became nan"))])
    path.write_text(path.read_text() + '{"trial": 1, "se')
    again = Trials(path, {"model": "gcn"})
    assert len(again) == 0  # numbers go by the order of asking
    assert again.trial({"lr": 0.1}, "x").accuracies == {100: None}
    assert again.trial({"lr": 0.2}, "x").accuracies == {100: 0.5}
    again.add([(two, 101, outcome(0.7))])
    assert Trials(path, {"model": "gcn"}).trial({"lr": 0.2}, "x").accuracies == {100: 0.5, 101: 0.7}
    with pytest.raises(Node2SeqError, match="another model"):
        Trials(path, {"model": "gat"})
    path.write_text(path.read_text() + '{"trial": 1}\n')
    with pytest.raises(Node2SeqError, match=r"line 5.*not a training"):
        Trials(path, {"model": "gcn"})


def test_a_search_of_before_is_the_same_one(tmp_path):
    path = tmp_path / "trials.jsonl"
    begun = Trials(path, {"model": "node2seq", "recipe": {"hops": 2, "lr": 0.1, **FORMER}})
    assert not path.exists(), "a search that trains nothing leaves nothing"
    begun.add([])
    written = path.read_bytes()
    Trials(path, {"model": "node2seq", "recipe": {"hops": 2, "lr": 0.1}})
    Trials(path, {"model": "node2seq-plus", "recipe": {"hops": 2, "lr": 0.1, **FORMER}})
    # Settings that came later have their defaults.
    Trials(path, {"model": "node2seq", "recipe": {"hops": 2, "lr": 0.1, **asdict(TrainSettings(lr=0.1))}})
    assert path.read_bytes() == written
    with pytest.raises(Node2SeqError, match="another recipe"):
        Trials(path, {"model": "node2seq", "recipe": {"hops": 2, "lr": 0.1, "views": 2}})
    with pytest.raises(Node2SeqError, match="another model, recipe"):
        Trials(path, {"model": "node2seq-plus", "recipe": {"hops": 2, "lr": 0.1, **FORMER, "own": "apart"}})
    with pytest.raises(Node2SeqError, match="another recipe"):
        Trials(path, {"model": "node2seq", "recipe": {"hops": 1, "lr": 0.1}})


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
    assert found[Cell("gcn", "karate")] == Effort(4, 10)
    assert found[Cell("gcn", "karate", "plus")] == Effort(2, 5)


def test_what_a_table_holds_stays_as_it_is(tmp_path: Path):
    table = Path(shutil.copy(COMMITTED, tmp_path))
    add_search(table, "paper", search(tmp_path / "a"))
    text, known = table.read_text(), COMMITTED.read_text()
    assert text.startswith(known)
    assert len(text[len(known) :].splitlines()) == 3


@pytest.mark.parametrize("text", ["100", "100-104", "100-101,103,200-209"])
def test_seeds_are_written_as_they_are_read(text: str):
    assert format_seeds(reversed(parse_seeds(text))) == text

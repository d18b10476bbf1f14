"""The search with optuna: generations of one shape, pruning, a journal that outlives a kill."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node2seq import Node2SeqError
from node2seq.data import load
from node2seq.recipes import recipe_for
from node2seq.runs.folder import Source
from node2seq.search import evaluate
from node2seq.search.bayes import Bayes, journal_files
from node2seq.search.session import Request, run

PLAN = Bayes(trials=8, seeds=(100, 101), final_seeds=(200,), finalists=2, batch=4)


@pytest.fixture
def quick(real_data, tmp_path: Path) -> Request:
    real_data("texas", load)
    fix = ("epochs=4", "hidden_channels=[4, 8, 12, 16]")
    return Request(Source(name="texas"), tmp_path / "trials.jsonl", model="gcn", fix=fix, plan=PLAN)


def states(request: Request) -> list[str]:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal_files(request.out)[0])))
    study = optuna.load_study(study_name="node2seq", storage=storage)
    return [trial.state.name for trial in study.get_trials()]


def test_a_generation_is_one_program_and_the_journal_has_it(quick):
    said: list[str] = []
    found = run(quick, said.append)
    assert found.finished
    assert states(quick) == ["COMPLETE"] * 8
    generations = [line for line in said if line.startswith("trials from")]
    assert said[0] == "start of 8: the default, on 2 splits"
    counts = {1: 4, 5: 3}
    assert generations == [f"trials from {n} of 8: {counts[n]} settings, on 2 splits" for n in counts]
    assert all("best so far: accuracy" in line for line in said if "group 1 of 1" in line)
    assert sum("group 1 of 1: 8 runs" in line for line in said) == 1
    trials = list(found.trials)
    for generation in (trials[:5], trials[5:8]):  # the start's shapes, then other ones
        assert len({(t.settings["hidden_channels"], t.settings["row_normalize"]) for t in generation}) == 1
        assert len({t.settings["lr"] for t in generation}) == len(generation)
    # The recipe's own settings come first, moved to the choices that were left.
    known = recipe_for("gcn", "texas").settings.lr
    assert (trials[0].settings["lr"], trials[0].settings["hidden_channels"]) == (known, 12)
    finalists = [trial.number for trial in trials if len(trial.accuracies) == 3]
    assert 0 in finalists, "the default is always among them"
    assert len(finalists) == 3
    again: list[str] = []
    assert run(quick, again.append).recipe == found.recipe
    assert not [line for line in again if "group" in line]


@pytest.mark.slow
def test_the_same_seed_proposes_the_same(quick, tmp_path):
    def settings(out: str) -> list[dict[str, Any]]:
        return [t.settings for t in run(replace(quick, out=tmp_path / out), lambda _: None).trials]

    assert settings("a.jsonl") == settings("b.jsonl")


@pytest.mark.slow
def test_what_a_killed_process_asked_for_is_trained_first(quick, monkeypatch):
    real = evaluate.train_many
    calls = []

    def killed(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(evaluate, "train_many", killed)
    with pytest.raises(KeyboardInterrupt):
        run(quick, lambda _: None)
    assert states(quick) == ["COMPLETE"] * 5 + ["RUNNING"] * 3
    asked = [line for line in journal_files(quick.out)[0].read_text().splitlines() if "param_name" in line]
    said: list[str] = []
    found = run(quick, said.append)
    assert said[0] == "taken up of 8: 3 settings, on 2 splits"
    assert states(quick) == ["COMPLETE"] * 5 + ["FAIL"] * 3 + ["COMPLETE"] * 3
    assert found.finished
    assert len(found.trials) == 8
    after = [line for line in journal_files(quick.out)[0].read_text().splitlines() if "param_name" in line]
    values = lambda lines: [line.partition('"param_name"')[2] for line in lines]  # noqa: E731
    places = 3 * len(asked) // 8
    assert values(after)[len(asked) :] == values(asked)[-places:], "the same settings as before"


def test_an_entry_of_the_journal_that_was_cut_off_does_not_end_the_search(quick, monkeypatch):
    def killed(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(evaluate, "train_many", killed)
        with pytest.raises(KeyboardInterrupt):
            run(quick, lambda _: None)
    journal, _ = journal_files(quick.out)
    whole = journal.read_text()
    journal.write_text(whole + whole[:20])  # as a full disk or a kill leaves it
    assert run(quick, lambda _: None).finished
    assert journal.read_text().startswith(whole)
    assert states(quick) == ["FAIL"] + ["COMPLETE"] * 8


@pytest.mark.parametrize("number", [0, 1], ids=["journal", "lock"])
def test_a_journal_that_cannot_be_written_is_named(quick, number):
    file = journal_files(quick.out)[number]
    file.mkdir()
    with pytest.raises(Node2SeqError, match=rf"{file.name}: it cannot be \w+ \(Is a directory\)\. "):
        run(quick, lambda _: None)


@pytest.mark.slow
def test_trials_that_are_behind_are_cut_short(quick):
    hopeless = replace(
        quick,
        fix=("epochs=60", "hidden_channels=8", "row_normalize=true", "lr=[1e-9, 0.04, 0.05]"),
        plan=replace(PLAN, trials=12),
    )
    found = run(hopeless, lambda _: None)
    pruned = [trial for trial in found.trials if trial.pruned]
    late = [t for t in found.trials if t.stage not in ("start", "trials from 1") and t.settings["lr"] == 1e-9]
    assert late
    assert all(trial.pruned for trial in late), "whoever does not learn is behind, once others have ended"
    assert states(hopeless).count("PRUNED") == len(pruned)
    assert found.recipe.settings.lr > 0.01
    assert not found.best.pruned


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(Node2SeqError, match=r"pip install 'node2seq\[tune\]'.*--sampler halving"):
        Bayes()

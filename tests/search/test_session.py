"""A search from beginning to end: resumed, out of time, failing, and its recipe trained again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bare_core import command_without

from node2seq import Node2SeqError
from node2seq.data import load, make_split
from node2seq.recipes import Recipe
from node2seq.runs.folder import Source
from node2seq.runs.recipe_file import read_recipe_file, write_recipe
from node2seq.search import evaluate, session
from node2seq.search.halving import Halving
from node2seq.search.session import Request, prepare, run
from node2seq.search.space import Choice
from node2seq.search.spaces import GIVEN, SPACES
from node2seq.search.trials import Trial, Trials, best_of
from node2seq.train import budget
from node2seq.train.budget import Budget
from node2seq.train.many import Training
from node2seq.train.settings import TrainSettings, parse_setting, settings_of

SMALL = Halving(trials=8, seeds=(100, 101, 102), final_seeds=(200, 201), generations=2, finalists=2)


@pytest.fixture
def texas(real_data) -> Source:
    real_data("texas", load)
    return Source(name="texas")


def request(texas: Source, out: Path, **changes: Any) -> Request:
    quick = Request(texas, out, model="gcn", fix=("epochs=4", "hidden_channels=[4, 8]"), plan=SMALL)
    return replace(quick, **changes)


def rows(path: Path) -> list[dict[str, Any]]:
    """What was trained, without how long it took."""
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def in_order(path: Path) -> list[dict[str, Any]]:
    """The same, whatever was trained first."""
    return sorted(rows(path), key=lambda row: (row["trial"], row["seed"]))


def test_the_paper_decides_what_its_tables_give_away():
    base, space = prepare(Request(Source(name="cora-f"), Path("out")))
    assert (base.options["kernel_size"], base.options["hops"]) == (10, 2)
    assert not {"kernel_size", "hops"} & space.ranges.keys()
    assert "taps" not in space.ranges
    _, wider = prepare(Request(Source(name="cora-f"), Path("out"), space="plus"))
    assert {"kernel_size", "hops", "taps", "views"} <= wider.shape.keys()
    assert set(GIVEN["paper"]["node2seq"]) <= {
        "cora-f",
        "citeseer-f",
        "citeseer-r",
        "chameleon",
        "squirrel",
        "texas",
    }


def test_settings_can_be_fixed_or_left_to_a_few():
    base, space = prepare(
        Request(
            Source(name="texas"),
            Path("out"),
            fix=("hops=1", "lr=0.02", "kernel_size=[3, 8]", "order=[attention, degree]"),
        )
    )
    assert (base.options["hops"], base.settings.lr) == (1, 0.02)
    assert not {"hops", "lr"} & space.ranges.keys()
    assert space.shape["kernel_size"] == Choice((3, 8))
    assert base.options["kernel_size"] == 3, "the search starts inside of what is left"
    assert space.shape["order"] == Choice(("attention", "degree"))
    assert "order" not in SPACES["paper"]["node2seq"].ranges


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hops", "no = in it"),
        ("hop=2", "Perhaps hops was meant"),
        ("hops=two", "hops='two': it should be a whole number"),
        ("hops=true", "it should be a whole number"),
        ("optimizer=sgd", "it should be one of 'adam', 'nadam'"),
        ("hops=[]", "it should be a whole number"),
    ],
)
def test_what_cannot_be_fixed_is_told(text, reason):
    with pytest.raises(Node2SeqError, match=reason):
        parse_setting("node2seq", text, "--fix")


def test_fixed_values_have_the_type_of_the_setting():
    assert parse_setting("node2seq", "threshold=0", "--fix") == ("threshold", 0.0)
    assert parse_setting("node2seq", "readout=mean", "--fix") == ("readout", "mean")
    assert parse_setting("gcn", "conv_weight_decay=none", "--fix") == ("conv_weight_decay", None)
    assert parse_setting("gcn", "row_normalize=true", "--fix") == ("row_normalize", True)


def test_a_recipe_survives_its_file(tmp_path):
    recipe = Recipe(
        {"hidden_channels": 8, "threshold": -0.1, "readout": "mean"},
        TrainSettings(epochs=7, lr=1e-5, patience=None, conv_weight_decay=None),
        row_normalize=True,
    )
    path = tmp_path / "recipe.toml"
    source = Source(edges='a "b".csv', reading={"directed": True, "ignore": ["x"]})
    path.write_text(write_recipe("node2seq", recipe, source, "why\nand how"))
    other = Recipe({"hidden_channels": 64, "hops": 2}, TrainSettings(patience=3, conv_weight_decay=0.5))
    file = read_recipe_file(path)
    assert file.source == source
    read = other.updated(**file.values)
    assert settings_of("node2seq", read) == settings_of("node2seq", recipe)
    # Nothing of the recipe that it is read over shows through, which None would let it.
    assert (read.settings.patience, read.settings.conv_weight_decay) == (7, recipe.settings.weight_decay)


def test_a_recipe_of_another_model_is_no_start(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('model = "gat"\n')
    with pytest.raises(Node2SeqError, match="the search is for gcn"):
        prepare(Request(Source(name="texas"), Path("out"), model="gcn", start=path))


@pytest.mark.slow
def test_halving_trains_more_splits_for_the_better(texas, tmp_path, monkeypatch):
    judged: list[tuple[Training, float]] = []
    real = evaluate.train_many

    def spy(data, trainings, **kwargs):
        outcomes = real(data, trainings, **kwargs)
        for training, outcome in zip(trainings, outcomes, strict=True):
            assert outcome.result is not None
            assert outcome.cross_fitted is not None
            judged.append((training, outcome.cross_fitted))
        return outcomes

    monkeypatch.setattr(evaluate, "train_many", spy)
    found = run(request(texas, tmp_path / "a.jsonl"), lambda _: None)
    trials = list(found.trials)
    assert found.finished
    for training, _ in judged:
        whole, given = make_split(load("texas"), seed=training.seed), training.split
        assert torch.equal(given.train, whole.train)
        assert torch.equal(given.val, whole.val)
        assert given.test.numel() == 0
    assert sorted(row["val"] for row in rows(tmp_path / "a.jsonl")) == sorted(found for _, found in judged)
    assert len(trials) == 8
    assert {len(trial.accuracies) for trial in trials} == {2, 3, 5}
    # The start, and nothing but the start, may be among the better without being better.
    first = [trial for trial in trials if trial.stage in ("start", "anywhere")]
    kept = [trial for trial in first if len(trial.accuracies) > 2]
    ranked = best_of(first, (100, 101))
    assert {trial.number for trial in kept} == {0, ranked[0].number, ranked[1].number}
    assert found.best.mean() == max(t.mean() for t in trials if len(t.accuracies) == 5)
    again = run(request(texas, tmp_path / "b.jsonl"), lambda _: None)
    assert rows(tmp_path / "a.jsonl") == rows(tmp_path / "b.jsonl")
    assert again.recipe == found.recipe
    said: list[str] = []
    run(request(texas, tmp_path / "a.jsonl"), said.append)
    assert not [line for line in said if "group" in line], "all was trained before"


@pytest.mark.slow
def test_a_spent_budget_ends_between_programs_and_the_rest_follows(texas, tmp_path):
    whole = run(request(texas, tmp_path / "whole.jsonl"), lambda _: None)
    path = tmp_path / "parts.jsonl"
    said: list[str] = []
    with pytest.raises(Node2SeqError, match="nothing was trained"):
        run(request(texas, path, budget_seconds=0.0), said.append)
    slow = request(texas, path, budget_seconds=60.0)
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        ticks = iter(range(10**6))  # every look at the clock takes ten seconds
        patch.setattr(budget.time, "time", lambda: real() + 10 * next(ticks))
        part = run(slow, said.append)
    assert not part.finished
    trained = len(rows(path))
    assert 0 < trained < len(rows(tmp_path / "whole.jsonl"))
    rest = run(replace(slow, budget_seconds=None), said.append)
    assert rest.finished
    assert rest.recipe == whole.recipe
    assert in_order(path) == in_order(tmp_path / "whole.jsonl")


def test_a_training_that_fails_is_kept_and_not_chosen(texas, tmp_path):
    wild = request(texas, tmp_path / "a.jsonl", fix=("epochs=4", "hidden_channels=4", "lr=[1e30, 0.01]"))
    found = run(replace(wild, plan=replace(SMALL, trials=6, generations=0)), lambda _: None)
    errors = [row for row in rows(tmp_path / "a.jsonl") if "error" in row]
    assert errors
    assert all(row["settings"]["lr"] == 1e30 and row["val"] is None for row in errors)
    assert found.recipe.settings.lr == 0.01


def test_a_search_in_which_all_fails_says_so(texas, tmp_path):
    wild = request(texas, tmp_path / "a.jsonl", fix=("epochs=4", "hidden_channels=4", "lr=1e30"))
    with pytest.raises(Node2SeqError, match="every training that was to be compared failed"):
        run(replace(wild, plan=replace(SMALL, trials=2, generations=0)), lambda _: None)
    assert not (tmp_path / "a.toml").exists()


@pytest.mark.parametrize(
    ("final", "chosen", "verdict"),
    [
        (0.9, 1, "Trial 1 beats the default: validation accuracy 90.0 % against 80.0 % on 2 further splits"),
        (0.75, 0, "The default stands: validation accuracy 80.0 % on 2 further splits; the best other"),
        (None, 0, "The default stands: no other settings came close"),
    ],
)
def test_the_default_stands_unless_it_is_beaten_on_further_splits(tmp_path, final, chosen, verdict):
    plan = Halving(trials=2, seeds=(100,), final_seeds=(200, 201), finalists=1)
    trials = Trials(tmp_path / "a.jsonl", {})
    start = trials.trial({"lr": 1.0}, "start")
    other = trials.trial({"lr": 2.0}, "anywhere")
    start.accuracies[100], other.accuracies[100] = 0.8, 0.95

    def train(finalists, seeds):
        assert {t.number for t in finalists} == {0, 1}, "the start is among them whatever it reached"
        for trial in finalists:
            trial.accuracies |= dict.fromkeys(seeds, 0.8 if trial is start else final)

    evaluator = SimpleNamespace(train=train, say=lambda _: None)
    best = evaluate.Evaluator.train_finalists(evaluator, [other], start, plan)  # pyright: ignore
    assert best.number == chosen
    assert session._verdict(best, start, trials, plan, "accuracy").startswith(verdict)


def test_trials_can_be_cut_short(texas, tmp_path):
    req = request(texas, tmp_path / "a.jsonl")
    base, space = prepare(replace(req, fix=("epochs=60", "hidden_channels=4")))
    trials = Trials(req.out, {})
    asked: list[tuple[int, int]] = []
    trainer = evaluate.Evaluator(
        load("texas"), "gcn", base, space, trials, device=torch.device("cpu"),
        budget=Budget(), say=lambda _: None,
    )  # fmt: skip
    start = settings_of("gcn", base, space.ranges)
    one, two = trials.trial(start, ""), trials.trial({**start, "lr": 0.002}, "")

    def prune(trial: Trial, epoch: int, mean: float) -> bool:
        asked.append((trial.number, epoch))
        assert 0.0 <= mean <= 1.0
        return trial is two

    trainer.train([one, two], (100, 101), prune)
    assert two.pruned
    assert not one.pruned
    assert [number for number, _ in asked].count(1) == 1
    assert [number for number, _ in asked].count(0) > 1
    assert two.mean() == float("-inf")
    assert Trials(req.out, {}).trial(two.settings, "").pruned


@pytest.mark.slow
def test_a_killed_search_resumes_as_if_nothing_had_happened(texas, tmp_path):
    plan = Halving.in_proportion(12, seeds=(100, 101, 102), final_seeds=(200, 201))
    whole = Request(texas, tmp_path / "whole.jsonl", model="gcn", fix=("epochs=20",), plan=plan)
    run(whole, lambda _: None)
    killed = tmp_path / "killed" / "trials.jsonl"
    arguments = [
        *("tune", "texas", "--model", "gcn", "--fix", "epochs=20", "--sampler", "halving", "--trials", "12"),
        *("--seeds", "100-102", "--final-seeds", "200-201", "--device", "cpu", "--out", str(killed.parent)),
    ]
    command = [sys.executable, "-m", "node2seq", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not killed.exists() or len(killed.read_text().splitlines()) < 3:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.kill()
    killed.write_bytes(killed.read_bytes()[:-9])  # as if in the middle of a line
    assert killed.read_text().count("\n") < whole.out.read_text().count("\n")
    run(replace(whole, out=killed), lambda _: None)
    assert in_order(killed) == in_order(whole.out)
    assert killed.with_suffix(".toml").read_bytes() == whole.out.with_suffix(".toml").read_bytes()


@pytest.mark.slow
def test_it_runs_where_only_torch_pyg_and_numpy_are(texas, tmp_path):
    code = command_without("typer", "rich", "safetensors", "polars", "optuna", "scipy", "pandas", "numba")
    arguments = ["tune", "texas", "--fix", "epochs=2", "--fix", "hidden_channels=4", "--trials", "2"]
    arguments += ["--sampler", "halving", "--seeds", "100", "--final-seeds", "200", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "chosen on validation accuracy" in done.stdout
    assert (tmp_path / "recipe.toml").exists()
    assert (tmp_path / "report.html").exists()

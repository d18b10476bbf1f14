from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest

from node2seq.cli import tune
from node2seq.cli.commands import COMMANDS
from node2seq.cli.names import SAMPLERS
from node2seq.data import load, make_split, write_graph
from node2seq.recipes import recipe_for
from node2seq.runs.folder import Source
from node2seq.runs.recipe_file import read_recipe_file
from node2seq.search import evaluate
from node2seq.search.evaluate import SearchProgress
from node2seq.search.halving import Halving
from node2seq.search.session import Request, run
from node2seq.storage import read_lines
from node2seq.train import fit
from node2seq.train.many import Training, prepare_graph, train_many, untrained
from node2seq.train.measured import Metrics
from node2seq.train.settings import settings_of

SHORT = ["--trials", "3", "--fix", "epochs=8", "--fix", "hidden_channels=8", "--finalists", "1"]
SHORT += ["--seeds", "100-101", "--final-seeds", "200"]


def test_what_a_search_would_replace_or_could_not_write_is_refused_at_once(cli):
    for name in ("report.html", "config.json"):
        Path(name).write_text("mine")
        done = cli("tune", "karate", *SHORT, "--out", ".")
        assert done.err == (
            "Error: .: it exists and contains something other than a search. "
            "Give another folder with `--out`.\n"
        )
        Path(name).unlink()
    Path("table.jsonl").mkdir()
    done = cli("tune", "karate", *SHORT, "--table", "table.jsonl", "--out", "search")
    assert (done.status, done.out) == (2, "")
    assert "Error: table.jsonl: it cannot be read" in done.err
    assert not Path("search").exists()


@pytest.mark.slow
def test_examples(cli, real_data):
    real_data("texas", load)
    real_data("cornell", load)
    write_graph(load("karate"), "edges.csv", "nodes.csv")
    nodes = Path("nodes.csv")
    nodes.write_text(nodes.read_text().replace("label", "kind", 1))
    examples = [shlex.split(line)[1:] for line in COMMANDS["tune"].examples]
    assert len(examples) == 3
    for example in examples:
        done = cli(*example)
        assert done.status == 0, f"{example}: {done.err}"
        assert "node2seq train --config" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_recipe_trains_again_as_it_was_tried(cli, real_data, sampler, monkeypatch):
    real_data("cornell", load)
    together: list[list[Training]] = []

    def noted(data, trainings, **options):
        together.append(list(trainings))
        return train_many(data, trainings, **options)

    monkeypatch.setattr(evaluate, "train_many", noted)
    found = cli("tune", "cornell", *SHORT, "--sampler", sampler, "--json").json
    assert found["finished"]
    assert found["seeds"] == [100, 101, 200]
    recipe = tomllib.loads(Path(found["recipe"]).read_text())
    for name, value in found["settings"].items():
        assert {**recipe, **recipe["options"], **recipe["settings"]}[name] == value
    tried = {
        line["seed"]: line["val"]
        for line in read_lines(Path(found["folder"]) / "trials.jsonl")[1:]
        if line["trial"] == found["trial"]
    }
    data = load("cornell")
    chosen = recipe_for("node2seq").updated(**read_recipe_file(Path(found["recipe"])).values)
    for seed, accuracy in tried.items():
        # Beside the same runs as before: beside others, or alone, it would be rounded differently.
        ((runs, place),) = (
            (runs, place)
            for runs in together
            for place, one in enumerate(runs)
            if one.seed == seed and settings_of("node2seq", one.recipe) == settings_of("node2seq", chosen)
        )
        runs = [replace(one, recipe=chosen.updated(**settings_of("node2seq", one.recipe))) for one in runs]
        assert runs[place].recipe == chosen
        assert train_many(data, runs, device="cpu")[place].cross_fitted == accuracy
    trained = cli("train", "--config", found["recipe"], "--seed", 100, "--json").json
    alone = Training("node2seq", chosen, make_split(data, seed=100), 100)
    graph = prepare_graph(data, chosen)
    whole = fit(untrained(alone, graph), graph, alone.split, chosen.settings)
    assert Metrics.from_dict(trained["metrics"]["val"]) == whole.val


def test_the_page_stands_alone_and_shows_what_mattered(cli):
    arguments = ["tune", "karate", *SHORT, "--sampler", "halving", "--trials", "9"]
    done = cli(*arguments)
    assert done.status == 0, done.err
    folder = Path("runs/tune-karate-node2seq-paper")
    page = (folder / "report.html").read_text()
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)
    assert "without the test nodes of each split" in page
    seen = _Tables(page)
    importance, best, recipe = seen.tables
    assert importance[0] == ["setting", "share", "chosen"]
    assert {"lr", "readout", "position"} <= {row[0] for row in importance[1:]}
    assert best[0][:5] == ["trial", "splits", "mean", "sd", "epoch"]
    assert best[1][1] == "3", "the chosen one first, with its further split"
    assert ["epochs", "8"] in recipe
    assert seen.charts == ["Validation accuracy by trial"]
    again = cli(*arguments)
    assert "group" in done.out
    assert "group" not in again.out, "what was trained is not trained again"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["texas", "--seeds", "0-4"], "seed 0: seeds below 100 are kept for reported figures"),
        (["texas", "--final-seeds", "19-21"], "seeds below 100"),
        (["texas", "--rule", "halves"], "'redrawn'"),
        (["texas", "--sampler", "grid"], "Choose one of 'bayes', 'halving'"),
        (["texas", "--space", "papers"], "Perhaps paper was meant"),
        (["texas", "--model", "node2sec"], "Perhaps node2seq was meant"),
        (["texas", "--trials", "1"], "trials=1: too few"),
        (["texas", "--fix", "lr=fast"], "--fix lr='fast': it should be a number"),
        (["texas", "--label", "x"], "it applies to your own files only"),
        ([], "the graph: it is missing"),
    ],
)
def test_bad_input_ends_in_a_sentence_before_any_work(cli, arguments, message):
    done = cli("tune", *arguments)
    assert done.status == 2
    assert message in done.err
    assert done.out == ""


def test_another_search_is_not_mixed_in(cli):
    arguments = ["tune", "karate", "--model", "mlp", "--sampler", "halving", *SHORT, "--out", "a"]
    assert cli(*arguments, "--table", "results/all.jsonl").status == 0
    (found,) = [line for line in read_lines(Path("results/all.jsonl")) if "variant" in line]
    assert (found["variant"], found["model"], found["column"]) == ("paper", "mlp", "karate")
    before = Path("a/trials.jsonl").read_text()
    done = cli(*arguments, "--seed", "1")
    assert done.status == 2
    assert "started with another plan" in done.err
    assert Path("a/trials.jsonl").read_text() == before


def test_without_optuna_halving_still_works(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    done = cli("tune", "karate", "--model", "mlp", *SHORT)
    assert done.status == 2
    assert "pip install 'node2seq[tune]'" in done.err
    assert cli("tune", "karate", "--model", "mlp", "--sampler", "halving", *SHORT).status == 0


def test_a_terminal_sees_how_far_a_program_is(monkeypatch):
    terminal = StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    with tune._progress(quiet=False) as (say, tell):
        assert tell is not None
        tell(SearchProgress(2, 5, runs=40, share=0.5, best="best so far: 90 %", seconds_left=30.0))
        say("[a line]")
    shown = terminal.getvalue()
    assert "group 2 of 5, 40 runs" in shown
    assert "best so far: 90 % 30 s left" in shown
    assert "[a line]" in shown


def test_a_log_gets_a_line_now_and_then(monkeypatch):
    log = StringIO()
    monkeypatch.setattr(sys, "stdout", log)
    with tune._lines(every=0.02) as (say, tell):
        say("begun")
        assert tell is not None
        tell(SearchProgress(1, 1, runs=4, share=0.5, best="best so far: 90 %", seconds_left=30.0))
        deadline = time.monotonic() + 10
        while log.getvalue().count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    ended = log.getvalue()
    first, *later = ended.splitlines()
    assert first == "begun"
    assert len(later) >= 2
    wanted = "s: 4 runs, 50 % of their epochs; best so far: 90 %; about 30 s left"
    assert all(line.endswith(wanted) for line in later)
    time.sleep(0.05)
    assert log.getvalue() == ended, "no line after the end"


def test_what_is_found_first_outlasts_a_stop(cli, monkeypatch):
    real, calls = evaluate.train_many, []

    def stopped(*args, **options):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does; training ends at the next look
        return real(*args, **options)

    monkeypatch.setattr(evaluate, "train_many", stopped)
    arguments = ["tune", "karate", "--model", "mlp", "--fix", "epochs=20", "--trials", "8", "--out", "a"]
    done = cli(*arguments)
    assert done.status == 130
    assert "run the same command to resume. The best settings so far are in a" in done.err
    recipe = Path("a/recipe.toml").read_text()
    assert "over 2 splits, seeds 100 to 101" in recipe
    assert "the search has not ended" in Path("a/report.html").read_text()
    assert {line["trial"] for line in read_lines(Path("a/trials.jsonl"))[1:]} == {0}
    monkeypatch.setattr(evaluate, "train_many", real)
    done = cli(*arguments)
    assert done.status == 0, done.err
    assert "stands" in done.out or "beats the default" in done.out


@pytest.mark.slow
def test_a_late_refusal_leaves_nothing(cli):
    write_graph(load("karate"), "edges.csv", "nodes.csv")
    done = cli("tune", "--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "label", "--out", "a",
               "--fix", "hidden_channels=10000000")  # fmt: skip
    assert done.status == 2
    assert not Path("a").exists()


def test_the_share_of_a_program_grows_to_one(tmp_path):
    seen: list[SearchProgress] = []
    request = Request(
        Source(name="karate"),
        tmp_path / "trials.jsonl",
        model="mlp",
        fix=("epochs=30", "hidden_channels=4", "row_normalize=false"),
        plan=Halving(trials=2, seeds=(100, 101), final_seeds=(200,), generations=0),
    )
    run(request, lambda _: None, seen.append)
    first = [standing for standing in seen if standing.runs == 2][:2]
    assert len(first) > 1
    assert first[0].best == "no result yet"
    assert first[0].seconds_left is None
    assert seen[-1].best.startswith("best so far: accuracy")
    assert seen[-1].seconds_left is not None
    assert [standing.share for standing in first] == sorted({standing.share for standing in first})
    assert 0.0 < first[0].share < first[-1].share <= 1.0


class _Tables(HTMLParser):
    """The tables of a page as lists of rows of texts, and the names of its charts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.charts: list[str | None] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag == "svg":
            self.charts.append(dict(attrs)["aria-label"])
        self._inside = tag in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.tables[-1][-1].append(data)
            self._inside = False

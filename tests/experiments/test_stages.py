"""A protocol from its declaration to its rows: resumed after a cut, shared, and never on test nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_protocol import COMMIT, tiny_protocol

from node2seq.errors import Node2SeqError
from node2seq.experiments import trainer, workers
from node2seq.experiments.declaration import Protocol, Rung
from node2seq.experiments.rows import CHOSEN, SEARCH, RowStore, SearchKey, SearchStore, read_choices
from node2seq.experiments.stages import choose, declare, run_stage
from node2seq.experiments.trainer import LARGEST_CLASS, CellTrainer


def stage(name: str, folder: Path, protocol: Protocol | None = None, **options: object) -> int:
    given = {"device": "cpu", "commit": COMMIT, **options}
    return run_stage(protocol or tiny_protocol(), name, folder, **given)  # pyright: ignore[reportArgumentType]


def figures(folder: Path) -> dict[str, Any]:
    """What came out, without what differs between two calls."""
    search = {
        str(key): (row.settings, row.validation, row.epoch) for key, row in SearchStore(folder).rows.items()
    }
    return search | {str(key): (row.val, row.test, row.epoch) for key, row in RowStore(folder).rows.items()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole protocol."""
    folder = tmp_path_factory.mktemp("protocol")
    assert stage("search", folder) == 0
    choose(tiny_protocol(), folder)
    with pytest.MonkeyPatch.context() as patch:
        by_rule = trainer.recipe_by_rule
        patch.setattr(trainer, "recipe_by_rule", lambda *given: by_rule(*given).updated(epochs=4))
        assert stage("measure", folder) == 0
    assert stage("ablate", folder) == 0
    return folder


def test_every_cell_has_the_declared_budget(done):
    trained = {}
    for row in SearchStore(done).rows.values():
        cell = (row.key.model, row.key.column)
        trained[cell] = trained.get(cell, 0) + len(row.seeds)
    assert trained == dict.fromkeys([("gcn", "karate"), ("node2seq", "karate")], 3 * 2 + 1)
    assert tiny_protocol().trainings_per_cell == 3 * 2 + 1


def test_search_rows_hold_no_test_figure(done):
    lines = [json.loads(line) for line in (done / SEARCH).read_text().splitlines()]
    assert len(lines) == 2 * 4
    for line in lines:
        assert not [name for name in line if "test" in name]
        assert line["commit"] == COMMIT
        assert line["versions"]["torch"]


def test_the_best_setting_is_chosen_by_all_its_splits(done):
    store = SearchStore(done)
    for choice in read_choices(done).values():
        of = [key for key in store.rows if (key.model, key.rung) == (choice.model, 1)]
        means = {key.setting: sum(store.figures(key)) / 2 for key in of}
        assert choice.setting == max(means, key=lambda number: (means[number], -number))
        three = store.figures(
            next(key for key in store.rows if key[:2] == (choice.model, "paper") and key.rung == 2)
        )
        assert choice.validation == pytest.approx(sum(three) / 3, abs=1e-6)
        drawn = store.rows[of[0]._replace(setting=choice.setting)].settings
        assert choice.trained_with.options["dropout"] == drawn["dropout"]


def test_final_rows_are_on_the_reserved_seeds_alone(done):
    rows = RowStore(done).rows
    assert {key.seed for key in rows} == {1000, 1001}
    lines = {(key.model, key.variant, key.study) for key in rows}
    assert lines == {
        ("gcn", "paper", "main"),
        ("node2seq", "paper", "main"),
        ("residual-node2seq", "default", "main"),
        (*LARGEST_CLASS, "main"),
        ("node2seq", "paper", "non-local: ℓ = 2"),
        ("node2seq", "paper", "neighbours: none"),
    }
    for key, row in rows.items():
        # Every neighbour may leave: many entries are swapped, and only where the study asks for it.
        assert (row.swapped or 0) > 0.3 if "ℓ = 2" in key.study else row.swapped is None


def test_a_cut_search_resumes_and_ends_with_the_same_rows(done, tmp_path, monkeypatch):
    search, calls = CellTrainer.search, []

    def cut(self, program, on_epoch):
        calls.append(program)
        if len(calls) == 3:
            raise workers.OutOfTime
        return search(self, program, on_epoch)

    monkeypatch.setattr(CellTrainer, "search", cut)
    missing = stage("search", tmp_path)
    assert 0 < missing < 8
    kept = (tmp_path / SEARCH).read_bytes()
    assert stage("search", tmp_path) == 0
    assert (tmp_path / SEARCH).read_bytes().startswith(kept)
    made = len(calls)
    assert stage("search", tmp_path) == 0
    assert len(calls) == made  # what has a row is not trained again
    assert {k: v for k, v in figures(done).items() if "SearchKey" in k} == figures(tmp_path)


def test_a_claimed_program_is_left_to_its_process(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_POLL_SECONDS", 0.01)
    with SearchStore(tmp_path).claim(SearchKey("gcn", "paper", "karate", 1, 0)) as ours:
        assert ours
        assert stage("search", tmp_path, budget_seconds=1.5) > 0
    found = {key.model for key in SearchStore(tmp_path).rows}
    assert found == {"node2seq"}  # and no second round before the first is done
    assert {key.rung for key in SearchStore(tmp_path).rows} == {1}


@pytest.mark.parametrize("seed", [1000, 1019, 3])
def test_no_search_may_use_a_reserved_seed(seed):
    with pytest.raises(Node2SeqError, match=f"seed {seed}: seeds .*(reserved|kept)"):
        replace(tiny_protocol(), rungs=(Rung(2, (3000, seed)),))


def test_nothing_is_measured_before_recipes_are_chosen(tmp_path):
    with pytest.raises(Node2SeqError, match=CHOSEN):
        stage("measure", tmp_path)
    with pytest.raises(Node2SeqError, match="its search is not finished"):
        choose(tiny_protocol(), tmp_path)


@pytest.mark.parametrize("commit", ["abc+", None])
def test_rows_name_a_commit(tmp_path, commit, monkeypatch):
    monkeypatch.setattr("node2seq.experiments.stages.source_commit", lambda: commit)
    with pytest.raises(Node2SeqError, match="names the commit"):
        stage("search", tmp_path, commit=None)


def test_a_folder_keeps_its_protocol(tmp_path):
    declare(tiny_protocol(), tmp_path)
    with pytest.raises(Node2SeqError, match="another protocol was declared there"):
        declare(replace(tiny_protocol(), shapes=1), tmp_path)


@pytest.mark.slow
def test_two_processes_make_the_rows_of_one(done, tmp_path):
    told: list[str] = []
    assert stage("search", tmp_path, jobs=2, say=told.append) == 0
    assert "8 of 8 rows" in told[-1]
    assert {k: v for k, v in figures(done).items() if "SearchKey" in k} == figures(tmp_path)
    assert len((tmp_path / SEARCH).read_text().splitlines()) == 8


def test_graphs_are_forgotten_where_memory_runs_short(monkeypatch):
    made = CellTrainer(torch.device("cpu"))
    graph = made.graph("karate")
    made.make_room()
    assert made.graph("karate") is graph
    monkeypatch.setattr(trainer, "_is_short", lambda _: True)
    made.make_room()
    assert made.graph("karate") is not graph

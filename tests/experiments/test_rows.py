"""A row: what is read is written back byte for byte, whatever version wrote it."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from result_rows import result_row

from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import Cell, Key
from node2seq.experiments.rows import ResultRow, RowStore
from node2seq.storage import append_line
from node2seq.train.settings import complete

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "count"), [("runs", 4360), ("retired", 2180)])
def test_committed_rows_are_written_as_they_were_read(name: str, count: int) -> None:
    lines = (ROOT / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= count
    for line in lines:
        assert json.dumps(ResultRow.from_json(json.loads(line)).to_json(), ensure_ascii=False) == line


@pytest.mark.parametrize(("name", "count"), [("runs", 150), ("retired", 50)])
def test_the_network_of_every_committed_row_can_be_made(name: str, count: int) -> None:
    lines = (ROOT / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, lines)
    said = {(row["model"], json.dumps(row["recipe"]["options"])) for row in rows}
    assert len(said) >= count
    made = Counter(complete(model, json.loads(options), "row")[0] for model, options in said)
    assert made["node2seq"] > made["node2seq-plus"] > 5


def test_what_a_row_does_not_have_is_not_written() -> None:
    row = result_row(Cell("gcn", "texas"), 3)
    assert not {"together", "test_rest"} & row.to_json().keys()
    assert row.to_json()["commit"] is None
    assert ResultRow.from_json(row.to_json()) == row


@pytest.mark.parametrize("change", [{"text": "x"}, {"seed": None}, {"val": None}])
def test_missing_and_unknown_values_are_errors(change: dict) -> None:
    values = result_row(Cell("gcn", "texas"), 3, commit="abc").to_json() | change
    with pytest.raises((KeyError, TypeError)):
        ResultRow.from_json({name: value for name, value in values.items() if value is not None})


TEXAS = Cell("gcn", "texas")


def row(seed: int, **values: object) -> ResultRow:
    return result_row(TEXAS, seed, **values)


def seeds_in(folder: Path) -> list[int]:
    return [key.seed for key in RowStore(folder).rows]


def test_a_key_is_written_once(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    assert store.append(row(0, test=0.5))
    assert not store.append(row(0, test=0.9))
    assert [json.loads(line)["test"] for line in store.path.read_text().splitlines()] == [0.5]


@pytest.mark.parametrize("left", [b'{"model": "gcn", "col', b"x" * 10_000])
def test_half_a_line_is_cut_off_before_the_next(tmp_path: Path, left: bytes) -> None:
    store = RowStore(tmp_path)
    store.append(row(0))
    with store.path.open("ab") as file:
        file.write(left)
    other = RowStore(tmp_path)
    assert len(other.rows) == 1
    assert other.append(row(1))
    assert [json.loads(line)["seed"] for line in store.path.read_text().splitlines()] == [0, 1]
    assert [r.key.seed for r in store.refresh()] == [0, 1]
    assert store.refresh() == []


def test_half_a_first_line_is_cut_off_too(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_bytes(b'{"model"')
    assert RowStore(tmp_path).append(row(0))
    assert seeds_in(tmp_path) == [0]


def test_a_doubled_or_damaged_line_is_named(tmp_path: Path) -> None:
    append_line(tmp_path / "runs.jsonl", row(0).to_json())
    append_line(tmp_path / "runs.jsonl", row(0).to_json())
    with pytest.raises(Node2SeqError, match=r"it contains the run .* twice"):
        RowStore(tmp_path)
    (tmp_path / "runs.jsonl").write_text('{"model": "gcn"}\n')
    with pytest.raises(Node2SeqError, match="it is not a row"):
        RowStore(tmp_path)


def _hold(folder: Path, key: Key, ready, end) -> None:
    with RowStore(folder).claim(key) as mine:
        ready.put(mine)
        end.wait()


@pytest.mark.slow
def test_a_claim_dies_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, end = context.Queue(), context.Event()
    key = Key("gcn", "texas", "paper", "main", 0)
    holder = context.Process(target=_hold, args=(tmp_path, key, ready, end))
    holder.start()
    assert ready.get(timeout=60)
    store = RowStore(tmp_path)
    with store.claim(key) as mine:
        assert not mine
    with store.claim(key._replace(seed=1)) as mine:
        assert mine
    holder.kill()
    holder.join()
    with store.claim(key) as mine:
        assert mine


def test_claims_leave_nothing_behind_and_the_file_of_former_versions_gives_way(tmp_path: Path) -> None:
    claims = tmp_path / ".claims"
    claims.write_bytes(b"")
    store = RowStore(tmp_path)
    with store.claim(row(0).key) as mine, store.claim(row(1).key) as other:
        assert mine
        assert other
        assert len(list(claims.iterdir())) == 2
    assert not list(claims.iterdir())


def test_a_finished_run_cannot_be_claimed(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    RowStore(tmp_path).append(row(0))
    with store.claim(row(0).key) as mine:
        assert not mine


def _append_many(folder: Path, seeds: range) -> None:
    store = RowStore(folder)
    for seed in seeds:
        store.append(row(seed, versions={"text": "x" * 2000}))


@pytest.mark.slow
def test_many_processes_write_at_once(tmp_path: Path) -> None:
    # Forked where that is possible: they start at once, without seconds of importing.
    context: Any = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    # Overlapping seeds: each is to be written once, by whoever is first.
    writers = [
        context.Process(target=_append_many, args=(tmp_path, range(n * 20, n * 20 + 40))) for n in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(seeds_in(tmp_path)) == list(range(80))


def test_retired_rows_are_kept_and_can_be_made_anew(tmp_path: Path) -> None:
    store, other = RowStore(tmp_path), RowStore(tmp_path)
    for seed in range(3):
        store.append(row(seed, test=0.1))
    other.refresh()
    assert store.retire([row(1).key, row(7).key]) == 1
    assert [r.key.seed for r in store.retired()] == [1]
    assert store.append(row(1, test=0.2))
    other.refresh()
    assert {key.seed: r.test for key, r in other.rows.items()} == {0: 0.1, 2: 0.1, 1: 0.2}

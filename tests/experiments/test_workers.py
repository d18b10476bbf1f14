"""The harness: interrupted and resumed at any moment, by several processes, to the same rows."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bare_core import command_without

from node2seq.cli.definitions import read
from node2seq.cli.flags import ReproduceFlags
from node2seq.cli.reproduce import reproduce as run
from node2seq.data import load
from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import Run, choose_cells, runs_of
from node2seq.experiments.rows import ResultRow, RowStore
from node2seq.experiments.trainer import CellTrainer
from node2seq.experiments.workers import end_with_parent, groups_of, reproduce

ARGUMENTS = [
    "3",
    "--columns",
    "texas",
    "--models",
    "gcn",
    "--models",
    "sgc",
    "--runs",
    "4",
    "--epochs",
    "25",
    "--device",
    "cpu",
]
BARE = command_without("typer", "rich", "safetensors", "polars", "matplotlib", "networkx", "pandas")


@pytest.fixture(autouse=True)
def _texas(real_data: Callable[..., Any]) -> None:
    real_data("texas", load)


def small_runs(count: int = 2) -> list:
    return runs_of(choose_cells(["3"], ["texas"], ["gcn", "sgc"]), count, epochs=5)


def rows_in(folder: Path) -> list[ResultRow]:
    return list(RowStore(folder).rows.values())


def small_flags(results: Path, **others: Any) -> ReproduceFlags:
    names: dict[str, Any] = {"tables": ("3",), "columns": ("texas",), "models": ("gcn", "sgc")}
    return ReproduceFlags(**names, runs=2, device="cpu", results=results, **others)


def comparable(row: ResultRow) -> ResultRow:
    return replace(row, seconds=0.0, at=0.0, call="", jobs=1)


def test_a_second_call_does_nothing(tmp_path: Path) -> None:
    seen: list = []
    assert reproduce(small_runs(), str(tmp_path), device="cpu", on_rows=seen.extend) == 0
    assert len(seen) == 4
    before = (tmp_path / "runs.jsonl").read_bytes()
    assert reproduce(small_runs(), str(tmp_path), device="cpu", on_rows=seen.extend) == 0
    assert len(seen) == 4
    assert (tmp_path / "runs.jsonl").read_bytes() == before
    assert reproduce(small_runs(3), str(tmp_path), device="cpu") == 0
    assert len(rows_in(tmp_path)) == 6


def test_a_row_tells_everything(tmp_path: Path) -> None:
    reproduce(small_runs(1), str(tmp_path), device="cpu", commit="abc")
    row, *_ = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    needed = {"model", "column", "variant", "study", "seed", "val", "test", "epoch", "seconds", "recipe"}
    assert needed | {"device", "versions", "commit", "call", "at"} <= row.keys()
    assert (row["variant"], row["study"]) == ("paper", "main")
    assert 0 < row["val"] <= 1
    assert row["commit"] == "abc"


def test_runs_of_a_cell_are_one_program() -> None:
    runs = runs_of(choose_cells(["2", "3"], ["cora-f", "texas"], ["gcn"]), 7)
    seeds = {
        device: {
            column: [
                [run.key.seed for run in group]
                for group in groups_of(runs, torch.device(device))
                if group[0].key.column == column
            ]
            for column in ("cora-f", "texas")
        }
        for device in ("cuda", "cpu")
    }
    assert seeds["cuda"] == {"cora-f": [[*range(7)]], "texas": [[*range(7)]]}
    assert seeds["cpu"] == {"cora-f": [[seed] for seed in range(7)], "texas": [[0, 1, 2, 3, 4], [5, 6]]}


def test_rows_made_together_say_so_and_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce(small_runs(), str(tmp_path / "two"), device="cpu")
    rows = rows_in(tmp_path / "two")
    assert [row.together for row in rows] == [[0, 1]] * 4
    company: list[list[int]] = []
    train = CellTrainer.train

    def watched(trainer: CellTrainer, runs: Sequence[Run]) -> Any:
        company.append([run.key.seed for run in runs])
        return train(trainer, runs)

    with monkeypatch.context() as patched:
        patched.setattr(CellTrainer, "train", watched)
        assert (
            run(ReproduceFlags(check=4, check_seed=1, device="cpu", results=tmp_path / "two"), lambda _: None)
            == 0
        )
    assert company == [[0, 1]] * 4
    reproduce(small_runs(1), str(tmp_path / "grown"), device="cpu")
    reproduce(small_runs(3), str(tmp_path / "grown"), device="cpu")
    grown = rows_in(tmp_path / "grown")
    assert [row.together for row in grown] == [[0], [0], [1, 2], [1, 2], [1, 2], [1, 2]]


def test_a_run_that_fails_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    good, bad = small_runs()[:2]
    bad = replace(bad, recipe=bad.recipe.updated(lr=1e38))
    with pytest.raises(Node2SeqError, match=r"texas gcn, seed 1.*the loss became"):
        reproduce([good, bad], str(tmp_path), device="cpu")
    assert [row.key.seed for row in rows_in(tmp_path)] == [0]


def test_the_wall_time_of_all_calls_is_told(tmp_path: Path) -> None:
    lines: list[str] = []
    flags = replace(small_flags(tmp_path, epochs=2), models=("gcn",))
    for runs in (1, 2):
        assert run(replace(flags, runs=runs), lines.append) == 0
    rows = rows_in(tmp_path)
    assert len({row.call for row in rows}) == 2
    last: dict[str, float] = {row.call: row.at for row in rows}
    assert f"All calls so far: 2 of these runs in {sum(last.values()):.1f} s on" in lines[-1]


def test_no_time_leaves_nothing_behind(tmp_path: Path) -> None:
    assert reproduce(small_runs(), str(tmp_path), device="cpu", budget_seconds=0.0) == 4
    assert rows_in(tmp_path) == []


@pytest.mark.slow
def test_two_processes_make_the_rows_of_one(tmp_path: Path) -> None:
    reproduce(small_runs(), str(tmp_path / "one"), device="cpu")
    seen: list = []
    reproduce(small_runs(), str(tmp_path / "two"), device="cpu", jobs=2, on_rows=seen.extend)
    one, two = RowStore(tmp_path / "one"), RowStore(tmp_path / "two")
    assert len(seen) == 4
    assert {key: comparable(row) for key, row in one.rows.items()} == {
        key: comparable(row) for key, row in two.rows.items()
    }


def test_a_changed_recipe_is_not_mixed_with_old_rows(tmp_path: Path) -> None:
    reproduce(small_runs(), str(tmp_path), device="cpu")
    changed = runs_of(choose_cells(["3"], ["texas"], ["gcn", "sgc"]), 2, epochs=6)
    with pytest.raises(Node2SeqError, match="--retire"):
        reproduce(changed, str(tmp_path), device="cpu")
    assert run(small_flags(tmp_path, epochs=6, retire=True), lambda _: None) == 0
    assert {row.epochs for row in rows_in(tmp_path)} == {6}
    assert len(RowStore(tmp_path).retired()) == 4


def test_rows_of_a_study_that_a_recipe_lost_are_retired(tmp_path: Path) -> None:
    reproduce(small_runs(), str(tmp_path), device="cpu")
    store = RowStore(tmp_path)
    gcn = next(row for row in store.rows.values() if row.key.model == "gcn")
    store.append(replace(gcn, key=gcn.key._replace(study="readout=mean")))
    assert run(small_flags(tmp_path, epochs=5, retire=True), lambda _: None) == 0
    kept = RowStore(tmp_path)
    assert len(kept.rows) == 4
    assert [row.key.study for row in kept.retired()] == ["readout=mean"]


def test_check_holds_and_notices_a_wrong_row(tmp_path: Path) -> None:
    lines: list[str] = []
    request = ReproduceFlags(check=4, check_seed=1, device="cpu", results=tmp_path)
    with pytest.raises(Node2SeqError, match=r"--check 4: .*runs\.jsonl has no rows of these cells"):
        run(request, lines.append)
    assert not lines
    reproduce(small_runs(), str(tmp_path), device="cpu")
    assert run(request, lines.append) == 0
    assert "as stated" in lines[0]
    assert [line[:5] for line in lines[1:5]] == ["equal"] * 4
    assert all(f"{name} " in lines[1] for name in ("validation", "test", "epoch"))
    assert lines[-1].startswith("The 4 rows hold")
    path = tmp_path / "runs.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["test"] += 1 / rows[0]["test_nodes"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(request, lines.append) == 1
    assert sum(line.startswith("FAILS") for line in lines) == 1
    assert lines[-1].startswith("The 4 rows do NOT hold")
    # Other code may round differently, as another machine may: a row that is close is enough.
    rows[0] |= {"commit": "0" * 40, "test": rows[0]["test"] - 1 / rows[0]["test_nodes"]}
    rows[0]["val"] += 0.001
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(request, lines.append) == 0
    assert sum("at 0000000)" in line for line in lines) == 1
    assert lines[-2].startswith("1 of 1 rows made elsewhere have to be close.")


@pytest.mark.slow
def test_the_command_line_of_the_bare_core(tmp_path: Path) -> None:
    """Where typer, rich and the rest are not installed."""
    arguments = [*ARGUMENTS, "--runs", "1", "--results", str(tmp_path), "--docs", str(tmp_path / "docs")]
    done = subprocess.run(
        [sys.executable, "-c", BARE, "reproduce", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 runs made" in done.stdout
    assert (tmp_path / "docs" / "results.md").exists()


def _sleep_as_worker(path: Path) -> None:
    end_with_parent()
    path.write_text(str(os.getpid()))
    time.sleep(120)


def _start_sleeping_worker(path: Path) -> None:
    worker = multiprocessing.get_context("spawn").Process(target=_sleep_as_worker, args=(path,))
    worker.start()
    worker.join()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # ended, but nobody has asked for its status yet
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="asks for processes by their number")
def test_a_worker_ends_with_the_command_that_started_it(tmp_path: Path) -> None:
    parent = multiprocessing.get_context("spawn").Process(
        target=_start_sleeping_worker, args=(tmp_path / "pid",)
    )
    parent.start()
    patience = time.monotonic() + 90
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < patience
        time.sleep(0.05)
    worker = int((tmp_path / "pid").read_text())
    assert _is_there(worker)
    parent.kill()
    parent.join()
    patience = time.monotonic() + 10
    while _is_there(worker) and time.monotonic() < patience:
        time.sleep(0.05)
    outlived = _is_there(worker)
    if outlived:
        os.kill(worker, signal.SIGKILL)
    assert not outlived


def _kill_during(folder: Path, after_rows: int) -> None:
    """Start two workers, and kill the command without warning once some rows are there."""
    command = [
        sys.executable,
        "-m",
        "node2seq",
        "reproduce",
        *ARGUMENTS,
        "--jobs",
        "2",
        "--results",
        str(folder),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    store, patience = RowStore(folder), time.monotonic() + 120
    while process.poll() is None and time.monotonic() < patience:
        store.refresh()
        if len(store.rows) >= after_rows:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


def _nobody_works_in(folder: Path) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                open_files = [str(link.readlink()) for link in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(name.startswith(str(folder / ".claims")) for name in open_files):
                return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at open files in /proc")
@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path: Path, kills: int) -> None:
    kept: dict = {}
    for number in range(kills):
        _kill_during(tmp_path, after_rows=min(len(kept) + number % 2, 7))
        patience = time.monotonic() + 20
        while not _nobody_works_in(tmp_path) and time.monotonic() < patience:
            time.sleep(0.05)
        assert _nobody_works_in(tmp_path), "a worker outlived the command"
        store = RowStore(tmp_path)
        assert kept.items() <= store.rows.items(), "a row was lost or changed"
        kept = dict(store.rows)
    assert run(read(ReproduceFlags, [*ARGUMENTS, "--results", str(tmp_path)], ""), lambda _: None) == 0
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    keys = {(row["model"], row["seed"]) for row in map(json.loads, lines)}
    assert len(lines) == len(keys) == 8

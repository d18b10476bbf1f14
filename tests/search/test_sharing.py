"""Several processes on one search: different trials for each, none twice, and one of them finishes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from node2seq.search import sharing
from node2seq.search.bayes import hide_password, journal_files
from node2seq.search.sharing import FolderWorkers, StudyWorkers, lost_trials

optuna = pytest.importorskip("optuna")

TRIALS = 9
TUNE = (
    *("tune", "karate", "--trials", str(TRIALS), "--fix", "epochs=200", "--fix", "hidden_channels=8"),
    *("--seeds", "100-101", "--final-seeds", "200-201", "--device", "cpu"),
)


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "node2seq", *TUNE, *flags]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def trained(*files: Path) -> list[tuple[str, int]]:
    """The settings and the seed of each training; a process that came too late for any has no file."""
    there = [file for file in files if file.exists()]
    lines = [json.loads(line) for file in there for line in file.read_text().splitlines()[1:]]
    return [(json.dumps(line["settings"], sort_keys=True), line["seed"]) for line in lines]


def check(found: list[tuple[str, int]], said: list[str]) -> None:
    assert len(found) == len(set(found)), "a trial was trained twice"
    assert len({settings for settings, _ in found}) == TRIALS
    assert len([seed for _, seed in found if seed in (100, 101)]) == 2 * TRIALS
    assert sum("final: the best" in text for text in said) == 1


def let_both_train(processes: list[subprocess.Popen[str]], files: list[Path]) -> None:
    """Until each has trained, the one that has is stopped again and again: it could do all before the other
    has imported torch. Never for long, as it may hold a lock of the database."""

    def has_trained(file: Path) -> bool:
        return file.exists() and file.read_text().count("\n") > 1

    while not all(map(has_trained, files)) and all(process.poll() is None for process in processes):
        for process, file in zip(processes, files, strict=True):
            if has_trained(file):
                process.send_signal(signal.SIGSTOP)
                time.sleep(0.5)
                process.send_signal(signal.SIGCONT)
        time.sleep(0.05)


@pytest.mark.slow
def test_two_processes_on_one_folder_and_one_is_killed(tmp_path: Path):
    file, processes = tmp_path / "search" / "trials.jsonl", [start(tmp_path, "--out", "search") for _ in "ab"]
    while not file.exists() or file.read_text().count("\n") < 4:
        assert any(process.poll() is None for process in processes), processes[0].communicate()
        time.sleep(0.02)
    processes[1].kill()
    processes[1].communicate()
    said = processes[0].communicate(timeout=200)[0]
    assert processes[0].returncode == 0, said
    check(trained(file), [said])
    assert (tmp_path / "search" / "recipe.toml").exists()
    left = [path.name for path in (tmp_path / "search").iterdir() if path.name.startswith(".worker")]
    assert len(left) <= 1  # of the one that was killed


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes_to_the_journal_blocks_nobody(tmp_path: Path):
    """As optuna holds its lock for a moment only, the process takes it by hand and keeps it."""
    (tmp_path / "search").mkdir()
    _, lock = journal_files(tmp_path / "search" / "trials.jsonl")
    script = (
        f"import filelock, time; lock = filelock.FileLock({str(lock)!r}); lock.acquire(); print('held'); "
        "time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-u", "-c", script], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    process = start(tmp_path, "--out", "search")
    time.sleep(5.0)
    assert process.poll() is None  # it waits for the lock
    assert not (tmp_path / "search" / "trials.jsonl").exists()
    holder.kill()
    holder.communicate()
    said = process.communicate(timeout=200)[0]
    assert process.returncode == 0, said
    check(trained(tmp_path / "search" / "trials.jsonl"), [said])


TOOLS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
NO_POSTGRES = (
    "the driver psycopg is not installed"
    if find_spec("psycopg") is None
    else None
    if TOOLS or shutil.which("pg_ctl")
    else "PostgreSQL is not installed"
)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database."""
    if request.param == "sqlite":
        if NO_POSTGRES is None:
            pytest.skip("PostgreSQL is there, and tested instead")
        yield f"sqlite:///{tmp_path}/studies.db"
        return
    if NO_POSTGRES is not None:
        pytest.skip(NO_POSTGRES)
    program = str(TOOLS[-1] / "pg_ctl") if TOOLS else "pg_ctl"
    user: list[str] = []
    # A short path, for its socket, that another user may enter: it refuses to run as root.
    home = Path(tempfile.mkdtemp(prefix="postgres"))
    if os.geteuid() == 0:
        try:
            shutil.chown(home, "postgres")
        except LookupError:
            pytest.skip("there is no user postgres, and PostgreSQL does not run as root")
        user = ["runuser", "-u", "postgres", "--"]
    data = home / "data"
    subprocess.run(
        [*user, program, "init", "-D", str(data), "-o", "-A trust -U node2seq"],
        check=True,
        capture_output=True,
        cwd="/",
    )
    options = f"-k {home} -c listen_addresses='' -c fsync=off"
    subprocess.run(
        [*user, program, "start", "-w", "-D", str(data), "-o", options, "-l", str(home / "log")],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
    )
    try:
        yield f"postgresql://node2seq@/postgres?host={home}"
    finally:
        subprocess.run(
            [*user, program, "stop", "-m", "immediate", "-D", str(data)],
            check=True,
            capture_output=True,
            cwd="/",
        )
        shutil.rmtree(home)


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_two_processes_that_share_a_database_alone(tmp_path: Path, database: str):
    """As on two machines, each with a folder of its own."""
    processes = [start(tmp_path, "--out", name, "--storage", database) for name in "ab"]
    files = [tmp_path / name / "trials.jsonl" for name in "ab"]
    let_both_train(processes, files)
    said = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    check(trained(*files), said)
    assert all(trained(file) for file in files)
    assert sum("another process finishes this search" in text for text in said) == 1


def trial(worker: str | None) -> SimpleNamespace:
    return SimpleNamespace(user_attrs={} if worker is None else {"worker": worker})


def test_a_process_that_ended_loses_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing.time, "sleep", lambda _: None)
    mine, other = FolderWorkers(tmp_path), FolderWorkers(tmp_path)
    with mine.working():
        with other.working():
            running = [trial(mine.id), trial(other.id), trial("ended"), trial(None)]
            assert lost_trials(lambda: running, mine) == running[2:]
            assert mine.others() == {other.id}
            with mine.finishing(False) as first, other.finishing(False) as second:
                assert (first, second) == (True, False)
        assert lost_trials(lambda: running, mine) == running[1:]
    assert not list(tmp_path.iterdir())


def test_a_process_that_counts_on_is_alive(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing, "_BEAT_SECONDS", 0.02)
    study = optuna.create_study()
    made: dict[str, Any] = {}

    def open_study(name: str) -> tuple[Any, bool]:
        is_new = name not in made
        return made.setdefault(name, optuna.create_study()), is_new

    mine, other = (StudyWorkers(study, open_study) for _ in range(2))
    study.set_user_attr("worker ended", 7)
    with mine.working():
        with other.working():
            assert mine.others() == {other.id}
            with mine.finishing(False) as first, other.finishing(False) as second:
                assert (first, second) == (True, False)
        assert mine.others() == set()
    with other.working(), other.finishing(False) as again, other.finishing(True) as known:
        assert (again, known) == (False, True)  # it is done, and only those who know the results say them


def test_a_password_is_not_shown():
    assert hide_password("postgresql://me:secret@host/name") == "postgresql://me:…@host/name"
    assert hide_password("sqlite:///a.db") == "sqlite:///a.db"

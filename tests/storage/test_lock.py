from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from node2seq.errors import Node2SeqError
from node2seq.storage import LOCK_FILES, hold, locked

HOLD = """
import sys, time
from pathlib import Path
from node2seq.storage import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes_cannot_hold_one_folder_and_a_killed_one_leaves_no_lock(tmp_path: Path):
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Node2SeqError) as caught, locked(tmp_path):
            pass
        assert f"process {other.pid} on " in caught.value.reason
        assert caught.value.reason.endswith("is working in this folder")
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    with locked(tmp_path):
        pass


def test_what_a_lock_leaves_is_known(tmp_path: Path):
    with locked(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == LOCK_FILES
    assert {path.name for path in tmp_path.iterdir()} <= LOCK_FILES


def test_a_lock_file_can_be_removed_at_the_end(tmp_path: Path):
    path = tmp_path / "claim"
    for remove in (True, False):
        with hold(path, remove=remove) as ours, hold(path, remove=True) as twice:
            assert ours
            assert not twice
            assert path.exists()
        assert path.exists() is not remove


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(Node2SeqError, match="file"), locked(tmp_path / "file"):
        pass

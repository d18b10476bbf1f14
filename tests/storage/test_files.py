from __future__ import annotations

import errno
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from node2seq.errors import Node2SeqError
from node2seq.runs.checkpoint import load_checkpoint, save_checkpoint
from node2seq.storage.files import (
    append_line,
    read_json,
    read_lines,
    read_tensors,
    write_bytes,
    write_json,
    write_tensors,
)
from node2seq.storage.lock import locked

TENSORS = {
    "a": torch.arange(6).view(2, 3),
    "b": torch.tensor(1.5, dtype=torch.bfloat16),
    "c": torch.zeros(0),
    "d": torch.tensor([True, False]),
}


def test_tensors_and_notes_come_back(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS, {"text": "naïve", "list": [1, 2.5, None]})
    tensors, notes = read_tensors(path)
    assert notes == {"text": "naïve", "list": [1, 2.5, None]}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_another_programs_safetensors_file_can_be_read(tmp_path: Path):
    from safetensors.torch import save_file

    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(2)}, path)
    tensors, notes = read_tensors(path)
    assert torch.equal(tensors["a"], torch.ones(2))
    assert notes == {}


def test_a_checkpoint_keeps_its_nest(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    state = {"model": {"w.0": torch.ones(2)}, "optimizer": {"0": {"step": torch.tensor(3.0)}}, "empty": {}}
    save_checkpoint(path, {**state, "history": [{"loss": 0.1}]}, "me")
    found = load_checkpoint(path, "me")
    assert torch.equal(found["model"]["w.0"], torch.ones(2))
    assert torch.equal(found["optimizer"]["0"]["step"], torch.tensor(3.0))
    assert found["empty"] == {}
    assert found["history"] == [{"loss": 0.1}]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, {}, "me")
    with pytest.raises(Node2SeqError, match=r"written with another config.json or split.json"):
        load_checkpoint(path, "you")


def test_half_a_line_at_the_end_is_dropped(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    append_line(path, '{"a": 1}')
    append_line(path, '{"a": 2}')
    path.write_bytes(path.read_bytes() + b'{"a": ')
    assert read_lines(path) == [{"a": 1}, {"a": 2}]


def damage(path: Path, change) -> None:
    path.write_bytes(change(path.read_bytes()))


BAD_TENSORS = {
    "pickle": (
        lambda content: pickle.dumps({"a": 1}),
        "it is a pickle under another name, and opening a pickle can run any program. "
        "Save the weights as safetensors.",
    ),
    "zipped pickle": (lambda content: b"PK\x03\x04" + content, "it is a pickle under another name"),
    "truncated": (lambda content: content[:-5], "it is not a whole safetensors file"),
    "truncated header": (lambda content: content[:20], "it is not a whole safetensors file"),
    "empty": (lambda content: b"", "it is not a whole safetensors file"),
    "text": (lambda content: b"hello", "it is not a whole safetensors file"),
    "one bit": (
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        "its checksum does not match its content. "
        "It was edited or damaged: restore it from a copy or train again.",
    ),
    "notes": (
        lambda content: content.replace(b"honest", b"forged"),
        "its checksum does not match its content",
    ),
    "zeros": (lambda content: bytes(100), "it is not a whole safetensors file"),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_damaged_tensor_files(case: str, tmp_path: Path):
    change, message = BAD_TENSORS[case]
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.arange(10)}, {"note": "honest"})
    damage(path, change)
    with pytest.raises(Node2SeqError, match=re.escape(f"{path}: {message}")):
        read_tensors(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is not JSON"),
        (b'{"a": ', "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[1]", "it holds a list, not a JSON object"),
    ],
)
def test_damaged_json(content: bytes, message: str, tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(Node2SeqError, match=re.escape(f"{path}: {message}")):
        read_json(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(Node2SeqError) as caught:
        read_json(tmp_path / "no.json")
    assert str(caught.value) == f"{tmp_path / 'no.json'}: there is no such file. Check the path."


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full. Free some space and go on with `--resume`; "),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "it may not be written"),
        (errno.EIO, "it cannot be written (Input/output error)"),
    ],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    number: int, message: str, tmp_path, monkeypatch
):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})

    def fail(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Node2SeqError, match=re.escape(message)):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


SMALL_DISK = """
import resource, signal, sys
from pathlib import Path
from node2seq.storage.files import write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_bytes(Path(sys.argv[1]), b"x" * 5000)
"""


def test_a_write_that_really_runs_out_of_room(tmp_path: Path):
    path = tmp_path / "x.bin"
    write_bytes(path, b"old")
    done = subprocess.run([sys.executable, "-c", SMALL_DISK, str(path)], capture_output=True, text=True)
    assert "the disk is full" in done.stderr
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


HOLD = """
import sys, time
from pathlib import Path
from node2seq.storage.lock import locked
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

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
from node2seq.storage import (
    load_checkpoint,
    read_json,
    read_tensors,
    replacing,
    save_checkpoint,
    write_bytes,
    write_json,
    write_tensors,
)

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
        (b"[1]", "it does not hold a JSON object"),
        (b"null", "it does not hold a JSON object"),
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
        (
            errno.ENOSPC,
            "the disk is full. Free some space, then run it again; what was written before is intact",
        ),
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


def test_a_file_written_in_parts_replaces_the_old_one_at_the_end(tmp_path: Path):
    path = tmp_path / "x.bin"
    write_bytes(path, b"old")
    with replacing(path) as file:
        file.write(b"ne")
        assert path.read_bytes() == b"old"
        file.write(b"w")
    assert path.read_bytes() == b"new"
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("no bytes")  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


SMALL_DISK = """
import resource, signal, sys
from pathlib import Path
from node2seq.storage import write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_bytes(Path(sys.argv[1]), b"x" * 5000)
"""


@pytest.mark.slow
def test_a_write_that_really_runs_out_of_room(tmp_path: Path):
    path = tmp_path / "x.bin"
    write_bytes(path, b"old")
    done = subprocess.run([sys.executable, "-c", SMALL_DISK, str(path)], capture_output=True, text=True)
    assert "the disk is full" in done.stderr
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

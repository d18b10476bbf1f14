"""Files of JSON lines: whole lines alone, whatever killed or failing writers leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node2seq.errors import Node2SeqError
from node2seq.storage import JsonLines, append_line, read_lines


def test_half_a_line_at_the_end_is_dropped(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    append_line(path, {"a": 1})
    append_line(path, {"a": 2})
    path.write_bytes(path.read_bytes() + b'{"a": ')
    assert read_lines(path) == [{"a": 1}, {"a": 2}]
    append_line(path, {"a": 3})
    assert path.read_text() == '{"a": 1}\n{"a": 2}\n{"a": 3}\n'


@pytest.mark.parametrize("left", [b'{"a', b"x" * 10_000])
def test_half_a_line_of_any_length_is_cut_off(tmp_path: Path, left: bytes):
    lines = JsonLines(tmp_path / "x.jsonl")
    for before in ([], [1, 2]):
        lines.path.write_bytes("".join(f"{value}\n" for value in before).encode() + left)
        lines.append([3, "naïve"])
        assert lines.path.read_text() == "".join(f"{value}\n" for value in (*before, 3, '"naïve"'))


def test_only_what_is_new_is_read(tmp_path: Path):
    reader, writer = (JsonLines(tmp_path / "x.jsonl") for _ in range(2))
    assert reader.refresh() == ([], False)
    writer.append([1, 2])
    assert reader.refresh() == ([1, 2], True)
    assert reader.refresh() == ([], False)
    writer.append([3])
    assert reader.refresh() == ([3], False)
    writer.replace([3])
    assert reader.refresh() == ([3], True)


def test_a_line_that_is_no_json_is_named_by_its_number(tmp_path: Path):
    lines = JsonLines(tmp_path / "x.jsonl")
    lines.append([1, 2])
    lines.refresh()
    lines.path.write_bytes(lines.path.read_bytes() + b"3\n{\n")
    with pytest.raises(Node2SeqError, match="line 4 is not JSON"):
        lines.refresh()


def test_a_failed_append_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = JsonLines(tmp_path / "x.jsonl")
    lines.append([1])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lines.append([2, 3])
        write = os.write
        patched.setattr(os, "write", lambda handle, content: write(handle, content[:1]))
        with pytest.raises(Node2SeqError, match="the disk is full"):
            lines.append([2, 3])
    assert lines.path.read_text() == "1\n"


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(Node2SeqError, match="there is no such file"):
        read_lines(tmp_path / "no.jsonl")

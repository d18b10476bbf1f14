"""What differs between Linux, macOS and Windows, tried on any of them."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from node2seq import environment, storage
from node2seq.data import sources
from node2seq.storage import JsonLines, write_bytes


def test_lines_are_written_as_bytes_where_text_would_have_another_end(tmp_path: Path, monkeypatch):
    real, seen = io.open, []

    def opened(path, mode, *more):
        seen.append("b" in mode)
        return real(path, mode, *more)

    monkeypatch.setattr(io, "open", opened)
    JsonLines(tmp_path / "rows.jsonl").append([{"a": 1}])
    assert seen == [True]
    assert (tmp_path / "rows.jsonl").read_bytes() == b'{"a": 1}\n'


def test_lines_with_the_line_end_of_windows_are_read(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\r\n{"a": 2}\r\n{"a"')
    lines = JsonLines(path)
    assert lines.refresh().values == [{"a": 1}, {"a": 2}]
    lines.append([{"a": 3}])
    assert [json.loads(line)["a"] for line in path.read_bytes().splitlines()] == [1, 2, 3]


def test_a_file_is_replaced_where_folders_cannot_be_opened(tmp_path: Path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def refused(place, *given):
        if Path(place).is_dir():
            raise PermissionError(place)
        return real(place, *given)

    real = os.open
    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "open", refused)
        patch.setattr(storage.os, "name", "nt")
        storage._sync_folder(tmp_path)
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("platform", "place"),
    [("win32", "AppData/Local"), ("darwin", "Library/Caches"), ("linux", ".cache")],
)
def test_downloads_lie_where_the_platform_keeps_caches(platform, place, tmp_path: Path, monkeypatch):
    for name in ("NODE2SEQ_CACHE", "LOCALAPPDATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert sources.cache_folder() == tmp_path / place / "node2seq"


def test_memory_is_unknown_where_the_system_does_not_say(monkeypatch):
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert environment.memory_of(torch.device("cpu")) is None


def test_no_folder_or_file_has_a_name_that_windows_refuses():
    from node2seq.nn.models import MODELS
    from node2seq.runs.folder import RunConfig, RunFolder, Source

    for model in MODELS:
        config = RunConfig(Source(name="karate"), model, {"hidden_channels": 8})
        for name in (config.name, RunFolder("run").baseline_folder(config).path.name):
            assert not set(name) & set('<>:"/\\|?*'), name

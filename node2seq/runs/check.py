"""Whether a folder is that of a run; imports nothing of training, which takes seconds."""

from __future__ import annotations

from pathlib import Path

from node2seq.errors import Node2SeqError


def check_is_run(path: Path) -> None:
    """Refuse a folder that no run was started in."""
    if not path.is_dir():
        raise Node2SeqError(str(path), "there is no such run folder", "Check the path")
    if not (path / "config.json").is_file():
        raise Node2SeqError(
            str(path),
            "it has no config.json, so it is not a run folder",
            "Give a folder that `node2seq train` made",
        )

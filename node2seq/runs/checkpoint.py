"""A training state in one file: tensors as they are, everything else as JSON in the file's header.

One file and not two, so that a single rename makes it whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from node2seq.errors import Node2SeqError
from node2seq.storage import read_tensors, write_tensors

SEPARATOR = "/"


def save_checkpoint(path: Path, state: Mapping[str, Any], belongs_to: str) -> None:
    """Write a nested state; ``belongs_to`` names the run that may resume from it."""
    tensors, rest = _flatten(state)
    write_tensors(path, tensors, {"state": rest, "belongs_to": belongs_to})


def load_checkpoint(path: Path, belongs_to: str) -> dict[str, Any]:
    """Read a nested state back, if it belongs to this run."""
    tensors, notes = read_tensors(path)
    if notes.get("belongs_to") != belongs_to:
        raise Node2SeqError(
            str(path),
            "it was written with another config.json or split.json than the ones beside it",
            "Undo the edit of those files, or start a new run",
        )
    state: dict[str, Any] = notes["state"]
    for name, tensor in tensors.items():
        *parents, leaf = name.split(SEPARATOR)
        branch = state
        for parent in parents:
            branch = branch[parent]
        branch[leaf] = tensor
    return state


def _flatten(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split a nested state into tensors by path, and the same nest without them."""
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, Tensor):
            tensors[prefix + key] = value
        elif isinstance(value, Mapping):
            inner, rest[key] = _flatten(value, f"{prefix}{key}{SEPARATOR}")
            tensors |= inner
        else:
            rest[key] = value
    return tensors, rest

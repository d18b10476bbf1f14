"""Files that are either whole or not there, and say clearly when they are neither.

Every write goes to a temporary name in the same folder, is forced to the disk and then renamed, so that
a process killed at any moment leaves the file as it was before or as it is after. Tensors are kept as
safetensors and everything else as JSON: nothing here ever unpickles.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from node2seq.errors import Node2SeqError

TEMPORARY_SUFFIX = ".part"
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` once it is written whole, and not before."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with write_errors(path):
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``, whole or not at all."""
    with replacing(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as JSON; numbers of numpy are numbers, too."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=lambda number: number.item())
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    value = parse_json(path, _read(path).decode("utf-8", errors="replace"))
    if not isinstance(value, dict):
        raise Node2SeqError(
            str(path), f"it holds a {type(value).__name__}, not a JSON object", "Restore the file"
        )
    return value


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Replace ``path`` by tensors and JSON notes in one file, with a checksum over both."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({"notes": notes, "sha256": _checksum(plain, json.dumps(notes))})
    # One entry and not several: safetensors writes them in an order that changes from file to file.
    write_bytes(path, save(plain, metadata={"node2seq": text}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote; other programs' safetensors files have no notes."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = _read(path)
    # A safetensors file starts with a length, which may look like anything, and then its JSON header.
    if content[8:9] != b"{" and (content[:1] == b"\x80" or content[:2] == b"PK"):
        raise Node2SeqError(
            str(path),
            "it is a pickle under another name, and opening a pickle can run any program",
            "Save the weights as safetensors",
        )
    try:
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
        ours = json.loads(header.get("node2seq", "{}"))
        notes, digest = ours.get("notes", {}), ours.get("sha256")
    except (SafetensorError, ValueError, AttributeError) as error:
        raise Node2SeqError(
            str(path),
            f"it is not a whole safetensors file ({str(error).strip() or type(error).__name__})",
            "It was truncated or edited: restore it from a copy or train again",
        ) from error
    if digest is not None and digest != _checksum(tensors, json.dumps(notes)):
        raise Node2SeqError(
            str(path),
            "its checksum does not match its content",
            "It was edited or damaged: restore it from a copy or train again",
        )
    return tensors, notes


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks."""
    with read_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of names, types, shapes and values."""
    return _checksum({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, "")


def make_folder(path: Path) -> None:
    """Create a folder and those above it."""
    with write_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed processes. Call it with the folder's lock held."""
    for leftover in folder.glob(f"*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into a sentence with a cure."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise Node2SeqError(
                str(path),
                "the disk is full",
                "Free some space, then run it again (training: with `--resume`); "
                "what was written before is intact",
            ) from error
        if error.errno in _REFUSED:
            raise Node2SeqError(
                str(path), "it may not be written", "Give another path, or the permission to write to it"
            ) from error
        raise Node2SeqError(
            str(path), f"it cannot be written ({error.strerror})", "Give another path"
        ) from error


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn what cannot be read into a sentence with a cure."""
    try:
        yield
    except FileNotFoundError as error:
        raise Node2SeqError(str(path), "there is no such file", "Check the path") from error
    except OSError as error:
        raise Node2SeqError(
            str(path), f"it cannot be read ({error.strerror or error})", "Check the path and its permissions"
        ) from error


def _read(path: Path) -> bytes:
    with read_errors(path):
        return path.read_bytes()


def parse_json(path: Path, text: str, where: str = "") -> Any:
    """The value of a JSON text; ``where`` says in the error which part of the file it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Node2SeqError(
            str(path),
            f"{where or 'it '}is not JSON ({error})",
            "It was truncated or edited: restore it from a copy or train again",
        ) from error


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        # Seen as bytes, since numpy has no bfloat16.
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where a folder can be opened at all (not on Windows)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

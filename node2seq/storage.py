"""Files that are either whole or not there, files of JSON lines, and locks between processes.

Every write goes to a temporary name in the same folder, is forced to the disk and then renamed, so that
a process killed at any moment leaves the file as it was before or as it is after. Tensors are kept as
safetensors and everything else as JSON: nothing here ever unpickles.

A file of JSON lines is only appended to. A process killed in the middle of a write leaves half a line at the
end: readers ignore it, and the next append removes it.

A lock belongs to the operating system, which takes it back when the process ends, however it ends: there are
no stale locks to detect.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from filelock import FileLock, Timeout

from node2seq.errors import Node2SeqError
from node2seq.options import check_rules

if TYPE_CHECKING:
    from torch import Tensor

TEMPORARY_SUFFIX = ".part"
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_BLOCK = 4096
# Between the keys of a nested state.
_SEPARATOR = "/"

_LOCK = ".lock"
# A file of its own: a locked file cannot be read on Windows, and some versions of filelock empty it.
_HOLDER = ".lock-holder"
#: What a lock leaves in a folder.
LOCK_FILES = frozenset({_LOCK, _HOLDER})
_POLL_SECONDS = 0.005


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` once it is written whole, and not before."""
    with replacing_path(path) as temporary, temporary.open("wb") as file:
        yield file


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """The same for a program that opens the file itself: yields where to write it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with write_errors(path):
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def check_new_file(path: Path, *, force: bool) -> None:
    """Refuse a file that could not be written in the end, or that would be lost.

    Args:
        path: The file to write.
        force: Whether it may be replaced if it exists.
    """
    if not path.absolute().parent.is_dir():
        raise Node2SeqError(str(path), "its folder does not exist", "Create it first")
    if path.exists() and not force:
        raise Node2SeqError(str(path), "it exists", "Give another name, or --force to replace it")


def check_tables(paths: Sequence[Path], *, force: bool) -> None:
    """Refuse files that could not be written in the end, or that would be lost.

    Args:
        paths: The files to write.
        force: Whether those that exist may be replaced.
    """
    for number, path in enumerate(paths):
        is_known = path.suffix.lower() in (".csv", ".tsv", ".parquet")
        is_new = path.resolve() not in [other.resolve() for other in paths[:number]]
        ending = "its name has the ending of no format that can be written"
        check_rules(
            (is_known, str(path), ending, "End it in .csv, .tsv or .parquet"),
            (is_new, str(path), "it is named for two tables", "Give each a file of its own"),
        )
        check_new_file(path, force=force)


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
        raise Node2SeqError(str(path), "it does not hold a JSON object", "Restore the file from a copy")
    return value


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Replace ``path`` by tensors and JSON notes in one file, with a checksum over both."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({"notes": notes, "sha256": sha256_tensors(plain, json.dumps(notes))})
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
    if digest is not None and digest != sha256_tensors(tensors, json.dumps(notes)):
        raise Node2SeqError(
            str(path),
            "its checksum does not match its content",
            "It was edited or damaged: restore it from a copy or train again",
        )
    return tensors, notes


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
        *parents, leaf = name.split(_SEPARATOR)
        branch = state
        for parent in parents:
            branch = branch[parent]
        branch[leaf] = tensor
    return state


def _flatten(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split a nested state into tensors by path, and the same nest without them."""
    from torch import Tensor

    tensors: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, Tensor):
            tensors[prefix + key] = value
        elif isinstance(value, Mapping):
            inner, rest[key] = _flatten(value, f"{prefix}{key}{_SEPARATOR}")
            tensors |= inner
        else:
            rest[key] = value
    return tensors, rest


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks."""
    with read_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_tensors(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Return the SHA-256 of a text, then of names, types, shapes and values."""
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        # Seen as bytes, since numpy has no bfloat16.
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def make_folder(path: Path) -> None:
    """Create a folder and those above it."""
    with write_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def remove_unused(folder: Path, names: Collection[str] = ()) -> None:
    """Remove a folder in which there is nothing but files of these names and those of a lock."""
    found = list(folder.iterdir()) if folder.is_dir() else []
    if all(path.name in {*names, *LOCK_FILES} for path in found):
        with suppress(OSError):  # another process may be at it, too
            for path in found:
                path.unlink()
            folder.rmdir()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed processes. Call it with the folder's lock held."""
    for leftover in folder.glob(f"*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)


class DiskFullError(Node2SeqError):
    """There is no room for what should be written."""


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into a sentence with a cure."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise DiskFullError(
                str(path),
                "the disk is full",
                "Free some space, then run it again; what was written before is intact",
            ) from error
        if error.errno in _REFUSED:
            raise Node2SeqError(
                str(path), "it may not be written", "Give another path, or the permission to write to it"
            ) from error
        raise Node2SeqError(
            str(path), f"it cannot be written ({error.strerror or error})", "Give another path"
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


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where a folder can be opened at all (not on Windows)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Added(NamedTuple):
    """What :meth:`JsonLines.refresh` found: values, and whether they are the whole file from its start."""

    values: list[Any]
    from_start: bool


class JsonLines:
    """A file of JSON lines that others may append to meanwhile.

    Args:
        path: The file; it is created by the first append.
        ascii_only: Whether to write other characters as escapes.
    """

    def __init__(self, path: Path, *, ascii_only: bool = False) -> None:
        self.path, self._ascii_only = path, ascii_only
        self._offset = self._lines = 0
        self._inode: int | None = None

    def refresh(self) -> Added:
        """Read what was appended since the last call; a file that was replaced is read from its start."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return Added([], from_start=False)
        from_start = self._inode != status.st_ino or status.st_size < self._offset
        if from_start:
            self._offset, self._lines, self._inode = 0, 0, status.st_ino
        with read_errors(self.path), self.path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        values = [
            parse_json(self.path, line.decode(errors="replace"), f"line {number} ")
            for number, line in enumerate(whole.splitlines(), start=self._lines + 1)
        ]
        self._offset, self._lines = self._offset + len(whole), self._lines + len(values)
        return Added(values, from_start)

    def append(self, values: Iterable[Any], *, durable: bool = True) -> None:
        """Add a line for each value: all of them, or none if the write fails.

        Args:
            values: What to add.
            durable: Whether to have them on the disk before returning.
        """
        content = self._encode(values)
        with write_errors(self.path), self.path.open("ab+", buffering=0) as file:
            end = _cut_half_line(file)
            try:
                if os.write(file.fileno(), content) != len(content):
                    raise OSError(errno.ENOSPC, "not written whole")
                if durable:
                    os.fsync(file.fileno())
            except BaseException:
                file.truncate(end)
                raise

    def replace(self, values: Iterable[Any]) -> None:
        """Replace the whole file."""
        write_bytes(self.path, self._encode(values))

    def _encode(self, values: Iterable[Any]) -> bytes:
        return "".join(json.dumps(value, ensure_ascii=self._ascii_only) + "\n" for value in values).encode()


def read_lines(path: Path) -> list[Any]:
    """Read a file of JSON lines that has to be there."""
    with read_errors(path):
        path.stat()
    return JsonLines(path).refresh().values


def append_line(path: Path, value: Any) -> None:
    """Add one value to a file of JSON lines, without waiting for the disk."""
    JsonLines(path, ascii_only=True).append([value], durable=False)


def _cut_half_line(file: FileIO) -> int:
    """Remove what follows the last line end, and return where the file ends."""
    end = whole = file.seek(0, os.SEEK_END)
    while whole:
        start = file.seek(max(whole - _BLOCK, 0))
        found = file.read(whole - start).rfind(b"\n")
        whole = start + found + 1
        if found >= 0:
            break
    if whole != end:
        file.truncate(whole)
    return whole


@contextmanager
def hold(path: Path, *, wait: bool = False, remove: bool = False) -> Iterator[bool]:
    """Hold the lock file ``path``, or yield False if another process has it.

    Args:
        path: Created if it does not exist.
        wait: Whether to wait until the other process releases it.
        remove: Whether to remove the file in the end. A process that opened it just before may then hold
            the removed file while another holds a new one.
    """
    lock = FileLock(path)
    with write_errors(path), suppress(Timeout):
        lock.acquire(timeout=-1 if wait else 0, poll_interval=_POLL_SECONDS)
    try:
        yield lock.is_locked
    finally:
        if remove and lock.is_locked:
            with suppress(OSError):  # an open file cannot be removed on Windows, where filelock does it
                path.unlink()
        lock.release()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder`` for this process, or raise an error that names the process that has it."""
    note = folder / _HOLDER
    with hold(folder / _LOCK) as ours:
        if not ours:
            holder = ""
            with suppress(OSError):
                holder = note.read_text(encoding="utf-8", errors="replace")
            raise Node2SeqError(
                str(folder),
                f"{holder or 'another process'} is working in this folder",
                "Wait until it ends, stop it, or give another folder with `--out`",
            )
        try:
            with write_errors(note):
                note.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        except Node2SeqError:  # a full disk leaves no folder of locks behind
            remove_unused(folder)
            raise
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

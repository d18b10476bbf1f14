"""Locks between processes.

A lock belongs to the operating system, which takes it back when the process ends, however it ends: there are
no stale locks to detect.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from node2seq.errors import Node2SeqError
from node2seq.storage.files import write_errors

_LOCK = ".lock"
# A file of its own: a locked file cannot be read on Windows, and some versions of filelock empty it.
_HOLDER = ".lock-holder"
#: What a lock leaves in a folder.
LOCK_FILES = frozenset({_LOCK, _HOLDER})

_POLL_SECONDS = 0.005


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
            raise Node2SeqError(
                str(folder),
                f"{_read(note) or 'another process'} is working in this folder",
                "Wait until it ends, stop it, or give another folder with `--out`",
            )
        with write_errors(note):
            note.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        try:
            yield
        finally:
            note.unlink(missing_ok=True)


def _read(note: Path) -> str:
    try:
        return note.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

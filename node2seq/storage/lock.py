"""One process at a time in a run folder.

The lock belongs to the operating system and falls with the process, however it ends: there are no stale
locks to detect. The file only says who holds it, for the message.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from node2seq.errors import Node2SeqError
from node2seq.storage.files import write_errors

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder`` for this process, or say at once who has it."""
    path = folder / LOCK_FILE
    with write_errors(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            _acquire(handle)
        except OSError as error:
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            raise Node2SeqError(
                str(folder),
                f"{holder} is working in this folder",
                "Wait until it ends, stop it, or give another folder with `--out`",
            ) from error
        with write_errors(path):
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        os.close(handle)


def _acquire(handle: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        # Far beyond the text, because Windows lets nobody read a locked byte.
        os.lseek(handle, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

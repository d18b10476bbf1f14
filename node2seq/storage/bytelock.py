"""Locks on single bytes of a file. They belong to the process and fall with it, however it ends."""

from __future__ import annotations

import errno
import os
import time


def acquire(handle: int, byte: int, wait: bool) -> bool:
    """Lock a byte of an open file, which need not exist; without ``wait``, say whether that was possible.

    A process holds its locks until it closes any handle of that file: open it once.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return _acquire_windows(handle, byte, wait)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    return True


def release(handle: int, byte: int) -> None:
    """Give a byte free again."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        os.lseek(handle, byte, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
    else:
        fcntl.lockf(handle, fcntl.LOCK_UN, 1, byte)


def _acquire_windows(handle: int, byte: int, wait: bool) -> bool:
    import msvcrt

    while True:
        os.lseek(handle, byte, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
        except OSError:
            if not wait:
                return False
            time.sleep(0.01)
        else:
            return True

"""Ctrl-C and SIGTERM between two epochs instead of within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and did so after saving its state."""

    def __init__(self, folder: Path, epoch: int, signal_number: int) -> None:
        super().__init__(
            f"Stopped after epoch {epoch}; the state is saved. Resume with `node2seq train --resume {folder}`."
        )
        self.folder, self.epoch = folder, epoch
        self.exit_status = 128 + signal_number  # what a shell says of a process ended by that signal


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of breaking an epoch in two; a second one breaks it after all."""
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():  # only the main one may listen
        yield asked
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

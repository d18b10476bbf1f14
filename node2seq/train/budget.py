"""The time that a command may take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


class OutOfTime(Exception):  # noqa: N818 - nothing went wrong
    """The budget is spent; what was trained before is kept."""


@dataclass
class Budget:
    """Seconds to spend.

    Args:
        seconds: How many; None: any number.
        started: When spending began, in seconds since 1970: a clock that all processes share.
        reserve: Seconds that the next piece of work is expected to take.
    """

    seconds: float | None = None
    started: float = field(default_factory=time.time)
    reserve: float = 0.0

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.time() - self.started

    def check(self) -> None:
        """Raise :class:`OutOfTime` if the next piece of work does not fit in."""
        if self.seconds is not None and self.spent + self.reserve >= self.seconds:
            raise OutOfTime

"""Lines of text for people, scripts and log files."""

from __future__ import annotations

import sys
from collections.abc import Callable


def echo(line: str, *, error: bool = False) -> None:
    """Print a line at once, to stderr if it is an error."""
    stream = sys.stderr if error else sys.stdout
    stream.write(line + "\n")
    stream.flush()


def step_teller(quiet: bool) -> Callable[[str], None]:
    """Return what tells the steps before training, which take a while on large files: lines on stderr."""
    return (lambda _: None) if quiet else lambda line: echo(line, error=True)

"""Errors that a person can act on: what was given, why it cannot be used, what to do instead."""

from typing import TYPE_CHECKING


class Node2SeqError(ValueError):
    """Something that the user gave cannot be used.

    Args:
        given (str): What was given, with its value.
        reason (str): Why it cannot be used.
        cure (str): What to do instead.
    """

    # Python's own constructor: torch.compile can trace that alone, and then repeats the text.
    if TYPE_CHECKING:

        def __init__(self, given: str, reason: str, cure: str) -> None: ...

    given = property(lambda self: self.args[0])
    reason = property(lambda self: self.args[1])
    cure = property(lambda self: self.args[2])

    def __str__(self) -> str:
        return f"{self.given}: {self.reason}. {self.cure}."

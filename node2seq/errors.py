"""Errors that a person can act on: what was given, why it cannot be used, what to do instead."""


class Node2SeqError(ValueError):
    """Something that the user gave cannot be used.

    Args:
        given (str): What was given, with its value.
        reason (str): Why it cannot be used.
        cure (str): What to do instead.
    """

    def __init__(self, given: str, reason: str, cure: str) -> None:
        super().__init__(given, reason, cure)
        self.given, self.reason, self.cure = given, reason, cure

    def __str__(self) -> str:
        return f"{self.given}: {self.reason}. {self.cure}."

"""What a flag is, which value a text has as one, and how a command line is read without typer."""

from __future__ import annotations

import argparse
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from node2seq.errors import Node2SeqError
from node2seq.options import parse

T = TypeVar("T")


@dataclass(frozen=True)
class Flag:
    """How a field is written and explained.

    Args:
        help: What it decides.
        name: As typed, such as ``--json``; None: the field's name with dashes.
        shown: What the help says of the default: its value (True), nothing (False), or these words.
        metavar: What stands for the value in the help; None: its type.
        panel: The heading in the help; None: "Options".
        least: The lowest value.
        most: The highest value.
        positional: Whether it is given without its name.
    """

    help: str
    name: str | None = None
    shown: bool | str = True
    metavar: str | None = None
    panel: str | None = None
    least: float | None = None
    most: float | None = None
    positional: bool = False


def flag(default: Any, help: str, name: str | None = None, **about: Any) -> Any:
    """Return a dataclass field that is a flag; without a default (``...``) it has to be given."""
    kept = MISSING if default is ... else default
    return field(default=kept, metadata={"flag": Flag(help, name, **about)})


@dataclass(frozen=True)
class Definition:
    """A field of a command's flags, with everything that a reader needs.

    Args:
        field: Its name.
        typed: How it is typed: ``--budget-seconds``, or the name where it is positional.
        annotation: Its type.
        default: Its default, or ``dataclasses.MISSING``.
        flag: How it is explained.
    """

    field: str
    typed: str
    annotation: Any
    default: Any
    flag: Flag

    @property
    def several(self) -> bool:
        """Whether it may be given more than once."""
        return typing.get_origin(self.annotation) is tuple

    @property
    def kind(self) -> Any:
        """The type of a value that is given."""
        return next((each for each in typing.get_args(self.annotation) if not self.several), self.annotation)

    @property
    def metavar(self) -> str | None:
        """What stands for the value in the help, with the range of a number; None: what typer takes."""
        if self.flag.positional or self.annotation is bool:
            return self.flag.metavar
        least, most = self.flag.least, self.flag.most
        name = self.flag.metavar or f"<{'str' if self.several else self.kind.__name__.lower()}>"
        ends = f" from {least:g}" if least is not None else ""
        return name + ends + (f" to {most:g}" if most is not None else "")

    def value(self, given: str | list[str] | bool) -> Any:
        """The value that a text on the command line stands for."""
        if isinstance(given, bool):
            return given
        if isinstance(given, list):
            return tuple(given)
        if self.kind in (str, Path):
            return self.kind(given)
        value = parse(given, self.kind, self.typed)
        least, most = self.flag.least, self.flag.most
        if (least is not None and value < least) or (most is not None and value > most):
            ends = f"{least:g} or more" if most is None else f"a number from {least:g} to {most:g}"
            raise Node2SeqError(f"{self.typed}={given}", "it is out of range", f"Give {ends}")
        return value


def definitions(cls: type) -> Iterator[Definition]:
    """The flags of a command in the order of their definition."""
    hints = typing.get_type_hints(cls)
    for item in fields(cls):
        about: Flag = item.metadata["flag"]
        plain = item.name if about.positional else "--" + item.name.replace("_", "-")
        yield Definition(item.name, about.name or plain, hints[item.name], item.default, about)


def read(cls: type[T], arguments: Sequence[str], program: str) -> T:
    """Read a command line without typer."""
    parser = argparse.ArgumentParser(prog=program, description=cls.__doc__, allow_abbrev=False)
    known = list(definitions(cls))
    for each in known:
        about: dict[str, Any] = {"help": each.flag.help.replace("%", "%%")}
        if each.annotation is bool:
            about |= {"action": "store_true", "dest": each.field}
        elif each.flag.positional:
            about["nargs"] = "*" if each.several else None if each.default is MISSING else "?"
        else:
            about |= {"dest": each.field, "required": each.default is MISSING, "metavar": each.flag.metavar}
            about |= {"action": "append"} if each.several else {}
        parser.add_argument(each.typed, **about)
    given = vars(parser.parse_intermixed_args(arguments))
    return cls(**{each.field: each.value(given[each.field]) for each in known if given[each.field]})

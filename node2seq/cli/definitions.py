"""What a flag is, which value a text has as one, and how a command line is read without typer."""

from __future__ import annotations

import argparse
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from node2seq.options import parse_number

T = TypeVar("T")


@dataclass(frozen=True)
class Flag:
    """A field of a command's flags: how it is written and explained.

    Args:
        help: What it decides.
        name: As typed, such as ``--json``; None: the field's name with dashes.
        shown: What the help says of the default: its value (True), nothing (False), or these words.
        metavar: What stands for the value in the help; None: its type.
        panel: The heading in the help; None: "Options".
        least: The lowest value.
        most: The highest value.
        positional: Whether it is given without its name.
        field: The name of the field; this and what follows is known once its class is made.
        annotation: Its type.
        default: Its default, or ``dataclasses.MISSING``.
    """

    help: str
    name: str | None = None
    shown: bool | str = True
    metavar: str | None = None
    panel: str | None = None
    least: float | None = None
    most: float | None = None
    positional: bool = False
    field: str = ""
    annotation: Any = None
    default: Any = None

    @property
    def typed(self) -> str:
        """How it is typed: ``--budget-seconds``, or the name where it is positional."""
        return self.name or (self.field if self.positional else "--" + self.field.replace("_", "-"))

    @property
    def several(self) -> bool:
        """Whether it may be given more than once."""
        return typing.get_origin(self.annotation) is tuple

    @property
    def kind(self) -> Any:
        """The type of a value that is given."""
        return next((each for each in typing.get_args(self.annotation) if not self.several), self.annotation)

    @property
    def placeholder(self) -> str | None:
        """What stands for the value in the help, with the range of a number; None: what typer takes."""
        if self.positional or self.annotation is bool:
            return self.metavar
        name = self.metavar or f"<{'str' if self.several else self.kind.__name__.lower()}>"
        ends = f" from {self.least:g}" if self.least is not None else ""
        return name + ends + (f" to {self.most:g}" if self.most is not None else "")

    def reader(self) -> Callable[[Any], Any]:
        """What makes a value of what the command line gives: a switch, several texts, or one."""
        if self.annotation is bool:
            return bool
        if self.several:
            return tuple
        if self.kind in (str, Path):
            return self.kind
        return partial(parse_number, kind=self.kind, where=self.typed, least=self.least, most=self.most)


def flag(default: Any, help: str, name: str | None = None, **about: Any) -> Any:
    """Return a dataclass field that is a flag; without a default (``...``) it has to be given."""
    kept = MISSING if default is ... else default
    return field(default=kept, metadata={"flag": Flag(help, name, **about)})


def definitions(cls: type) -> Iterator[Flag]:
    """The flags of a command in the order of their definition."""
    hints = typing.get_type_hints(cls)
    for item in fields(cls):
        about = {"field": item.name, "annotation": hints[item.name], "default": item.default}
        yield replace(item.metadata["flag"], **about)


def read(cls: type[T], arguments: Sequence[str], program: str) -> T:
    """Read a command line without typer."""
    parser = argparse.ArgumentParser(prog=program, description=cls.__doc__, allow_abbrev=False)
    known = list(definitions(cls))
    for each in known:
        about: dict[str, Any] = {"help": each.help.replace("%", "%%")}
        if each.annotation is bool:
            about |= {"action": "store_true", "dest": each.field}
        elif each.positional:
            about["nargs"] = "*" if each.several else None if each.default is MISSING else "?"
        else:
            about |= {"dest": each.field, "required": each.default is MISSING, "metavar": each.placeholder}
            about |= {"action": "append"} if each.several else {}
        parser.add_argument(each.typed, **about)
    given = vars(parser.parse_intermixed_args(arguments))
    return cls(**{each.field: each.reader()(given[each.field]) for each in known if given[each.field]})

"""Plain values from Python, JSON, TOML or the command line → typed ones, with errors that name the field.

A fault has one sentence wherever the value comes from; only ``where`` differs.
"""

from __future__ import annotations

import difflib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from node2seq.errors import Node2SeqError

T = TypeVar("T")

_NONE = type(None)
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
_SWITCH: dict[str, bool] = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def check(value: Any, annotation: Any, where: str) -> Any:
    """Return ``value`` as the annotated type; nothing is guessed but a whole number for a float.

    The word ``"none"`` is None where None is allowed and text is not, because TOML has no word for it.

    Args:
        value: A plain value.
        annotation: Of bool, int, float, str, Path, None, Any, Literal, list, tuple, dict, dataclasses, and
            unions of them.
        where: What the value is called in an error.
    """
    branches = _branches(annotation)
    is_none = value is None or (value == "none" and str not in branches)
    if is_none and _NONE in branches:
        return None
    return _first_fit(value, branches, where, _check_one)


def parse_number(
    text: str, kind: type, where: str, least: float | None = None, most: float | None = None
) -> Any:
    """The number that a text on the command line stands for, within a range.

    Args:
        text: What is given.
        kind: ``int`` or ``float``.
        where: What to call it in an error.
        least: The lowest value.
        most: The highest value.
    """
    value = parse(text, kind, where)
    # Not a number is in no range.
    if (least is not None and not value >= least) or (most is not None and not value <= most):
        ends = f"{least:g} or more" if most is None else f"a number from {least:g} to {most:g}"
        raise Node2SeqError(f"{where}={text}", "it is out of range", f"Give {ends}")
    return value


def parse(text: str, annotation: Any, where: str) -> Any:
    """Read a value given as text on the command line; ``none`` is None where None is allowed."""
    branches = _branches(annotation)
    if text.lower() == "none" and _NONE in branches:
        return None
    # Every text is text, so that comes last.
    return _first_fit(text, sorted(branches, key=lambda branch: branch is str), where, _parse_one)


def number_or_word(text: str) -> float | str:
    """A text as a number, if it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them: a, b and c."""
    return " and ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def build(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make the dataclass ``cls`` of ``values``, which came from ``where``.

    Its class variable ``elsewhere``, if there is one, says what to do about names that it does not have.
    """
    if not isinstance(values, Mapping):
        raise _refusal(values, (cls,), where)
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in fields(cls) if field.init}  # pyright: ignore[reportArgumentType]
    elsewhere = getattr(cls, "elsewhere", {})
    checked = check_values(values, {name: hints[name] for name in known}, where, elsewhere)
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise Node2SeqError(f"{where}: {name}", "it is missing", "Give it a value")
    try:
        return cls(**checked)
    except Node2SeqError as error:
        raise Node2SeqError(f"{where}: {error.given}", error.reason, error.cure) from error


def check_values(
    values: Mapping[str, Any],
    types: Mapping[str, Any],
    where: str,
    elsewhere: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return named values as the types that they should have; unknown names are errors."""
    for name in values:
        if name not in types:
            raise unknown(f"{where}: {name}", name, types, elsewhere)
    return {name: check(value, types[name], f"{where}: {name}") for name, value in values.items()}


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise an error if a named option has a value that it does not offer."""
    choices = list(choices)
    if value not in choices:
        raise Node2SeqError(
            f"{name}={value!r}", "there is no such choice", f"Choose one of {', '.join(map(repr, choices))}"
        )


def check_rules(*rules: tuple[bool, str, str, str]) -> None:
    """Raise the error of the first rule that is broken.

    Args:
        *rules (tuple): Whether it holds; and what was given, the reason and the cure if it does not.
    """
    for holds, *error in rules:
        if not holds:
            raise Node2SeqError(*error)


def unknown(
    given: str, name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> Node2SeqError:
    """The error for a name that nothing answers to; ``elsewhere`` holds the cures of some names."""
    cure = (elsewhere or {}).get(name) or suggestion(name, known)
    return Node2SeqError(given, "there is no such setting", cure)


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Return a cure: the nearest valid word if there is one, else all of them."""
    choices = list(choices)
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.75)
    return f"Perhaps {near[0]} was meant" if near else f"Choose one of {', '.join(sorted(choices))}"


def _branches(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


class _MisfitError(Exception):
    """The value is not of this branch at all, so another one may take it."""


def _first_fit(value: Any, branches: Sequence[Any], where: str, fit: Callable[[Any, Any, str], Any]) -> Any:
    for branch in branches:
        with suppress(_MisfitError):
            return fit(value, branch, where)
    raise _refusal(value, branches, where)


def _refusal(value: Any, branches: Iterable[Any], where: str) -> Node2SeqError:
    kinds = " or ".join(_kind(branch) for branch in branches)
    return Node2SeqError(f"{where}={value!r}", f"it should be {kinds}", "Give a value of that kind")


def _kind(annotation: Any) -> str:
    """What a type is called in an error."""
    if annotation is _NONE:
        return "none"
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in inner)
    if origin in (list, tuple):
        return f"a list ({' or '.join(_kind(branch) for branch in _branches(inner[0]))} each)"
    return _WORDS.get(annotation, "a table")


def _check_one(value: Any, annotation: Any, where: str) -> Any:
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is Any:
        return value
    if origin is Literal and value in inner and type(value) is type(inner[inner.index(value)]):
        return value
    if origin is float and is_number:
        return _as_number(float, value)
    if (origin is int and is_number and isinstance(value, int)) or (
        origin in (bool, str) and isinstance(value, origin)
    ):
        return value
    if origin is Path and isinstance(value, str | Path):
        return Path(value)
    if origin in (list, tuple) and isinstance(value, list | tuple):
        return origin(check(item, inner[0], f"{where}[{i}]") for i, item in enumerate(value))
    if is_dataclass(origin) and isinstance(value, origin):  # pyright: ignore[reportArgumentType]
        return value
    if is_dataclass(origin) and isinstance(value, Mapping):
        return build(origin, value, where)  # pyright: ignore[reportArgumentType]
    if origin is dict and isinstance(value, Mapping):
        kind = inner[1] if inner else Any
        return {str(key): check(item, kind, f"{where}: {key}") for key, item in value.items()}
    raise _MisfitError


def _as_number(kind: type[Any], value: Any) -> Any:
    try:
        return kind(value)
    except (ValueError, OverflowError):
        raise _MisfitError from None


def _parse_one(text: str, annotation: Any, where: str) -> Any:
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in (list, tuple):
        items = text.removeprefix("[").removesuffix("]").split(",")
        return origin(parse(item.strip(), inner[0], where) for item in items)
    if origin is Literal:
        return _check_one(
            next((c for c in inner if str(c) == _unquoted(text)), _MisfitError), annotation, where
        )
    if origin is bool and text.lower() in _SWITCH:
        return _SWITCH[text.lower()]
    if origin in (int, float):
        return _as_number(origin, text)
    if origin in (str, Path):
        return origin(_unquoted(text))
    raise _MisfitError


def _unquoted(text: str) -> str:
    """Words need no quotes on the command line, but may have those of TOML."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


# ":obj:`max`", ":class:`Smoothing`" and "``beta``" as plain words.
_ROLE = re.compile(r":\w+:`~?([^`]*)`|``([^`]*)``")
_ARGUMENT = re.compile(r"^(\w+)(?: \([^:]*\))?: (.*)$")


def argument_texts(of: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each argument: plain text without the default."""
    texts: dict[str, str] = {}
    for cls in reversed(of.__mro__):
        doc = inspect.cleandoc(vars(cls).get("__doc__") or "")
        name = None
        for line in textwrap.dedent(doc.partition("Args:\n")[2].partition("\n\n")[0]).splitlines():
            found = _ARGUMENT.match(line)
            if found is not None:
                name, texts[found[1]] = found[1], found[2]
            elif name is not None:
                texts[name] += f" {line.strip()}"
    plain = {name: _ROLE.sub(lambda role: role[1] or role[2] or "", text) for name, text in texts.items()}
    return {name: text.partition(" (default:")[0] for name, text in plain.items()}

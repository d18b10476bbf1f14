"""Plain values from JSON, TOML or the command line → typed ones, with errors that name the field."""

from __future__ import annotations

import difflib
import inspect
import json
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from node2seq.errors import Node2SeqError

T = TypeVar("T")


def build(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make the dataclass ``cls`` of ``values``, which came from ``where``; unknown keys are errors."""
    from pydantic import TypeAdapter, ValidationError

    check_keys(cls, values, where)
    try:
        # By way of JSON, because only there strict checking still makes dataclasses of dicts.
        return TypeAdapter(cls).validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        raise _first_fault(error, where) from error


def check_keys(cls: type, values: Mapping[str, Any], where: str) -> None:
    """Refuse keys that the dataclass ``cls``, or a dataclass inside it, has no field for."""
    hints = typing.get_type_hints(cls)
    names = [field.name for field in fields(cls)]
    for key, value in values.items():
        if key not in names:
            raise Node2SeqError(f"{where}: {key}", "there is no such setting", suggestion(key, names))
        inner = _inner_dataclass(hints[key])
        if inner is not None and isinstance(value, Mapping):
            check_keys(inner, value, f"{where}: {key}")


def parse(text: str, annotation: Any, where: str) -> Any:
    """Read one value given as text on the command line; ``none`` is None where None is allowed."""
    from pydantic import TypeAdapter, ValidationError

    if text.lower() == "none" and type(None) in typing.get_args(annotation):
        return None
    try:
        return TypeAdapter(annotation).validate_strings(text)
    except ValidationError as error:
        raise _first_fault(error, where) from error


def check(value: Any, annotation: Any, where: str) -> Any:
    """Return ``value`` if it is of the annotated type."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError as error:
        raise _first_fault(error, where) from error


def constructor_options(cls: type, leave_out: Iterable[str] = ()) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a constructor, with resolved annotations."""
    hints = typing.get_type_hints(cls.__init__)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: parameter.replace(annotation=hints.get(name, Any))
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind in named and name not in set(leave_out)
    }


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Return a cure: the nearest valid word if there is one, else all of them."""
    choices = list(choices)
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.75)
    return f"Perhaps {near[0]} was meant" if near else f"Choose one of {', '.join(sorted(choices))}"


def _inner_dataclass(annotation: Any) -> type | None:
    options = (
        typing.get_args(annotation)
        if typing.get_origin(annotation) in (typing.Union, types.UnionType)
        else (annotation,)
    )
    return next((option for option in options if isinstance(option, type) and is_dataclass(option)), None)


def _first_fault(error: Any, where: str) -> Node2SeqError:
    """Put the first of pydantic's faults into our form."""
    fault = error.errors()[0]
    inner = fault.get("ctx", {}).get("error")
    if isinstance(inner, Node2SeqError):
        return Node2SeqError(f"{where}: {inner.given}", inner.reason, inner.cure)
    path = ".".join(str(part) for part in fault["loc"] if not _is_type_name(part))
    given = f"{where}: {path}" if path else where
    if fault["type"] == "missing":
        return Node2SeqError(given, "it is missing", "Add it")
    message = fault["msg"][0].lower() + fault["msg"][1:]
    return Node2SeqError(f"{given}={fault['input']!r}", message, "Give a value of that kind")


def _is_type_name(part: str | int) -> bool:
    """Pydantic names the tried branch of a union in its path, which says nothing to a user."""
    return part in ("int", "float", "str", "bool", "none", "RunConfig")

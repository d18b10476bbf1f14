"""One checker for values from Python, TOML and the command line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from node2seq.errors import Node2SeqError
from node2seq.options import build, check, check_values, parse


@dataclass(frozen=True)
class Inner:
    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 0:
            raise Node2SeqError(f"size={self.size}", "it is negative", "Give 0 or more")


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    again: Outer | None = None
    rest: dict[str, Any] = field(default_factory=dict)


GOOD = [
    (3, int, 3),
    (3, float, 3.0),
    (1e-5, float, 1e-5),
    (True, bool, True),
    ("none", str, "none"),
    ("none", str | None, "none"),
    ("none", float | None, None),
    (None, int | None, None),
    ("b", Literal["a", "b"], "b"),
    ([1, 2], tuple[float, ...], (1.0, 2.0)),
    ((1, 2), list[int], [1, 2]),
    (["x", 2], list[str | int], ["x", 2]),
    ("a/b", Path, Path("a/b")),
    ({"size": 4}, Inner | None, Inner(4)),
    (Inner(5), Inner, Inner(5)),
    ({"a": [1]}, dict[str, Any], {"a": [1]}),
    ({"a": 1}, dict[str, float], {"a": 1.0}),
]


@pytest.mark.parametrize(("value", "annotation", "expected"), GOOD)
def test_values_get_their_type(value, annotation, expected):
    found = check(value, annotation, "x")
    assert found == expected
    assert type(found) is type(expected)


BAD = [
    (True, int, "a whole number"),
    (False, float, "a number"),
    ("3", int, "a whole number"),
    (3.0, int, "a whole number"),
    (10**400, float, "a number"),
    (1, bool, "true or false"),
    (None, int, "a whole number"),
    (3, str, "text"),
    ("c", Literal["a", "b"], "one of 'a', 'b'"),
    (True, Literal[1, 2], "one of 1, 2"),
    ("x", float | None, "a number or none"),
    ("ab", list[str], "a list (text each)"),
    (3, Inner, "a table"),
    ([], dict[str, int], "a table"),
]


@pytest.mark.parametrize(("value", "annotation", "kind"), BAD)
def test_nothing_is_guessed(value, annotation, kind: str):
    with pytest.raises(Node2SeqError) as caught:
        check(value, annotation, "where")
    assert str(caught.value) == f"where={value!r}: it should be {kind}. Give a value of that kind."


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        ("3", int, 3),
        ("3", float, 3.0),
        ("1e400", float, math.inf),
        ("yes", bool, True),
        ("FALSE", bool, False),
        ("none", int | None, None),
        ("3", int | None, 3),
        ("none", str, "none"),
        ("'mean'", str, "mean"),
        ("2", Literal[1, 2], 2),
        ("[1, 2]", list[int], [1, 2]),
        ("1,2", tuple[int, ...], (1, 2)),
        ("3", str | int, 3),
        ("three", str | int, "three"),
        ("a/b", Path | None, Path("a/b")),
    ],
)
def test_text_is_read_as_the_type_that_is_wanted(text: str, annotation, expected):
    found = parse(text, annotation, "x")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("text", ["3.5", "true", "", "two", "[1]"])
def test_text_and_value_are_refused_with_the_same_sentence(text: str):
    with pytest.raises(Node2SeqError) as parsed:
        parse(text, int, "where")
    with pytest.raises(Node2SeqError) as checked:
        check(text, int, "where")
    assert str(parsed.value) == str(checked.value)


def test_dataclasses_are_built_from_tables():
    values = {"name": "a", "inner": {"size": 2}, "again": {"name": "b"}, "rest": {"x": [1, "y"]}}
    assert build(Outer, values, "f") == Outer("a", Inner(2), Outer("b"), {"x": [1, "y"]})
    assert build(Inner, {}, "f") == Inner(1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "f: name: it is missing. Give it a value."),
        ({"nam": "a"}, "f: nam: there is no such setting. Perhaps name was meant."),
        ({"name": "a", "inner": {"sice": 1}}, "f: inner: sice: there is no such setting. Perhaps size was"),
        ({"name": "a", "inner": {"size": "x"}}, "f: inner: size='x': it should be a whole number."),
        ({"name": "a", "inner": {"size": -1}}, "f: inner: size=-1: it is negative. Give 0 or more."),
        ({"name": "a", "again": {"name": 3}}, "f: again: name=3: it should be text."),
        ({"name": "a", "inner": 3}, "f: inner=3: it should be a table."),
    ],
)
def test_faults_name_the_field(values: dict[str, Any], message: str):
    with pytest.raises(Node2SeqError) as caught:
        build(Outer, values, "f")
    assert str(caught.value).startswith(message)


def test_named_values_are_checked_against_their_types():
    assert check_values({"a": 1}, {"a": float, "b": int}, "f") == {"a": 1.0}
    with pytest.raises(Node2SeqError, match="f: c: there is no such setting"):
        check_values({"c": 1}, {"a": float, "b": int}, "f")

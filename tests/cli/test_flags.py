"""One definition of each command's flags, read by typer or without it."""

from __future__ import annotations

import pytest

from node2seq.cli import app
from node2seq.cli.commands import COMMANDS
from node2seq.cli.definitions import read
from node2seq.errors import Node2SeqError

TUNE = [
    *("--model", "gcn", "texas", "--fix", "epochs=3", "--fix", "lr=[0.1, 0.2]", "--trials", "5"),
    *("--directed", "--ignore", "a", "--budget-seconds", "2.5", "--out", "there", "--json"),
]
REPRODUCE = [
    *("2", "--columns", "texas", "3", "--models", "gcn", "--models", "sgc", "--runs", "4", "--list"),
    *("--check", "3", "--epochs", "2", "--results", "rows", "--device", "cpu", "--format", "tex"),
]


@pytest.mark.parametrize(("verb", "arguments"), [("tune", TUNE), ("reproduce", REPRODUCE)])
def test_both_readers_read_the_same(verb: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch):
    command = COMMANDS[verb]
    assert command.bare
    seen: list[object] = []
    monkeypatch.setattr(type(command), "execute", lambda _, flags: seen.append(flags))
    app([verb, *arguments], standalone_mode=False)
    app([verb], standalone_mode=False)
    assert seen == [read(command.flags, arguments, verb), command.flags()]
    assert read(command.flags, [], verb) == command.flags()
    given = {name: value for name, value in vars(seen[0]).items() if value != getattr(seen[1], name)}
    assert len(given) == sum(text.startswith("--") for text in arguments)  # one repeated, one positional


def test_a_flag_given_twice_is_noted(cli):
    """The last one counts, as in other programs; flags that take several values and switches are no news."""
    several = ["--models", "gcn", "--models", "sgc", "--list", "--list", "--runs", "3", "--runs=4"]
    note = "note: --runs is given 2 times and takes one value: the last one counts"
    done = cli("reproduce", "2", *several)
    assert done.status == 0
    assert done.err.strip() == note
    assert cli("reproduce", "2", "--list", "--runs", "4").err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runs", "0"], "--runs=0: it is out of range. Give 1 or more."),
        (["--budget-seconds", "-1"], "--budget-seconds=-1: it is out of range. Give 0 or more."),
        (["--budget-seconds", "nan"], "--budget-seconds=nan: it is out of range. Give 0 or more."),
        (["--runs", "x"], "--runs='x': it should be a whole number. Give a value of that kind."),
    ],
)
def test_both_readers_name_a_wrong_value(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(Node2SeqError) as caught:
        read(COMMANDS["reproduce"].flags, arguments, "node2seq reproduce")
    assert str(caught.value) == message
    assert app(["reproduce", *arguments], standalone_mode=False) == 2
    assert capsys.readouterr().err == f"Error: {message}\n"


def test_the_plain_reader_refuses_unknown_flags(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        read(COMMANDS["reproduce"].flags, ["--run"], "node2seq reproduce")
    assert "unrecognized arguments: --run" in capsys.readouterr().err

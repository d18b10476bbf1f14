"""Every example that ``--help`` shows is run, in the order in which a user would."""

from __future__ import annotations

import shlex
from dataclasses import MISSING
from pathlib import Path

import pytest

from node2seq.cli.commands import COMMANDS
from node2seq.cli.definitions import definitions
from node2seq.data import load, write_graph


def examples(*verbs: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for verb in verbs for line in COMMANDS[verb].examples]


TRAIN = examples("train")
OTHERS = examples("evaluate", "predict", "explain", "info")


def test_there_are_as_many_as_we_think():
    assert len(TRAIN) == 5
    assert len(OTHERS) == 9


@pytest.mark.slow
def test_examples(cli, real_data, tmp_path: Path):
    real_data("cora-r", load)
    real_data("texas", load)
    karate = load("karate")
    write_graph(karate, "edges.csv", "nodes.csv")
    nodes = Path("nodes.csv")
    nodes.write_text(nodes.read_text().replace("label", "kind", 1))
    for name in ("edges", "nodes"):
        Path(f"new_{name}.csv").write_bytes(Path(f"{name}.csv").read_bytes())
    short = ["--set", "hidden_channels=4"]
    assert cli("train", "karate", *short, "--epochs", "2").status == 0  # a later example predicts with it
    for command in [*TRAIN, *OTHERS]:
        # As written, but for the number of epochs, which is not what an example is about.
        quick = [*short, "--epochs", "2"] if command[0] == "train" and "--resume" not in command else []
        done = cli(*command, *quick)
        assert done.status == 0, f"{command}: {done.err}"
        assert done.out


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_flag_is_documented_with_its_default(cli, verb: str):
    shown = cli(*verb.split(), "--help").out
    known = list(definitions(COMMANDS[verb].flags))
    assert known
    for each in known:
        assert each.typed in shown
        assert each.help.endswith((".", "…")), each.field
        told = each.shown or each.default is MISSING or each.default is False
        allowed = ("name", "edges", "nodes", "label", "check", "epochs", "commit")
        assert told or each.field in allowed, f"{each.field} does not tell its default"
    for example in COMMANDS[verb].examples:
        assert example in " ".join(shown.split())

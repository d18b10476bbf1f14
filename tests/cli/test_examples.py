"""Every example that ``--help`` shows is run, in the order in which a user would."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from node2seq.cli import evaluate, info, predict, train, tune
from node2seq.data import load, write_graph


def examples(*epilogs: str) -> list[list[str]]:
    text = "\n".join(epilogs).replace("Example: ", "")
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("node2seq ")]


TRAIN = examples(train.EPILOG)
OTHERS = examples(evaluate.EPILOG, predict.EPILOG, info.EPILOG)


def test_there_are_as_many_as_we_think():
    assert len(TRAIN) == 5
    assert len(OTHERS) == 6


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


@pytest.mark.parametrize("verb", ["train", "tune", "evaluate", "predict", "info"])
def test_every_option_is_documented_with_its_default(cli, verb: str):
    import inspect
    from typing import get_type_hints

    modules = {"train": train, "tune": tune, "evaluate": evaluate, "predict": predict, "info": info}
    function = getattr(modules[verb], verb)
    hints = get_type_hints(function, include_extras=True)
    shown = cli(verb, "--help").out
    for name, parameter in inspect.signature(function).parameters.items():
        option = hints[name].__metadata__[0]
        assert option.help, name
        told = option.show_default or parameter.default is parameter.empty or parameter.default is False
        assert told or name in ("name", "edges", "nodes", "label", "run"), f"{name} does not tell its default"
    assert "--json" in shown
    assert "Example" in shown

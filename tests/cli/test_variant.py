"""``train --variant``: one table of recipes for the command and for the results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node2seq.data import load
from node2seq.recipes import RECIPES
from node2seq.train.settings import recipe

PLUS = recipe({"hidden_channels": 8, "taps": "scalar"}, {"epochs": 2, "averaging": 0.5}, row_normalize=True)


@pytest.fixture(autouse=True)
def _recipes_of_texas(monkeypatch: pytest.MonkeyPatch, real_data) -> None:
    real_data("texas", load)
    monkeypatch.setitem(RECIPES["plus"], "node2seq", {"texas": PLUS})
    monkeypatch.setitem(RECIPES["directed"], "node2seq", {"texas": PLUS.updated(directed=True)})


def config_of(done) -> dict:
    assert done.status == 0, done.err
    return json.loads(Path(done.json["run"], "config.json").read_text())


def test_without_a_variant_the_papers_recipe_is_taken(cli):
    config = config_of(cli("train", "texas", "--epochs", "2", "--json"))
    options = RECIPES["paper"]["node2seq"]["texas"].options
    assert options.items() <= config["model"]["options"].items()
    assert config["model"]["options"]["taps"] == "full"


def test_the_variant_brings_its_recipe(cli):
    config = config_of(cli("train", "texas", "--variant", "plus", "--json"))
    assert PLUS.options.items() <= config["model"]["options"].items()
    assert config["model"]["name"] == "node2seq-plus"
    assert (config["run"]["settings"]["epochs"], config["run"]["settings"]["averaging"]) == (2, 0.5)
    assert config["run"]["row_normalize"]
    assert config["graph"]["summary"]["edges"] == 279


def test_the_directed_variant_keeps_the_edges_direction(cli, tmp_path: Path):
    (tmp_path / "own.toml").write_text('variant = "directed"\n[source]\nname = "texas"\n')
    config = config_of(cli("train", "--config", "own.toml", "--json"))
    assert config["model"]["options"]["directed"]
    assert config["run"]["source"]["reading"] == {"directed": True}
    assert config["graph"]["summary"]["edges"] == 309


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("karate", "--variant", "plus"), "there is no recipe for it"),
        (("texas", "--variant", "plus", "--baseline", "cheby"), "variant 'plus' of cheby on texas"),
        (("texas", "--variant", "minus"), "there is no such choice"),
        (("--resume", "--variant", "plus", "--out", "somewhere"), "--resume with --variant"),
    ],
)
def test_a_variant_without_a_recipe_is_refused(cli, tmp_path: Path, arguments, message: str):
    done = cli("train", *arguments)
    assert done.status != 0
    assert message in " ".join(done.err.split())
    assert not (tmp_path / "runs").exists()

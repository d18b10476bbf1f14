from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.pretrained import from_pretrained, save_pretrained
from node2seq.runs.training import train_run
from node2seq.train.settings import TrainSettings

EDGES = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])


@pytest.mark.parametrize("name", MODELS)
def test_every_model_comes_back(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name](6, 8, 3).eval()
    save_pretrained(model, tmp_path / "model", class_names=["a", "b", "c"])
    found = from_pretrained(tmp_path / "model")
    assert type(found) is type(model)
    assert not found.training
    x = torch.randn(5, 6)
    assert torch.equal(found(x, EDGES), model(x, EDGES))
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"config.json", "model.safetensors"}


def test_options_that_are_not_the_defaults_come_back(tmp_path: Path):
    model = MODELS["node2seq"](6, 8, 3, kernel_size=5, readout="sum", skip="concat", position=1)
    save_pretrained(model, tmp_path)
    found = from_pretrained(tmp_path)
    assert repr(found) == repr(model)
    options = json.loads((tmp_path / "config.json").read_text())["model"]["options"]
    assert (options["kernel_size"], options["readout"], options["position"]) == (5, "sum", 1)


def test_a_model_with_edge_attributes_comes_back(tmp_path: Path):
    model = MODELS["gat"](6, 8, 3, edge_dim=2).eval()
    save_pretrained(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model"]["edge_dim"] == 2
    x, attr = torch.randn(5, 6), torch.randn(5, 2)
    assert torch.equal(from_pretrained(tmp_path)(x, EDGES, edge_attr=attr), model(x, EDGES, edge_attr=attr))


def test_a_run_folder_is_a_pretrained_model(tmp_path: Path):
    config = RunConfig(
        Source(name="karate"), options={"hidden_channels": 4}, settings=TrainSettings(epochs=2)
    )
    train_run(config, tmp_path / "run")
    assert type(from_pretrained(tmp_path / "run")) is MODELS["node2seq"]


def test_a_model_of_ones_own_cannot_be_built_back(tmp_path: Path):
    with pytest.raises(Node2SeqError, match="only models of this package can be rebuilt"):
        save_pretrained(nn.Linear(2, 2), tmp_path)


def test_weights_of_another_model(tmp_path: Path):
    save_pretrained(MODELS["gcn"](6, 8, 3), tmp_path / "a")
    save_pretrained(MODELS["gcn"](6, 16, 3), tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").rename(tmp_path / "a" / "model.safetensors")
    with pytest.raises(Node2SeqError, match=r"its weights do not fit the model that config\.json describes"):
        from_pretrained(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no such folder", "there is no such folder, and it is no hub id. Give a folder or owner/name."),
        ("somebody/model", "reading from the hub needs huggingface_hub"),
    ],
)
def test_neither_folder_nor_hub(name: str, message: str, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as if it were not installed
    with pytest.raises(Node2SeqError, match=re.escape(message)):
        from_pretrained(name)


def test_a_hub_id_is_downloaded(tmp_path: Path, monkeypatch):
    import sys
    import types

    model = MODELS["gcn"](6, 8, 3)
    save_pretrained(model, tmp_path)
    asked = {}

    def snapshot_download(name: str, **options) -> str:
        asked.update(options, name=name)
        return str(tmp_path)

    hub = types.ModuleType("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    found = from_pretrained("somebody/model", revision="v2")
    assert asked == {
        "name": "somebody/model",
        "revision": "v2",
        "allow_patterns": ["config.json", "model.safetensors"],
    }
    assert torch.equal(found.state_dict()["convs.0.bias"], model.state_dict()["convs.0.bias"])

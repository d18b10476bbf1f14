"""From flags, a TOML file and recipes to one run: who overrides whom, and one sentence for each fault."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from former_options import FORMER
from torch_geometric.data import Data

from node2seq.cli.flags import TrainFlags
from node2seq.cli.settings import make_config, read_file
from node2seq.errors import Node2SeqError
from node2seq.recipes import recipe_for
from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.recipe_file import RecipeFile, read_recipe_file
from node2seq.train.settings import BatchSettings

# How one's own files are read unless told otherwise.
SCALED = {"standardize": True}


@pytest.mark.parametrize(
    ("name", "toml", "text", "value", "sentence"),
    [
        ("kernle_size", "3", "3", 3, "kernle_size: there is no such setting. Perhaps kernel_size was meant."),
        (
            "kernel_size",
            '"three"',
            "three",
            "three",
            "kernel_size='three': it should be a whole number. Give a value of that kind.",
        ),
        (
            "threshold",
            '"low"',
            "low",
            "low",
            "threshold='low': it should be a number. Give a value of that kind.",
        ),
    ],
)
def test_a_fault_has_one_sentence_wherever_it_comes_from(
    tmp_path: Path, name: str, toml: str, text: str, value: object, sentence: str
):
    file = tmp_path / "own.toml"
    file.write_text(f"[options]\n{name} = {toml}\n")
    with pytest.raises(Node2SeqError) as in_file:
        read_recipe_file(file)
    assert str(in_file.value) == f"{file}: options: {sentence}"
    with pytest.raises(Node2SeqError) as in_flag:
        make_config(TrainFlags(name="karate", assignments=(f"{name}={text}",)), RecipeFile())
    assert str(in_flag.value) == f"--set {sentence}"
    with pytest.raises(Node2SeqError) as in_python:
        RunConfig(Source(name="karate"), options={"hidden_channels": 8, name: value})
    assert str(in_python.value) == f"options of node2seq: {sentence}"


def test_flags_override_the_file_which_overrides_the_recipe(tmp_path: Path):
    file = tmp_path / "own.toml"
    file.write_text(
        'seed = 3\nrow_normalize = true\n[source]\nname = "karate"\n'
        '[options]\nkernel_size = 5\nhops = 2\n[settings]\nlr = 0.5\npatience = "none"\n'
    )
    flags = TrainFlags(assignments=("hops=1", "views=2"), epochs=7, class_weights=True)
    config = make_config(flags, read_recipe_file(file))
    recipe = recipe_for("node2seq")
    assert (config.seed, config.row_normalize) == (3, True)
    assert (config.options.kernel_size, config.options.hops) == (5, 1)
    assert config.options.hidden_channels == recipe.options["hidden_channels"]
    settings = config.settings
    assert (settings.lr, settings.patience, settings.views) == (0.5, None, 2)
    assert (settings.epochs, settings.class_weights) == (7, True)
    assert settings.weight_decay == recipe.settings.weight_decay


def test_the_baseline_shares_flags_but_not_the_models_own_settings():
    flags = TrainFlags(name="karate", baseline="gcn", epochs=7, assignments=("kernel_size=5", "lr=0.5"))
    baseline = make_config(flags, RecipeFile()).baseline
    assert baseline is not None
    assert (baseline.model, baseline.settings.epochs) == ("gcn", 7)
    assert baseline.settings.lr == recipe_for("gcn").settings.lr
    assert not hasattr(baseline.options, "kernel_size")


@pytest.mark.parametrize(
    "text",
    [
        "model = 3\n",
        'source = "karate"\n',
        "[settings]\nkernel_size = 3\n",
        "[options]\nlr = 0.1\n",
        "seed = true\n",
    ],
)
def test_a_file_is_checked_strictly(tmp_path: Path, text: str):
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(Node2SeqError, match=r"own\.toml: \w+"):
        read_recipe_file(file)


def toml(options: dict[str, object]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())


@pytest.mark.parametrize("model", ['model = "node2seq"\n', ""])
def test_a_file_of_before_becomes_the_network_that_it_needs(tmp_path: Path, model: str):
    file = tmp_path / "own.toml"
    file.write_text(f'{model}[source]\nname = "karate"\n[options]\nhops = 2\n{toml(FORMER)}')
    config = make_config(TrainFlags(), read_recipe_file(file))
    assert (config.model, config.options.hops) == ("node2seq", 2)
    assert not FORMER.keys() & vars(config.options).keys()
    other = {**FORMER, "own": "apart"}
    file.write_text(f'{model}[source]\nname = "karate"\n[options]\nhops = 2\n{toml(other)}')
    for flags in (
        TrainFlags(),
        TrainFlags(model="node2seq"),
        TrainFlags(model="node2seq", assignments=("smoothing=2",)),
    ):
        config = make_config(flags, read_recipe_file(file, flags.model))
        assert (config.model, config.options.hops, config.options.own) == ("node2seq-plus", 2, "apart")
    assert config.options.smoothing == 2


def test_an_option_of_the_other_network_names_it():
    flags = TrainFlags(name="texas", assignments=("own=apart",))
    with pytest.raises(Node2SeqError, match=r"--set own: there is no such setting\. Use Node2SeqPlus"):
        make_config(flags, RecipeFile())
    for other in ({"variant": "plus"}, {"model": "node2seq-plus"}):
        config = make_config(replace(flags, **other), RecipeFile())
        assert (config.model, config.options.own) == ("node2seq-plus", "apart")


def test_flags_about_a_graph_leave_the_rest_of_the_files_source(tmp_path: Path):
    file = tmp_path / "own.toml"
    file.write_text('[source]\nedges = "e.csv"\nnodes = "n.csv"\nlabel = "kind"\nreading = { id = "key" }\n')
    known = read_recipe_file(file)
    config = make_config(TrainFlags(data_root=tmp_path, directed=True), known)
    expected = Source(None, str(tmp_path), "e.csv", "n.csv", "kind", {"id": "key", "directed": True} | SCALED)
    assert config.source == expected
    assert make_config(TrainFlags(name="karate"), known).source == Source(name="karate")
    raw = make_config(TrainFlags(raw=True), known).source.reading
    assert raw == {"id": "key", "standardize": False}


def test_the_defaults_for_ones_own_graph_depend_on_it(tmp_path: Path):
    flags = TrainFlags(edges=tmp_path / "e.csv", nodes=tmp_path / "n.csv", label="kind", baseline="gcn")

    def config_for(y: list[int], features: int, **other: Any) -> RunConfig:
        labels = torch.tensor(y)
        data = Data(x=torch.zeros(labels.numel(), features), y=labels)
        return make_config(replace(flags, **other), RecipeFile(), data)

    config = config_for([0] * 80 + [1] * 20 + [-1] * 50, 6)
    assert config.model == "residual-node2seq"
    assert (config.settings.metric, config.settings.patience) == ("roc-auc", 60)
    assert config.baseline is not None
    assert (config.baseline.settings.metric, config.baseline.settings.patience) == ("roc-auc", 60)
    wide = config_for([0, 1] * 50, 2000)
    assert wide.settings.metric == "accuracy"
    assert wide.options.input_dropout > config.options.input_dropout
    short = config_for([0, 1] * 50, 2000, epochs=10)
    assert (short.options.dropout, short.settings.lr, short.settings.epochs) == (0.2, 0.005, 10)
    assert config_for([0, 1] * 50, 2000, assignments=("epochs=10",)).options == short.options
    own = config_for([0, 1] * 50, 2000, epochs=10, assignments=("dropout=0.4",))
    assert own.options.dropout == 0.4, "what is asked for is not what happens"
    batched = config_for([0, 1] * 50, 2000, epochs=10, batch_size=8)
    assert batched.options == wide.options, "ten epochs of many batches are no short training"
    assert config_for([0, 1, 2] * 9, 6, class_weights=True).settings.metric == "balanced-accuracy"
    chosen = config_for([0] * 80 + [1] * 20, 6, metric="macro-f1", assignments=("patience=none",))
    assert (chosen.settings.metric, chosen.settings.patience) == ("macro-f1", None)
    assert chosen.baseline is not None
    assert chosen.baseline.settings.metric == "macro-f1"
    with pytest.raises(Node2SeqError, match="metric='auc'"):
        config_for([0, 1], 6, metric="auc")


def test_a_data_set_keeps_its_recipe(tmp_path: Path):
    config = make_config(TrainFlags(name="cora-r", baseline="gcn"), RecipeFile())
    recipe = recipe_for("node2seq", "cora-r")
    assert (config.model, config.settings) == ("node2seq", recipe.settings)
    assert make_config(TrainFlags(name="texas", class_weights=True), RecipeFile()).settings.metric == (
        "balanced-accuracy"
    )
    file = tmp_path / "own.toml"
    file.write_text('[source]\nnodes = "n.csv"\nedges = "e.csv"\nlabel = "kind"\n[options]\nnum_layers = 4\n')
    flags = TrainFlags(config=file)
    config = make_config(flags, read_file(flags))
    assert (config.model, config.options.num_layers) == ("residual-node2seq", 4)


def test_a_learning_rate_from_the_command_line_is_that_of_the_batches():
    given = TrainFlags(name="karate", batch_size=8, baseline="gcn", assignments=("lr=0.02",))
    config = make_config(given, RecipeFile())
    assert config.batches is not None
    assert config.baseline is not None
    assert config.baseline.batches is not None
    assert (config.settings.lr, config.batches.scale_lr) == (0.02, False)
    assert config.baseline.batches.scale_lr  # its rate is that of its recipe
    other = make_config(replace(given, assignments=("dropout=0.2",)), RecipeFile()).batches
    assert other == BatchSettings(8, None, 0, scale_lr=True)  # the fanout depends on the graph


def test_a_file_can_ask_for_mini_batches(tmp_path: Path):
    file = tmp_path / "batches.toml"
    file.write_text("[source]\nname = 'karate'\n[batches]\nbatch_size = 8\nfanout = [4, 3, 2]\nworkers = 1\n")
    given = TrainFlags(config=file)
    asked = make_config(given, read_file(given)).batches
    assert asked == BatchSettings(8, (4, 3, 2), 1, scale_lr=True)
    given = TrainFlags(config=file, batch_size=16, fanout="5,5,5", workers=0, baseline="gcn")
    config = make_config(given, read_file(given))
    assert config.batches == BatchSettings(16, (5, 5, 5), 0, scale_lr=True)
    assert config.baseline is not None
    assert config.baseline.batches == BatchSettings(16, (5, 5), 0, scale_lr=True)
    file.write_text("[source]\nname = 'karate'\n[batches]\nbatch_size = 8\nfanout = 4\n")
    given = TrainFlags(config=file)
    assert make_config(given, read_file(given)).batches == BatchSettings(8, (4, 4, 4), scale_lr=True)
    file.write_text("[source]\nname = 'karate'\n[batches]\nbatch_size = 8\nfanout = 4\nscale_lr = false\n")
    assert make_config(given, read_file(given)).batches == BatchSettings(8, (4, 4, 4))
    file.write_text("[source]\nname = 'karate'\n[batches]\nfanout = 4\n")
    with pytest.raises(Node2SeqError, match="this is training on the full batch"):
        make_config(given, read_file(given))
    file.write_text("[batches]\nbatch = 4\n")
    with pytest.raises(Node2SeqError, match="batches: batch: there is no such setting"):
        read_file(given)


def test_a_baseline_on_a_store_samples_as_the_model_does(tmp_path: Path):
    flags = TrainFlags(store=tmp_path, baseline="gcn", assignments=("num_layers=4",))
    config = make_config(flags, RecipeFile())
    assert config.batches is not None
    assert config.baseline is not None
    assert config.baseline.batches is not None
    assert config.batches.fanout == (3, 3, 3, 3)
    assert config.baseline.batches.fanout == (3, 3)
    alone = make_config(replace(flags, model="mlp", assignments=()), RecipeFile())
    assert alone.batches is not None
    assert alone.batches.fanout is None

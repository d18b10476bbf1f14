from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data import NAMES, Split, make_split
from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import COLUMN_TITLES
from node2seq.nn.models import MODELS
from node2seq.recipes import RECIPES, Recipe, family_of, network_for, paper, plus, recipe_for
from node2seq.recipes.choose import TYPICAL, GraphSizes, kind_of, sizes_of, sizes_of_split
from node2seq.train.settings import complete, recipe

CASES = [
    (variant, model, data)
    for variant, by_model in RECIPES.items()
    for model, by_data in by_model.items()
    for data in by_data
]


def test_every_recipe_is_seen():
    assert list(RECIPES) == ["paper", "plus", "directed"]
    for by_model in RECIPES.values():
        assert set(by_model) <= set(MODELS)
        for by_data in by_model.values():
            assert set(by_data) - {""} <= set(NAMES)
    for by_data in RECIPES["paper"].values():
        assert "" in by_data
    assert set(COLUMN_TITLES) <= set(RECIPES["paper"]["node2seq"])
    assert set(RECIPES["directed"]["node2seq"]) <= {"chameleon", "squirrel"}


@pytest.mark.parametrize(("variant", "model", "data"), CASES)
def test_every_recipe_names_its_source_and_builds_its_model(variant: str, model: str, data: str):
    found = RECIPES[variant][model][data]
    assert found.source
    name, options = complete(network_for(model, variant), found.options, "recipe")
    assert name == ("node2seq-plus" if model == "node2seq" and variant != "paper" else model)
    assert getattr(options, "directed", False) == (variant == "directed")
    network = MODELS[name].with_options(12, 3, options).eval()
    no_edges = torch.zeros(2, 0, dtype=torch.long)
    assert network(torch.randn(4, 12), no_edges).shape == (4, 3)


def test_the_plus_network_is_a_variant_of_node2seq():
    assert recipe_for("node2seq-plus", "texas", "plus") is plus.RECIPES["node2seq"]["texas"]
    assert recipe_for("node2seq-plus", "texas") is paper.RECIPES["node2seq"]["texas"]
    assert network_for("node2seq-plus", "paper") == "node2seq-plus"
    assert network_for("gat", "plus") == "gat"


BLOCKS = {name for name in MODELS if name.startswith("residual-")}


@pytest.mark.parametrize("model", sorted({*map(family_of, MODELS)} - {*paper.RECIPES} - BLOCKS))
def test_every_other_model_takes_the_default(model: str):
    complete(model, recipe_for(model, "cora-r").options, "recipe")
    assert recipe_for(model) is paper.DEFAULT


@pytest.mark.parametrize("model", sorted(BLOCKS))
@pytest.mark.parametrize(
    ("features", "homophily", "of_the_layer"),
    [
        (6, 0.9, {"readout": "ranks"}),  # a homophily that would count if labels were few
        (5000, 0.1, {"readout": "ranks", "neighbour_max": True, "self_loops": False}),
        (5000, 0.9, {"readout": "mean", "taps": "depthwise"}),
    ],
)
def test_residual_blocks_are_trained_by_one_rule_whatever_is_inside(
    model: str, features: int, homophily: float, of_the_layer: dict[str, Any]
):
    sizes = GraphSizes(features, classes=5, labels=600, nodes=1000, homophily=homophily)
    recipe = recipe_for(model, sizes=sizes)
    complete(model, recipe.options, "recipe")
    ours = recipe_for("residual-node2seq", sizes=sizes)
    assert recipe.settings == ours.settings
    assert ours.options == {**recipe.options, **of_the_layer}
    assert recipe != recipe_for(model, sizes=replace(sizes, features=5006 - features, homophily=None))
    assert ("smoothing" in recipe.options) == (features == 5000 and homophily > 0.5)
    assert recipe.settings.patience is not None


def test_what_a_rule_looks_at_is_read_off_the_graph():
    y = torch.tensor([0, 1, 2, -1, 0, 1, 2, 2, 1, 0, 1])
    data = Data(x=torch.zeros(11, 7), y=y, edge_index=torch.zeros(2, 0, dtype=torch.int64))
    labels = make_split(y).train.numel()
    assert sizes_of(data) == GraphSizes(features=7, classes=3, labels=labels, nodes=11)
    data.train_mask, data.val_mask, data.test_mask = y == 2, y == 1, y == 0
    assert sizes_of(data).labels == 3
    assert sizes_of(None) == sizes_of(Data(x=torch.zeros(3, 7))) == TYPICAL


def _alternating(steps: int, features: int) -> Data:
    """120 nodes of two classes in turn, each with an edge to the node so many steps on."""
    everyone = torch.arange(120)
    edge_index = torch.stack([everyone, (everyone + steps) % 120])
    return Data(x=torch.zeros(120, features), y=everyone % 2, edge_index=edge_index)


def _split(train: Tensor, val: Tensor) -> Split:
    rest = torch.arange(max(int(train.max()), int(val.max())) + 1, 120)
    return Split(train, val, rest, rule="", seed=0, test_rest=rest)


@pytest.mark.parametrize("name", ["edge_weight", "edge_order"])
def test_outputs_are_not_smoothed_over_edges_that_carry_something(name: str):
    data = _alternating(2, 300)
    assert kind_of(sizes_of(data)) == "homophilous"
    data[name] = torch.rand(120)
    assert kind_of(sizes_of(data)) == "wide"
    numbers = Data(x=data.x, y=torch.rand(120), edge_index=data.edge_index)
    assert kind_of(sizes_of(numbers)) == "wide"


@pytest.mark.parametrize(("steps", "expected"), [(2, 1.0), (1, -1.0)])
def test_homophily_is_that_of_training_and_validation_nodes_alone(steps: int, expected: float):
    data = _alternating(steps, 300)
    split = _split(train=torch.arange(20), val=torch.arange(20, 80))
    assert sizes_of_split(data, split).homophily == pytest.approx(expected, abs=0.01)
    assert isinstance(data.y, Tensor)
    data.y = torch.where(torch.arange(120) < 80, data.y, 0)  # what only test nodes would tell
    assert sizes_of_split(data, split).homophily == pytest.approx(expected, abs=0.01)
    assert kind_of(sizes_of_split(data, split)) == ("few-labels" if expected > 0 else "wide")
    few = _split(train=torch.arange(8), val=torch.arange(8, 12))
    assert sizes_of_split(data, few).homophily == pytest.approx(expected, abs=0.2)
    fewer = _split(train=torch.arange(8), val=torch.arange(8, 10))
    assert sizes_of_split(data, fewer).homophily is None, "a homophily of a handful of edges"


@pytest.mark.parametrize(("features", "homophily"), [(6, 0.9), (5000, 0.1), (5000, 0.9)])
def test_a_short_training_drops_less_and_averages_nothing(features: int, homophily: float):
    sizes = GraphSizes(features, classes=5, labels=600, nodes=1000, homophily=homophily)
    usual, short = (recipe_for("residual-node2seq", sizes=replace(sizes, epochs=n)) for n in (31, 30))
    assert usual == recipe_for("residual-node2seq", sizes=sizes)
    dropped = {"dropout": 0.2, "input_dropout": short.options["input_dropout"]}
    scaled = {"conv_scale": 0.1} if features == 6 or homophily == 0.1 else {}
    assert short.options == {**usual.options, **dropped, **scaled}
    other = recipe_for("residual-gcn", sizes=replace(sizes, epochs=30))
    assert other.options == {**recipe_for("residual-gcn", sizes=sizes).options, **dropped}
    assert short.options["input_dropout"] == min(usual.options["input_dropout"], 0.2)
    assert short.settings == replace(usual.settings, lr=0.005, averaging=0.0)


@pytest.mark.parametrize(
    ("homophily", "labels", "expected"),
    [(0.8, 9_900, "homophilous"), (0.8, 10_100, "wide"), (0.5, 1_590, "homophilous"), (0.5, 1_610, "wide")],
)
def test_wide_graphs_are_smoothed_the_longer_the_more_alike_neighbours_are(
    homophily: float, labels: int, expected: str
):
    wide = GraphSizes(1000, 5, labels=labels, nodes=2 * labels, homophily=homophily)
    assert kind_of(wide) == expected
    assert kind_of(replace(wide, homophily=0.29, labels=100)) == "wide", "neighbours that differ are no help"


def test_neighbours_are_added_up_only_over_plain_edges():
    narrow = GraphSizes(20, 2, labels=600, nodes=1000)
    assert all(recipe_for(model, sizes=narrow).options["normalized_sum"] for model in BLOCKS)
    carrying = recipe_for("residual-node2seq", sizes=replace(narrow, plain_edges=False))
    assert "normalized_sum" not in carrying.options
    data = _alternating(1, 20)
    assert sizes_of(data).plain_edges
    data.edge_weight = torch.rand(120)
    assert not sizes_of(data).plain_edges


@pytest.mark.parametrize(("features", "homophily"), [(20, None), (1000, 0.0), (1000, 0.9)])
def test_many_classes_drop_less(features: int, homophily: float | None):
    sizes = GraphSizes(features, 9, labels=600, nodes=1000, homophily=homophily)
    for model in BLOCKS:
        few, many = (recipe_for(model, sizes=replace(sizes, classes=n)) for n in (9, 10))
        assert many == few.updated(dropout=0.2) != few
    several = replace(sizes, classes=10, has_classes=False)
    assert recipe_for("residual-gcn", sizes=several).options["dropout"] == 0.5
    few_labels = replace(sizes, classes=10, labels=100, nodes=10_000, homophily=0.9)
    assert kind_of(few_labels) == "few-labels"
    assert recipe_for("residual-gcn", sizes=few_labels).options["dropout"] == 0.5


def test_a_linear_part_is_for_classes_and_plain_edges():
    data = _alternating(1, 20)
    for model in BLOCKS:
        assert recipe_for(model, sizes=sizes_of(data)).options["linear_hops"] == 4
    carrying = data.clone()
    carrying.edge_order = torch.rand(120)
    numbers, several = data.clone(), data.clone()
    numbers.y, several.y = torch.rand(120), (torch.rand(120, 3) > 0.5).float()
    for other in (carrying, numbers, several):
        assert "linear_hops" not in recipe_for("residual-node2seq", sizes=sizes_of(other)).options
    assert not sizes_of(several).has_classes
    assert "linear_hops" not in recipe_for("gcn", sizes=sizes_of(data)).options


def test_few_labels_lean_on_neighbours_that_are_alike():
    few = GraphSizes(20, 2, labels=499, nodes=10_000, homophily=0.9)
    assert kind_of(few) == "few-labels"
    assert kind_of(replace(few, labels=500)) == "narrow"
    assert kind_of(replace(few, labels=500, features=300)) == "homophilous"
    assert kind_of(replace(few, nodes=2495)) == "narrow", "a fifth of all nodes is no small share"
    assert kind_of(replace(few, homophily=0.1)) == "narrow", "neighbours that differ are no help"
    assert kind_of(replace(few, homophily=None)) == "narrow", "nobody knows whether they are alike"
    assert kind_of(replace(few, homophily=None, features=300)) == "few-labels"
    split = _split(train=torch.arange(20), val=torch.arange(20, 90))
    assert kind_of(sizes_of_split(_alternating(2, 20), split)) == "few-labels"
    assert kind_of(sizes_of_split(_alternating(1, 20), split)) == "narrow"


def test_embeddings_are_no_bags_of_words():
    split = _split(train=torch.arange(60), val=torch.arange(60, 90))
    data = _alternating(1, 300)
    assert data.x is not None
    data.x[:, :149] = 1.0
    assert kind_of(sizes_of_split(data, split)) == "wide"
    data.x[:, :150] = 1.0
    assert sizes_of_split(data, split).dense
    assert kind_of(sizes_of_split(data, split)) == "narrow"


def test_a_graph_of_ones_own_takes_the_entry_for_any_graph():
    assert recipe_for("gat", None) is recipe_for("gat", "karate") is paper.RECIPES["gat"][""]
    assert recipe_for("gat", "cora-r") is paper.RECIPES["gat"]["cora-r"]


def test_other_variants_have_no_default():
    with pytest.raises(Node2SeqError, match="there is no recipe for it"):
        recipe_for("node2seq", "karate", "plus")
    with pytest.raises(Node2SeqError, match="a graph of your own"):
        recipe_for("node2seq", None, "directed")
    with pytest.raises(Node2SeqError, match="there is no such choice"):
        recipe_for("node2seq", "cora-r", "minus")


def test_a_change_finds_its_place():
    base = recipe({"hidden_channels": 8}, {"lr": 0.5})
    assert base.updated("us", row_normalize=True, lr=0.1, hidden_channels=4, hops=2) == Recipe(
        {"hidden_channels": 4, "hops": 2}, recipe({}, {"lr": 0.1}).settings, True, "us"
    )
    assert base.updated() == base


def test_none_is_back_to_the_default():
    base = recipe(
        {"hidden_channels": 8, "hops": 2}, {"lr": 0.5, "views": 4, "patience": 3}, row_normalize=True
    )
    found = base.updated(hops=None, views=None, patience=None, row_normalize=None)
    assert found == recipe({"hidden_channels": 8}, {"lr": 0.5})
    assert (base.options["hops"], base.settings.views) == (2, 4)

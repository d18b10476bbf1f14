import pytest
import torch

from node2seq.data import NAMES
from node2seq.models import MODELS
from node2seq.pretrained import complete_options
from node2seq.recipes import DEFAULT, RECIPES

CASES = [(model, data) for model, by_data in RECIPES.items() for data in by_data]


def test_every_recipe_is_seen():
    assert len(CASES) == 6 * 6
    assert set(RECIPES) <= set(MODELS)
    for by_data in RECIPES.values():
        assert "" in by_data
        assert set(by_data) - {""} <= set(NAMES)


@pytest.mark.parametrize(("model", "data"), CASES)
def test_every_recipe_builds_its_model(model: str, data: str):
    options = complete_options(model, RECIPES[model][data].options, "recipe")
    network = MODELS[model](12, out_channels=3, **options).eval()
    no_edges = torch.zeros(2, 0, dtype=torch.long)
    assert network(torch.randn(4, 12), no_edges).shape == (4, 3)


@pytest.mark.parametrize("model", sorted(set(MODELS) - set(RECIPES)))
def test_every_other_model_takes_the_default(model: str):
    complete_options(model, DEFAULT.options, "recipe")

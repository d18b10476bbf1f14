"""The spaces by name: each makes models that can be trained together."""

from __future__ import annotations

import random

import pytest

from node2seq import MODELS
from node2seq.recipes import network_for, recipe_for
from node2seq.search.space import stratified
from node2seq.search.spaces import SPACES
from node2seq.train.settings import TrainSettings, settings_of
from node2seq.train.stacking import PER_RUN

ALL = [(name, model) for name, spaces in SPACES.items() for model in spaces]


@pytest.mark.parametrize(("name", "model"), ALL)
def test_every_space_makes_models_and_trainings_of_one_program(name, model):
    space = SPACES[name][model]
    base = recipe_for(model)
    for settings in stratified(space.ranges, 12, random.Random(1)):
        recipe = base.updated(**settings)
        network = network_for(model, name)
        assert settings_of(network, recipe, settings) == settings
        MODELS[network](6, out_channels=3, **recipe.options)
    of_training = TrainSettings.__dataclass_fields__.keys() - {"views", "optimizer", "epochs", "patience"}
    assert space.free.keys() <= of_training | PER_RUN
    for shape in space.shape:
        assert shape not in PER_RUN

"""How each model is trained: one table, by variant, model and data set.

``"paper"`` is the network and the training that the paper describes; ``"plus"`` adds options that it does not
have; ``"directed"`` is for graphs that keep the direction of their edges. They are never mixed.

Chosen on validation accuracy, with seeds that no reported figure uses (100 and up). The test nodes of a
reported random split are training and validation nodes of those seeds: their labels had a part in the choice.
"""

from node2seq.recipes.choose import (
    RECIPES,
    GraphSizes,
    default_model,
    family_of,
    network_for,
    recipe_for,
)
from node2seq.train.settings import Recipe

__all__ = ["RECIPES", "GraphSizes", "Recipe", "default_model", "family_of", "network_for", "recipe_for"]

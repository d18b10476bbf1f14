"""Recipes with options that the paper does not have, by model, then by column. No logic but inheritance.

What helped Node2Seq on validation is tried on every baseline as well: a baseline without a recipe of its own
here takes that of the paper, with the training options of Node2Seq's recipe for the column.
"""

from __future__ import annotations

from node2seq.recipes import paper
from node2seq.recipes.recipe import Recipe, changed

#: What the trainer can do beyond the paper: any model can be trained with it.
TRAINING_OPTIONS = ("views", "consistency", "sharpening", "averaging", "label_smoothing")

_NODE2SEQ: dict[str, Recipe] = {}
_BASELINES: dict[str, dict[str, Recipe]] = {}


def _inherited(model: str) -> dict[str, Recipe]:
    """The model's recipes of the paper, trained as Node2Seq's recipes of this file are."""
    return {
        column: changed(
            paper.RECIPES[model][column],
            f"{paper.RECIPES[model][column].source}; training options of Node2Seq's recipe",
            **{name: getattr(own.settings, name) for name in TRAINING_OPTIONS},
        )
        for column, own in _NODE2SEQ.items()
        if column in paper.RECIPES.get(model, {})
    }


RECIPES: dict[str, dict[str, Recipe]] = {
    "node2seq": _NODE2SEQ,
    **{
        model: {**_inherited(model), **_BASELINES.get(model, {})}
        for model in ("gcn", "gat", "cheby", "sgc", "lgcn", "mlp")
    },
}

"""How each model is trained: one table, by variant, model and data set.

``"paper"`` is the network and the training that the paper describes; ``"plus"`` adds options that it does not
have; ``"directed"`` is for graphs that keep the direction of their edges. They are never mixed.

Chosen on validation accuracy, with seeds that no reported figure uses (100 and up). The test nodes of a
reported random split are training and validation nodes of those seeds: their labels had a part in the choice.
"""

from __future__ import annotations

from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS, Network
from node2seq.nn.models.residual import ResidualNetwork
from node2seq.options import check_choice
from node2seq.recipes import directed, paper, plus
from node2seq.recipes.any_graph import TYPICAL, GraphSizes, recipe_by_rule
from node2seq.train.settings import Recipe

#: By variant, then by model, then by data set; "" stands for every other graph.
RECIPES: dict[str, dict[str, dict[str, Recipe]]] = {
    "paper": paper.RECIPES,
    "plus": plus.RECIPES,
    "directed": directed.RECIPES,
}


def family_of(model: str) -> str:
    """The name that recipes, spaces and tables have for a model: Node2SeqPlus is a variant of Node2Seq."""
    return "node2seq" if model == "node2seq-plus" else model


def default_model(name: str | None) -> str:
    """The model for the data set ``name``, which has a recipe of the paper's, or for one's own graph."""
    return "residual-node2seq" if name is None else "node2seq"


def network_for(model: str, variant: str) -> str:
    """The network that a variant of a model trains: of Node2Seq, only the paper's has no more options."""
    return "node2seq-plus" if model == "node2seq" and variant != "paper" else model


def recipe_for(
    model: str, name: str | None = None, variant: str = "paper", sizes: GraphSizes = TYPICAL
) -> Recipe:
    """The settings of a model for the data set ``name``, or those for any graph.

    A model that the paper variant has no entry for takes the default; the other variants were searched for
    set by set, so there is no default to take. Networks of residual blocks are trained by rule.

    Args:
        model: A key of ``node2seq.nn.models.MODELS``.
        name: The data set; None: a graph of one's own.
        variant: A key of :data:`RECIPES`.
        sizes: What the rule for residual blocks looks at.
    """
    check_choice("variant", variant, RECIPES)
    model = family_of(model)
    if issubclass(MODELS.get(model, Network), ResidualNetwork):
        return recipe_by_rule(sizes)
    by_data = RECIPES[variant].get(model, {"": paper.DEFAULT} if variant == "paper" else {})
    found = by_data.get(name or "", by_data.get(""))
    if found is None:
        known = [f"{name} ({model})" for model, names in RECIPES[variant].items() for name in names]
        raise Node2SeqError(
            f"the variant {variant!r} of {model} on {name or 'a graph of your own'}",
            "there is no recipe for it",
            f"Choose from {', '.join(known)}" if known else "Leave the variant out, and set options by hand",
        )
    return found


__all__ = ["RECIPES", "GraphSizes", "Recipe", "default_model", "family_of", "network_for", "recipe_for"]

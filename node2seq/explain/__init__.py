"""Why a model predicts what it predicts: the order of the neighbours, and what each of them adds."""

from node2seq.explain.contributions import Contributions, contributions
from node2seq.explain.explainer import Explainer, explain
from node2seq.explain.explanation import Counterfactual, Explanation, Layer, Neighbour
from node2seq.nn.conv.ranks import recorded

__all__ = [
    "Contributions",
    "Counterfactual",
    "Explainer",
    "Explanation",
    "Layer",
    "Neighbour",
    "contributions",
    "explain",
    "recorded",
]

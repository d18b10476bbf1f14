"""Recipes with options that the paper does not have, by model, then by column. No logic but inheritance.

What helped Node2Seq on validation is tried on every baseline as well: a baseline without a recipe of its own
here takes that of the paper, with the training options of Node2Seq's recipe for the column.
"""

from __future__ import annotations

from node2seq.recipes import paper
from node2seq.recipes.recipe import Recipe, changed, recipe

#: What the trainer can do beyond the paper: any model can be trained with it.
TRAINING_OPTIONS = ("views", "consistency", "sharpening", "averaging", "label_smoothing")

_NODE2SEQ: dict[str, Recipe] = {
    "cora-f": recipe(
        {
            "position": 1,
            "kernel_size": 10,
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.205,
            "input_dropout": 0.296,
            "dropout": 0.775,
            "node_dropout": 0.264,
            "smoothing": 4,
            "teleport": 0.2,
            "hidden_channels": 32,
        },
        {
            "epochs": 250,
            "lr": 0.0255,
            "weight_decay": 0.000661,
            "conv_weight_decay": 0.0203,
            "patience": 80,
            "views": 2,
            "consistency": 0.897,
            "sharpening": 0.279,
            "label_smoothing": 0.0305,
        },
        row_normalize=True,
    ),
    "cora-r": recipe(
        {
            "position": 1,
            "kernel_size": 10,
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.151,
            "input_dropout": 0.0716,
            "dropout": 0.104,
            "node_dropout": 0.235,
            "smoothing": 4,
            "teleport": 0.2,
            "hidden_channels": 32,
        },
        {
            "epochs": 250,
            "lr": 0.0146,
            "weight_decay": 0.00127,
            "conv_weight_decay": 0.000314,
            "patience": 80,
            "views": 2,
            "consistency": 1.55,
            "sharpening": 0.852,
            "label_smoothing": 0.306,
        },
        row_normalize=True,
    ),
    "citeseer-f": recipe(
        {
            "position": 1,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.977,
            "input_dropout": 0.228,
            "dropout": 0.538,
            "node_dropout": 0.697,
            "hidden_channels": 32,
        },
        {
            "epochs": 250,
            "lr": 0.0676,
            "weight_decay": 3.71e-05,
            "conv_weight_decay": 0.00405,
            "patience": 80,
            "views": 2,
            "consistency": 0.826,
            "sharpening": 0.379,
            "averaging": 0.98,
        },
        row_normalize=True,
    ),
    "citeseer-r": recipe(
        {
            "position": 1,
            "kernel_size": 3,
            "hops": 1,
            "taps": "depthwise",
            "conv_scale": 0.199,
            "skip": "concat",
            "input_dropout": 0.316,
            "dropout": 0.932,
            "node_dropout": 0.782,
            "smoothing": 4,
            "hidden_channels": 64,
        },
        {
            "epochs": 250,
            "lr": 0.0161,
            "weight_decay": 0.002,
            "conv_weight_decay": 0.000152,
            "patience": 80,
            "views": 2,
            "consistency": 0.605,
            "sharpening": 0.265,
            "averaging": 0.98,
            "label_smoothing": 0.244,
        },
        row_normalize=True,
    ),
    "amazon-r": recipe(
        {
            "position": 1,
            "kernel_size": 3,
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.0789,
            "skip": "concat",
            "input_dropout": 0.155,
            "dropout": 0.344,
            "node_dropout": 0.745,
            "smoothing": 10,
            "teleport": 0.2,
            "hidden_channels": 64,
        },
        {
            "epochs": 250,
            "lr": 0.0816,
            "weight_decay": 0.000172,
            "conv_weight_decay": 5.32e-05,
            "patience": 80,
            "views": 2,
            "consistency": 0.353,
            "sharpening": 0.514,
            "averaging": 0.95,
        },
        row_normalize=True,
    ),
    "chameleon": recipe(
        {
            "position": 3,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "conv_scale": 0.237,
            "input_dropout": 0.561,
            "dropout": 0.232,
            "hidden_channels": 64,
        },
        {
            "epochs": 500,
            "lr": 0.0204,
            "weight_decay": 0.000656,
            "conv_weight_decay": 0.0,
            "patience": 150,
            "averaging": 0.9,
        },
    ),
    "squirrel": recipe(
        {
            "position": 1,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "conv_scale": 0.18,
            "input_dropout": 0.495,
            "dropout": 0.185,
            "norm": "layer",
            "hidden_channels": 64,
        },
        {
            "epochs": 400,
            "lr": 0.0133,
            "weight_decay": 4.19e-05,
            "conv_weight_decay": 3.29e-05,
            "patience": 150,
        },
    ),
    "actor": recipe(
        {"position": 2, "kernel_size": 3, "hops": 1, "own": "apart", "hidden_channels": 32},
        {"epochs": 200, "lr": 0.01, "weight_decay": 0.0005, "patience": 100},
    ),
    "cornell": recipe(
        {
            "position": 2,
            "kernel_size": 5,
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.0479,
            "skip": "concat",
            "input_dropout": 0.313,
            "dropout": 0.197,
            "node_dropout": 0.229,
            "own": "apart",
            "hidden_channels": 32,
        },
        {
            "epochs": 200,
            "lr": 0.0536,
            "weight_decay": 0.00761,
            "conv_weight_decay": 1.58e-05,
            "patience": 100,
        },
    ),
    "texas": recipe(
        {
            "position": 2,
            "kernel_size": 5,
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.0479,
            "skip": "concat",
            "input_dropout": 0.313,
            "dropout": 0.197,
            "node_dropout": 0.229,
            "own": "apart",
            "hidden_channels": 32,
        },
        {
            "epochs": 200,
            "lr": 0.0536,
            "weight_decay": 0.00761,
            "conv_weight_decay": 1.58e-05,
            "patience": 100,
        },
    ),
    "wisconsin": recipe(
        {
            "position": 2,
            "kernel_size": 5,
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.0479,
            "skip": "concat",
            "input_dropout": 0.313,
            "dropout": 0.197,
            "node_dropout": 0.229,
            "own": "apart",
            "hidden_channels": 32,
        },
        {
            "epochs": 200,
            "lr": 0.0536,
            "weight_decay": 0.00761,
            "conv_weight_decay": 1.58e-05,
            "patience": 100,
        },
    ),
}
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

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
            "conv_scale": 0.612,
            "input_dropout": 0.0771,
            "dropout": 0.189,
            "node_dropout": 0.029,
            "smoothing": 4,
            "teleport": 0.2,
            "hidden_channels": 64,
        },
        {
            "epochs": 250,
            "lr": 0.0164,
            "weight_decay": 0.0143,
            "conv_weight_decay": 0.00281,
            "patience": 80,
            "views": 2,
            "consistency": 0.809,
            "sharpening": 0.739,
            "averaging": 0.99,
            "label_smoothing": 0.271,
        },
        row_normalize=True,
    ),
    "citeseer-r": recipe(
        {
            "position": 1,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.504,
            "input_dropout": 0.152,
            "dropout": 0.577,
            "node_dropout": 0.639,
            "hidden_channels": 64,
        },
        {
            "epochs": 250,
            "lr": 0.00414,
            "weight_decay": 0.000184,
            "conv_weight_decay": 0.00376,
            "patience": 80,
            "views": 2,
            "consistency": 0.653,
            "sharpening": 0.52,
            "label_smoothing": 0.278,
        },
        row_normalize=True,
    ),
    "amazon-r": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "hops": 1,
            "taps": "depthwise",
            "conv_scale": 0.0235,
            "skip": "concat",
            "input_dropout": 0.585,
            "dropout": 0.426,
            "node_dropout": 0.2,
            "hidden_channels": 64,
        },
        {
            "epochs": 250,
            "lr": 0.00641,
            "weight_decay": 2.76e-05,
            "conv_weight_decay": 0.000255,
            "patience": 100,
            "label_smoothing": 0.1,
        },
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
            "position": 3,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "conv_scale": 0.0383,
            "input_dropout": 0.444,
            "dropout": 0.289,
            "hidden_channels": 64,
        },
        {
            "epochs": 500,
            "lr": 0.00618,
            "weight_decay": 5.44e-05,
            "conv_weight_decay": 1.42e-05,
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

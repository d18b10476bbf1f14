"""Recipes with options that the paper does not have, by model, then by column. No logic but inheritance.

What helped Node2Seq on validation is tried on every baseline as well: a baseline without a recipe of its own
here takes that of the paper, with the training options of Node2Seq's recipe for the column.
"""

from __future__ import annotations

from node2seq.recipes import paper
from node2seq.train.settings import Recipe, recipe

#: What the trainer can do beyond the paper: any model can be trained with it.
TRAINING_OPTIONS = ("views", "consistency", "sharpening", "averaging", "label_smoothing")

_NODE2SEQ: dict[str, Recipe] = {
    "cora-f": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.3,
            "input_dropout": 0.4,
            "dropout": 0.8,
            "node_dropout": 0.5,
            "smoothing": 8,
            "teleport": 0.2,
            "hidden_channels": 64,
        },
        {
            "epochs": 400,
            "lr": 0.04,
            "weight_decay": 0.0005,
            "conv_weight_decay": 0.45,
            "patience": 100,
            "views": 2,
            "consistency": 1.0,
        },
        row_normalize=True,
    ),
    "cora-r": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.3,
            "input_dropout": 0.8,
            "node_dropout": 0.5,
            "smoothing": 4,
            "teleport": 0.2,
            "hidden_channels": 64,
        },
        {
            "epochs": 400,
            "lr": 0.01,
            "weight_decay": 0.0005,
            "conv_weight_decay": 0.45,
            "patience": 100,
            "views": 2,
            "consistency": 1.0,
            "label_smoothing": 0.1,
        },
        row_normalize=True,
    ),
    "citeseer-f": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.3,
            "input_dropout": 0.4,
            "hidden_channels": 64,
        },
        {
            "epochs": 300,
            "lr": 0.04,
            "weight_decay": 0.0006,
            "conv_weight_decay": 0.4,
            "patience": 80,
            "views": 2,
            "consistency": 0.8,
            "sharpening": 0.3,
            "label_smoothing": 0.1,
        },
        row_normalize=True,
    ),
    "citeseer-r": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.3,
            "input_dropout": 0.4,
            "dropout": 0.2,
            "node_dropout": 0.5,
            "smoothing": 2,
            "hidden_channels": 64,
        },
        {
            "epochs": 300,
            "lr": 0.04,
            "weight_decay": 0.0006,
            "conv_weight_decay": 1.0,
            "patience": 80,
            "views": 2,
            "consistency": 0.4,
            "sharpening": 0.3,
            "averaging": 0.98,
            "label_smoothing": 0.3,
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
            "position": 3,
            "kernel_size": 3,
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.473,
            "input_dropout": 0.0526,
            "dropout": 0.402,
            "norm": "layer",
            "own": "apart",
            "self_loops": False,
            "hidden_channels": 128,
        },
        {"epochs": 200, "lr": 0.00385, "weight_decay": 0.02, "conv_weight_decay": 0.32, "patience": 100},
    ),
    "texas": recipe(
        {
            "position": 3,
            "kernel_size": 3,
            "hops": 1,
            "taps": "scalar",
            "conv_scale": 0.0315,
            "input_dropout": 0.182,
            "dropout": 0.196,
            "node_dropout": 0.287,
            "norm": "layer",
            "own": "apart",
            "self_loops": False,
            "hidden_channels": 128,
        },
        {
            "epochs": 200,
            "lr": 0.0262,
            "weight_decay": 0.00275,
            "conv_weight_decay": 0.000155,
            "patience": 100,
            "averaging": 0.98,
        },
    ),
    "wisconsin": recipe(
        {
            "position": 3,
            "kernel_size": 3,
            "hops": 1,
            "conv_scale": 0.579,
            "skip": "concat",
            "activation": "elu",
            "input_dropout": 0.0323,
            "dropout": 0.445,
            "node_dropout": 0.0655,
            "norm": "layer",
            "own": "apart",
            "self_loops": False,
            "hidden_channels": 64,
        },
        {
            "epochs": 200,
            "lr": 0.0101,
            "weight_decay": 0.00758,
            "conv_weight_decay": 0.00882,
            "patience": 100,
            "averaging": 0.99,
            "label_smoothing": 0.0236,
        },
    ),
}
_BASELINES: dict[str, dict[str, Recipe]] = {
    "mlp": {
        "actor": recipe(
            {"input_dropout": 0.233, "hidden_channels": 64},
            {"epochs": 200, "lr": 0.01, "weight_decay": 0.0005, "patience": 40, "averaging": 0.9},
            row_normalize=True,
        ),
        "cornell": recipe(
            {"input_dropout": 0.421, "dropout": 0.399, "hidden_channels": 64},
            {
                "epochs": 200,
                "lr": 0.00618,
                "weight_decay": 0.00177,
                "patience": 100,
                "averaging": 0.98,
                "label_smoothing": 0.111,
            },
        ),
        "texas": recipe(
            {"input_dropout": 0.572, "dropout": 0.424, "hidden_channels": 64},
            {
                "epochs": 200,
                "lr": 0.00618,
                "weight_decay": 0.00038,
                "patience": 100,
                "averaging": 0.9,
                "label_smoothing": 0.111,
            },
        ),
        "wisconsin": recipe(
            {"input_dropout": 0.22, "dropout": 0.116, "hidden_channels": 128},
            {"epochs": 200, "lr": 0.01, "weight_decay": 4.97e-05, "patience": 100},
            row_normalize=True,
        ),
    }
}


def _inherited(model: str) -> dict[str, Recipe]:
    """The model's recipes of the paper, trained as Node2Seq's recipes of this file are."""
    return {
        column: paper.RECIPES[model][column].updated(
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

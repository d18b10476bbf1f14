"""Recipes for graphs whose edges keep their direction, by model, then by column. No logic."""

from __future__ import annotations

from node2seq.recipes.recipe import Recipe, recipe

_NODE2SEQ: dict[str, Recipe] = {
    "chameleon": recipe(
        {
            "position": 3,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "conv_scale": 0.153,
            "input_dropout": 0.487,
            "dropout": 0.809,
            "norm": "layer",
            "directed": True,
            "hidden_channels": 64,
        },
        {
            "epochs": 500,
            "lr": 0.0449,
            "weight_decay": 2.04e-05,
            "conv_weight_decay": 0.000557,
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
            "conv_scale": 0.241,
            "input_dropout": 0.753,
            "dropout": 0.481,
            "norm": "layer",
            "own": "apart",
            "directed": True,
            "hidden_channels": 64,
        },
        {
            "epochs": 500,
            "lr": 0.00434,
            "weight_decay": 0.000185,
            "conv_weight_decay": 0.000293,
            "patience": 150,
            "averaging": 0.9,
        },
    ),
}

RECIPES: dict[str, dict[str, Recipe]] = {"node2seq": _NODE2SEQ}

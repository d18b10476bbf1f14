"""Recipes for graphs whose edges keep their direction, by model, then by column. No logic."""

from __future__ import annotations

from node2seq.train.settings import Recipe, recipe

_NODE2SEQ: dict[str, Recipe] = {
    "chameleon": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "hops": 1,
            "conv_scale": 0.3,
            "input_dropout": 0.0,
            "dropout": 0.0,
            "directed": True,
            "targets_share": 1.0,
            "self_loops": False,
            "hidden_channels": 64,
        },
        {"epochs": 300, "lr": 0.02, "weight_decay": 0.0001, "patience": 80},
    ),
    "squirrel": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 1,
            "conv_scale": 0.3,
            "input_dropout": 0.0,
            "dropout": 0.0,
            "directed": True,
            "targets_share": 1.0,
            "self_loops": False,
            "hidden_channels": 64,
        },
        {"epochs": 300, "lr": 0.02, "weight_decay": 0.0001, "patience": 80},
    ),
}

RECIPES: dict[str, dict[str, Recipe]] = {"node2seq": _NODE2SEQ}

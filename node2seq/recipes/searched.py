"""The baselines on the citation and WebKB graphs, chosen as Node2Seq's recipes are. No logic."""

from __future__ import annotations

from node2seq.train.settings import Recipe, recipe

#: By model, then by column.
SEARCHED: dict[str, dict[str, Recipe]] = {
    "gcn": {
        "cora-f": recipe(
            {"input_dropout": 0.914, "dropout": 0.0913, "hidden_channels": 128},
            {"epochs": 300, "lr": 0.005, "weight_decay": 0.000147, "patience": 80},
            row_normalize=True,
        ),
        "cora-r": recipe(
            {"input_dropout": 0.886, "dropout": 0.531, "hidden_channels": 128},
            {"epochs": 400, "lr": 0.00903, "weight_decay": 0.000297, "patience": 100},
            row_normalize=True,
        ),
        "citeseer-f": recipe(
            {"input_dropout": 0.0, "dropout": 0.154, "hidden_channels": 128},
            {"epochs": 300, "lr": 0.0271, "weight_decay": 0.002, "patience": 80},
            row_normalize=True,
        ),
        "citeseer-r": recipe(
            {"input_dropout": 0.681, "dropout": 0.949, "hidden_channels": 128},
            {"epochs": 400, "lr": 0.00217, "weight_decay": 0.000736, "patience": 100},
            row_normalize=True,
        ),
        "cornell": recipe(
            {"input_dropout": 0.0737, "dropout": 0.106, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.0412, "weight_decay": 0.000147, "patience": 100},
            row_normalize=True,
        ),
        "texas": recipe(
            {"input_dropout": 0.6, "dropout": 0.0581, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.071, "weight_decay": 0.00144, "patience": 100},
            row_normalize=True,
        ),
        "wisconsin": recipe(
            {"input_dropout": 0.531, "dropout": 0.17, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.0108, "weight_decay": 0.000364, "patience": 100},
            row_normalize=True,
        ),
    },
    "gat": {
        "cora-f": recipe(
            {"input_dropout": 0.549, "dropout": 0.761, "attention_dropout": 0.617, "hidden_channels": 8},
            {"epochs": 300, "lr": 0.00629, "weight_decay": 5.55e-05, "patience": 80},
            row_normalize=True,
        ),
        "cora-r": recipe(
            {"input_dropout": 0.72, "dropout": 0.89, "attention_dropout": 0.558, "hidden_channels": 8},
            {"epochs": 300, "lr": 0.0418, "weight_decay": 1.68e-05, "patience": 80},
            row_normalize=True,
        ),
        "citeseer-f": recipe(
            {"input_dropout": 0.452, "dropout": 0.938, "attention_dropout": 0.0087, "hidden_channels": 8},
            {"epochs": 300, "lr": 0.00849, "weight_decay": 0.000689, "patience": 80},
            row_normalize=True,
        ),
        "citeseer-r": recipe(
            {"input_dropout": 0.504, "dropout": 0.0, "attention_dropout": 0.714, "hidden_channels": 8},
            {"epochs": 300, "lr": 0.0038, "weight_decay": 0.00289, "patience": 80},
            row_normalize=True,
        ),
        "cornell": recipe(
            {"input_dropout": 0.627, "dropout": 0.202, "attention_dropout": 0.513, "hidden_channels": 8},
            {"epochs": 300, "lr": 0.0724, "weight_decay": 0.0124, "patience": 100},
        ),
    },
    "cheby": {
        "cora-f": recipe(
            {"K": 2, "input_dropout": 0.591, "dropout": 0.938, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.0089, "weight_decay": 0.000689, "patience": 80},
            row_normalize=True,
        ),
        "cora-r": recipe(
            {"K": 2, "input_dropout": 0.452, "dropout": 0.95, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.00969, "weight_decay": 0.000689, "patience": 80},
            row_normalize=True,
        ),
        "citeseer-r": recipe(
            {"K": 2, "input_dropout": 0.452, "dropout": 0.938, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.0089, "weight_decay": 0.0026, "patience": 80},
            row_normalize=True,
        ),
    },
    "sgc": {
        "cora-f": recipe(
            {"K": 3, "input_dropout": 0.607, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.406, "weight_decay": 2.78e-05, "patience": 80},
            row_normalize=True,
        ),
        "cora-r": recipe(
            {"K": 3, "input_dropout": 0.8, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.355, "weight_decay": 1.68e-05, "patience": 80},
            row_normalize=True,
        ),
        "citeseer-r": recipe(
            {"K": 3, "input_dropout": 0.0113, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.5, "weight_decay": 0.01, "patience": 80},
            row_normalize=True,
        ),
        "cornell": recipe(
            {"input_dropout": 0.155, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.0136, "weight_decay": 0.0176, "patience": 100},
        ),
        "texas": recipe(
            {"input_dropout": 0.0185, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.372, "weight_decay": 0.000577, "patience": 100},
        ),
        "wisconsin": recipe(
            {"input_dropout": 0.645, "hidden_channels": 64},
            {"epochs": 300, "lr": 0.248, "weight_decay": 0.02, "patience": 100},
        ),
    },
    "lgcn": {
        "cora-f": recipe(
            {"input_dropout": 0.452, "dropout": 0.95, "hidden_channels": 32},
            {"epochs": 300, "lr": 0.03, "weight_decay": 0.000689, "patience": 80, "optimizer": "nadam"},
            row_normalize=True,
        ),
        "cora-r": recipe(
            {"dropout": 0.95, "hidden_channels": 32},
            {"epochs": 300, "lr": 0.0598, "weight_decay": 0.0005, "patience": 80, "optimizer": "nadam"},
            row_normalize=True,
        ),
        "citeseer-r": recipe(
            {"num_lgcl": 1, "input_dropout": 0.452, "dropout": 0.938, "hidden_channels": 32},
            {"epochs": 300, "lr": 0.0252, "weight_decay": 0.0023, "patience": 80, "optimizer": "nadam"},
            row_normalize=True,
        ),
    },
    "gcn*": {
        "cora-f": recipe(
            {
                "skip": "concat",
                "activation": "elu",
                "input_dropout": 0.95,
                "dropout": 0.384,
                "hidden_channels": 64,
            },
            {"epochs": 300, "lr": 0.0084, "weight_decay": 0.000959, "patience": 80},
            row_normalize=True,
        ),
        "cora-r": recipe(
            {
                "skip": "concat",
                "activation": "none",
                "input_dropout": 0.95,
                "dropout": 0.902,
                "hidden_channels": 64,
            },
            {"epochs": 300, "lr": 0.0139, "weight_decay": 3.64e-05, "patience": 80},
            row_normalize=True,
        ),
        "citeseer-f": recipe(
            {"skip": "concat", "input_dropout": 0.666, "dropout": 0.803, "hidden_channels": 16},
            {"epochs": 200, "lr": 0.0536, "weight_decay": 4.86e-05, "patience": 100},
            row_normalize=True,
        ),
        "citeseer-r": recipe(
            {
                "skip": "concat",
                "activation": "none",
                "input_dropout": 0.173,
                "dropout": 0.162,
                "hidden_channels": 64,
            },
            {"epochs": 300, "lr": 0.012, "weight_decay": 0.00237, "patience": 80},
            row_normalize=True,
        ),
    },
}

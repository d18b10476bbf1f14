"""Recipes for the tables of the paper, by model, then by column, and for any other graph. No logic.

Whatever the sources leave open was chosen on validation accuracy, with seeds from 100 up, which no reported
figure uses.
"""

from __future__ import annotations

from node2seq.recipes.searched import SEARCHED
from node2seq.train.settings import OURS, Recipe, recipe

_WIKIPEDIA = ("chameleon", "squirrel")
_USUAL = "a usual choice for graphs of this size"
_AS_CITATION = "as on the other citation graphs"

#: For any graph and a model that has no entry of its own.
DEFAULT = recipe({"hidden_channels": 64}, {"epochs": 300}, source=_USUAL)

_GCN_CITATION = recipe(
    {"hidden_channels": 16, "input_dropout": 0.5, "dropout": 0.5},
    {"epochs": 200, "lr": 0.01, "weight_decay": 5e-4},
    row_normalize=True,
    source="the GCN paper's public code",
)
_GCN_WIKIPEDIA = recipe(
    {"hidden_channels": 64, "input_dropout": 0.0, "dropout": 0.1},
    {"epochs": 1500, "lr": 0.03, "weight_decay": 0.0},
)
_GCN_SMALL = recipe(
    {"hidden_channels": 32, "input_dropout": 0.5, "dropout": 0.5},
    {"epochs": 300, "lr": 0.01, "weight_decay": 5e-4},
)

_GAT_CITATION = recipe(
    {
        "hidden_channels": 8,
        "heads": 8,
        "out_heads": 1,
        "input_dropout": 0.6,
        "dropout": 0.6,
        "attention_dropout": 0.6,
    },
    {"epochs": 1000, "lr": 0.005, "weight_decay": 5e-4, "patience": 100},
    row_normalize=True,
    source="the GAT paper's public code",
)
_GAT_WIKIPEDIA = _GAT_CITATION.updated(
    OURS,
    row_normalize=False,
    input_dropout=0.0,
    dropout=0.2,
    attention_dropout=0.0,
    weight_decay=0.0,
    lr=0.01,
    patience=None,
)
_GAT_SMALL = _GAT_CITATION.updated(OURS, row_normalize=False, epochs=300, patience=None)

_CHEBY_CITATION = _GCN_CITATION.updated("the GCN paper's public code, K = 3", K=3)

_SGC_CORA = recipe(
    {"hidden_channels": 0, "K": 3},
    {"epochs": 200, "lr": 0.1, "weight_decay": 5e-4},
    row_normalize=True,
    source="the SGC paper's public code, K and weight decay for Cora",
)
_SGC_CITESEER = _SGC_CORA.updated(
    "the SGC paper's public code, K and weight decay for Citeseer", K=2, weight_decay=5e-3
)
_SGC_OTHER = _SGC_CORA.updated(OURS, row_normalize=False, K=2, lr=0.2, epochs=300)

_LGCN_CITATION = recipe(
    {"hidden_channels": 32, "num_lgcl": 1, "input_dropout": 0.84, "dropout": 0.84},
    {"epochs": 1000, "lr": 0.03, "weight_decay": 5e-4, "patience": 150, "optimizer": "nadam"},
    row_normalize=True,
    source=f"the LGCN paper's public code; num_lgcl and lr (0.1 there) {OURS}",
)

_GIVEN_AWAY = f"{OURS}; kernel size and non-local selection as the paper's Tables 4 and 6 give them away"
_NODE2SEQ: dict[str, Recipe] = {
    "cora-f": recipe(
        {
            "position": 2,
            "kernel_size": 10,
            "readout": "mean",
            "hops": 2,
            "conv_scale": 0.4,
            "input_dropout": 0.8,
            "dropout": 0.4,
            "hidden_channels": 64,
        },
        {"epochs": 300, "lr": 0.02, "weight_decay": 0.0004, "conv_weight_decay": 0.1, "patience": 100},
        row_normalize=True,
        source=_GIVEN_AWAY,
    ),
    "cora-r": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "hops": 1,
            "conv_scale": 0.8,
            "activation": "none",
            "input_dropout": 0.95,
            "dropout": 0.88,
            "hidden_channels": 48,
        },
        {"epochs": 1000, "lr": 0.014, "weight_decay": 0.0006, "conv_weight_decay": 0.2, "patience": 200},
        row_normalize=True,
    ),
    "citeseer-f": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 2,
            "threshold": 0.03,
            "conv_scale": 0.05,
            "input_dropout": 0.0,
            "dropout": 0.95,
            "hidden_channels": 64,
        },
        {"epochs": 400, "lr": 0.01, "weight_decay": 0.0012, "conv_weight_decay": 0.3, "patience": 100},
        row_normalize=True,
        source=_GIVEN_AWAY,
    ),
    "citeseer-r": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "hops": 2,
            "threshold": 0.15,
            "conv_scale": 0.03,
            "activation": "none",
            "input_dropout": 0.4,
            "dropout": 0.9,
            "hidden_channels": 24,
        },
        {"epochs": 1000, "lr": 0.01, "weight_decay": 0.0025, "conv_weight_decay": 0.6, "patience": 200},
        row_normalize=True,
        source=_GIVEN_AWAY,
    ),
    "amazon-r": recipe(
        {
            "position": 2,
            "kernel_size": 3,
            "hops": 1,
            "conv_scale": 0.0235,
            "skip": "concat",
            "input_dropout": 0.585,
            "dropout": 0.426,
            "hidden_channels": 64,
        },
        {
            "epochs": 250,
            "lr": 0.00641,
            "weight_decay": 2.76e-05,
            "conv_weight_decay": 0.000255,
            "patience": 100,
        },
        source=_GIVEN_AWAY,
    ),
    "chameleon": recipe(
        {
            "position": 3,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 2,
            "threshold": 0.191,
            "conv_scale": 0.0131,
            "input_dropout": 0.379,
            "dropout": 0.289,
            "hidden_channels": 64,
        },
        {
            "epochs": 500,
            "lr": 0.00618,
            "weight_decay": 5.44e-05,
            "conv_weight_decay": 0.000338,
            "patience": 200,
        },
        source=_GIVEN_AWAY,
    ),
    "squirrel": recipe(
        {
            "position": 3,
            "kernel_size": 3,
            "readout": "mean",
            "hops": 2,
            "conv_scale": 0.0131,
            "input_dropout": 0.379,
            "dropout": 0.289,
            "hidden_channels": 64,
        },
        {
            "epochs": 500,
            "lr": 0.00618,
            "weight_decay": 5.44e-05,
            "conv_weight_decay": 0.000338,
            "patience": 200,
        },
        source=_GIVEN_AWAY,
    ),
    "actor": recipe(
        {
            "position": 3,
            "kernel_size": 5,
            "hops": 1,
            "root": "input",
            "conv_scale": 0.0223,
            "skip": "concat",
            "input_dropout": 0.222,
            "dropout": 0.0334,
            "hidden_channels": 64,
        },
        {
            "epochs": 200,
            "lr": 0.00329,
            "weight_decay": 0.000147,
            "conv_weight_decay": 0.00849,
            "patience": 100,
        },
        row_normalize=True,
        source=_GIVEN_AWAY,
    ),
    "cornell": recipe(
        {
            "position": 2,
            "kernel_size": 10,
            "readout": "mean",
            "hops": 2,
            "threshold": 0.178,
            "root": "input",
            "conv_scale": 0.62,
            "input_dropout": 0.256,
            "dropout": 0.0329,
            "hidden_channels": 64,
        },
        {"epochs": 200, "lr": 0.00832, "weight_decay": 4.04e-05, "conv_weight_decay": 0.131, "patience": 100},
        row_normalize=True,
        source=_GIVEN_AWAY,
    ),
    "texas": recipe(
        {
            "position": 1,
            "kernel_size": 3,
            "hops": 2,
            "threshold": -0.137,
            "conv_scale": 0.615,
            "activation": "elu",
            "input_dropout": 0.696,
            "dropout": 0.0293,
            "hidden_channels": 16,
        },
        {"epochs": 200, "lr": 0.0644, "weight_decay": 0.0, "conv_weight_decay": 0.000159, "patience": 100},
        row_normalize=True,
        source=_GIVEN_AWAY,
    ),
    "wisconsin": recipe(
        {
            "position": 1,
            "kernel_size": 3,
            "hops": 1,
            "conv_scale": 0.0232,
            "activation": "elu",
            "input_dropout": 0.936,
            "dropout": 0.0,
            "hidden_channels": 16,
        },
        {"epochs": 150, "lr": 0.1, "weight_decay": 0.000394, "conv_weight_decay": 0.000895, "patience": 80},
        row_normalize=True,
        source=_GIVEN_AWAY,
    ),
}

#: By model, then by data set; "" stands for every other graph.
RECIPES: dict[str, dict[str, Recipe]] = {
    "gcn": {
        "": DEFAULT,
        **SEARCHED["gcn"],
        "pubmed": _GCN_CITATION,
        "amazon-r": _GCN_SMALL.updated(hidden_channels=64, epochs=400),
        **dict.fromkeys(_WIKIPEDIA, _GCN_WIKIPEDIA),
        "actor": _GCN_SMALL.updated(hidden_channels=64, input_dropout=0.8, dropout=0.8),
    },
    "gat": {
        "": _GAT_CITATION.updated(row_normalize=False),
        **SEARCHED["gat"],
        "pubmed": _GAT_CITATION.updated(_AS_CITATION),
        "amazon-r": _GAT_CITATION.updated(OURS, row_normalize=False, epochs=500, patience=None),
        "chameleon": _GAT_WIKIPEDIA.updated(hidden_channels=16, dropout=0.4),
        "squirrel": _GAT_WIKIPEDIA,
        "actor": _GAT_SMALL.updated(input_dropout=0.3, dropout=0.3, attention_dropout=0.3),
        **dict.fromkeys(
            ("texas", "wisconsin"),
            _GAT_SMALL.updated(
                row_normalize=True,
                lr=0.05,
                input_dropout=0.3,
                dropout=0.3,
                attention_dropout=0.3,
            ),
        ),
    },
    "cheby": {
        "": DEFAULT,
        **SEARCHED["cheby"],
        "citeseer-f": _CHEBY_CITATION.updated("the GCN paper's public code, K = 2", K=2),
        "pubmed": _CHEBY_CITATION.updated(_AS_CITATION),
        "amazon-r": _CHEBY_CITATION.updated(OURS, row_normalize=False, hidden_channels=64, epochs=400, K=2),
    },
    "sgc": {
        "": _SGC_CORA.updated(_USUAL, row_normalize=False, K=2),
        **SEARCHED["sgc"],
        "citeseer-f": _SGC_CITESEER,
        "pubmed": _SGC_CORA.updated(_AS_CITATION),
        "amazon-r": _SGC_CORA.updated(OURS, row_normalize=False, K=2, lr=0.05, weight_decay=5e-5),
        "chameleon": _SGC_OTHER.updated(lr=0.05, weight_decay=0.0, epochs=1500),
        "squirrel": _SGC_OTHER.updated(lr=0.05, weight_decay=0.0, epochs=3000),
        "actor": _SGC_OTHER,
    },
    "lgcn": {
        "": _LGCN_CITATION.updated(row_normalize=False),
        **SEARCHED["lgcn"],
        "citeseer-f": _LGCN_CITATION,
        "pubmed": _LGCN_CITATION.updated(_AS_CITATION),
        "amazon-r": _LGCN_CITATION.updated(
            OURS, row_normalize=False, input_dropout=0.5, dropout=0.5, lr=0.01
        ),
    },
    "gcn*": {
        "": DEFAULT,
        **dict.fromkeys(_WIKIPEDIA, _GCN_WIKIPEDIA.updated(OURS, epochs=800, lr=0.02)),
        **SEARCHED["gcn*"],
    },
    "node2seq": {
        "": DEFAULT,
        "pubmed": _NODE2SEQ["cora-r"].updated(_AS_CITATION),
        **_NODE2SEQ,
    },
}

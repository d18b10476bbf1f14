"""The spaces by name and model, and what the paper says of its own settings. No logic."""

from __future__ import annotations

from typing import Any

from node2seq.search.space import Choice, LogUniform, Range, Space, Uniform

_DROPOUT = Uniform(0.0, 0.95)
_YES_OR_NO = Choice((False, True))

# What every training has; the ends are where the public recipes for these graphs lie, and a step beyond.
_TRAINING: dict[str, Range] = {
    "lr": LogUniform(0.002, 0.1),
    "weight_decay": LogUniform(1e-5, 0.02, zero=0.1),
    "input_dropout": _DROPOUT,
    "dropout": _DROPOUT,
}
_NODE2SEQ = Space(
    shape={
        "position": Choice((1, 2, 3)),
        "hidden_channels": Choice((16, 32, 64)),
        "kernel_size": Choice((3, 5, 10)),
        "readout": Choice(("max", "mean", "sum")),
        "hops": Choice((1, 2)),
        "skip": Choice(("sum", "concat")),
        "activation": Choice(("relu", "elu", "none")),
        "row_normalize": _YES_OR_NO,
    },
    free={
        **_TRAINING,
        "conv_weight_decay": LogUniform(1e-5, 1.0, zero=0.1),
        "conv_scale": LogUniform(0.01, 1.0),
        "threshold": Uniform(-0.2, 0.2),
    },
)
_GCN_STAR = Space(
    shape={
        name: _NODE2SEQ.shape[name] for name in ("hidden_channels", "skip", "activation", "row_normalize")
    },
    free=_TRAINING,
)
_TWO_LAYERS = Space(
    shape={"hidden_channels": Choice((16, 32, 64, 128)), "row_normalize": _YES_OR_NO}, free=_TRAINING
)
# Residual blocks are normalised: they take lower rates and less dropout.
_BLOCKS = Space(
    shape={
        "hidden_channels": Choice((32, 64, 128)),
        "num_layers": Choice((1, 2, 3, 4)),
        "expansion": Choice((1, 2)),
    },
    free={
        "lr": LogUniform(0.0005, 0.03),
        "weight_decay": LogUniform(1e-5, 0.01, zero=0.2),
        "input_dropout": Uniform(0.0, 0.8),
        "dropout": Uniform(0.0, 0.8),
    },
)
_PAPER: dict[str, Space] = {
    "node2seq": _NODE2SEQ,
    "gcn*": _GCN_STAR,
    "gcn": _TWO_LAYERS,
    "mlp": _TWO_LAYERS,
    "gin": _TWO_LAYERS,
    "cheby": Space({**_TWO_LAYERS.shape, "K": Choice((2, 3))}, _TRAINING),
    "gat": Space(
        {"hidden_channels": Choice((8, 16)), "heads": Choice((4, 8)), "row_normalize": _YES_OR_NO},
        {**_TRAINING, "attention_dropout": Uniform(0.0, 0.8)},
    ),
    "sgc": Space(
        {"hidden_channels": Choice((0, 64)), "K": Choice((1, 2, 3)), "row_normalize": _YES_OR_NO},
        {
            "lr": LogUniform(0.005, 0.5),
            "weight_decay": _TRAINING["weight_decay"],
            "input_dropout": Uniform(0.0, 0.8),
        },
    ),
    "lgcn": Space(
        {"hidden_channels": Choice((32, 64)), "num_lgcl": Choice((1, 2)), "row_normalize": _YES_OR_NO},
        _TRAINING,
    ),
    "residual-node2seq": Space(
        {
            **_BLOCKS.shape,
            "kernel_size": Choice((1, 3, 5)),
            "readout": Choice(("max", "mean", "ranks")),
            "taps": Choice(("full", "depthwise")),
        },
        _BLOCKS.free,
    ),
    "residual-gcn": _BLOCKS,
    "residual-gat": Space(
        {**_BLOCKS.shape, "heads": Choice((1, 4, 8))},
        {**_BLOCKS.free, "attention_dropout": Uniform(0.0, 0.6)},
    ),
    "residual-sage": _BLOCKS,
    "residual-pna": _BLOCKS,
}

# What the paper does not have, but every model can be trained with.
_PLUS_SHAPE: dict[str, Range] = {"views": Choice((1, 2, 4))}
_PLUS_FREE: dict[str, Range] = {
    "consistency": LogUniform(0.05, 2.0),
    "sharpening": Uniform(0.1, 1.0),
    "averaging": Choice((0.0, 0.9, 0.95, 0.98, 0.99)),
    "label_smoothing": LogUniform(0.02, 0.4, zero=0.5),
}
_NODE2SEQ_PLUS = Space(
    shape={
        **_NODE2SEQ.shape,
        **_PLUS_SHAPE,
        "taps": Choice(("full", "depthwise", "scalar")),
        "own": Choice(("mixed", "apart")),
        "norm": Choice(("none", "layer")),
        "smoothing": Choice((0, 2, 5, 10)),
        "teleport": Choice((0.05, 0.1, 0.2)),
        "smoothed": Choice(("logits", "first")),
        "self_loops": _YES_OR_NO,
    },
    free={**_NODE2SEQ.free, **_PLUS_FREE, "node_dropout": Uniform(0.0, 0.8)},
)

#: By name, then by model.
SPACES: dict[str, dict[str, Space]] = {
    "paper": _PAPER,
    "plus": {
        **{
            model: Space({**space.shape, **_PLUS_SHAPE}, {**space.free, **_PLUS_FREE})
            for model, space in _PAPER.items()
        },
        "node2seq": _NODE2SEQ_PLUS,
    },
    "directed": {
        "node2seq": Space(
            {**_NODE2SEQ_PLUS.shape, "targets_share": Choice((0.0, 0.5, 1.0))}, _NODE2SEQ_PLUS.free
        )
    },
}

#: What is decided by the name of a space, by model and column ("": all of them). For "paper" it is what
#: the tables of the paper give away of its settings.
GIVEN: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    "paper": {
        "node2seq": {
            "cora-f": {"kernel_size": 10, "hops": 2},
            "citeseer-f": {"hops": 2},
            "citeseer-r": {"hops": 2},
            "chameleon": {"hops": 2},
            "squirrel": {"kernel_size": 3, "hops": 2},
            "texas": {"hops": 2},
        }
    },
    "directed": {"node2seq": {"": {"directed": True}}},
}

"""What configs of the model "node2seq" said beyond its options of today, before there was Node2SeqPlus."""

FORMER = {
    "node_dropout": 0.0,
    "norm": "none",
    "own": "mixed",
    "smoothing": 0,
    "teleport": 0.1,
    "smoothed": "logits",
    "directed": False,
    "targets_share": 0.5,
    "self_loops": True,
    "layer": "node2seq",
}

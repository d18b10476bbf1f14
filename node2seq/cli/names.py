"""What a flag may name. The modules that define these names take seconds to import; a test compares them."""

BACKENDS = ("reference", "eager", "native", "triton")
MODELS = (
    *("node2seq", "node2seq-plus", "gcn", "gat", "cheby", "sgc", "lgcn", "gcn*", "mlp", "gin"),
    *("residual-node2seq", "residual-gcn", "residual-gat", "residual-sage", "residual-pna"),
)
METRICS = (
    *("accuracy", "balanced-accuracy", "macro-f1", "roc-auc", "average-precision", "micro-f1"),
    *("r2", "mae", "rmse"),
)
DRAWS = ("whole", "own")
SAMPLERS = ("bayes", "halving")
STAGES = ("all", "plan", "pack", "search", "measure", "ablate", "choose", "render")
TABLES = (
    *("1", "2", "3", "4", "5", "6", "order", "readout", "hops"),
    *("plus-2", "plus-3", "ablation-2", "ablation-3", "directed"),
)

"""The Node2Seq network, the networks that it is compared with, and the dict ``MODELS``.

Each is made as ``Model(in_channels, hidden_channels, out_channels, **options)`` with the fields of
``Model.Options``, which it keeps as attributes, and called as ``model(x, edge_index, n_id=None)``.
"""

from node2seq.nn.models.baselines import GAT, GCN, GIN, LGCN, MLP, SGC, Cheby, GCNStar
from node2seq.nn.models.network import Network
from node2seq.nn.models.node2seq import Node2Seq
from node2seq.nn.models.node2seq_plus import Node2SeqPlus
from node2seq.nn.models.residual import (
    ResidualGAT,
    ResidualGCN,
    ResidualNode2Seq,
    ResidualPNA,
    ResidualSAGE,
)

#: Networks by name.
MODELS: dict[str, type[Network]] = {
    "node2seq": Node2Seq,
    "node2seq-plus": Node2SeqPlus,
    "gcn": GCN,
    "gat": GAT,
    "cheby": Cheby,
    "sgc": SGC,
    "lgcn": LGCN,
    "gcn*": GCNStar,
    "mlp": MLP,
    "gin": GIN,
    "residual-node2seq": ResidualNode2Seq,
    "residual-gcn": ResidualGCN,
    "residual-gat": ResidualGAT,
    "residual-sage": ResidualSAGE,
    "residual-pna": ResidualPNA,
}

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "LGCN",
    "MLP",
    "MODELS",
    "SGC",
    "Cheby",
    "GCNStar",
    "Network",
    "Node2Seq",
    "Node2SeqPlus",
    "ResidualGAT",
    "ResidualGCN",
    "ResidualNode2Seq",
    "ResidualPNA",
    "ResidualSAGE",
]

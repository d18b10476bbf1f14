"""The Node2Seq network, the networks that it is compared with, and the dict ``MODELS``.

Each is made as ``Model(in_channels, hidden_channels, out_channels, **options)`` with the fields of
``Model.Options``, which it keeps as attributes, and called as ``model(x, edge_index, n_id=None)``.
"""

from node2seq.nn.models.cheby import Cheby
from node2seq.nn.models.gat import GAT
from node2seq.nn.models.gcn import GCN
from node2seq.nn.models.gcn_star import GCNStar
from node2seq.nn.models.gin import GIN
from node2seq.nn.models.lgcn import LGCN
from node2seq.nn.models.mlp import MLP
from node2seq.nn.models.network import Network
from node2seq.nn.models.node2seq import Node2Seq
from node2seq.nn.models.node2seq_plus import Node2SeqPlus
from node2seq.nn.models.registry import MODELS
from node2seq.nn.models.residual import (
    ResidualGAT,
    ResidualGCN,
    ResidualNode2Seq,
    ResidualPNA,
    ResidualSAGE,
)
from node2seq.nn.models.sgc import SGC

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

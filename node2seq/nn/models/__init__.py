"""The Node2Seq network, the networks that it is compared with, and the dict ``MODELS``.

Each is made as ``Model(in_channels, hidden_channels, out_channels, **options)`` and called as
``model(x, edge_index, n_id=None)``; each keeps every option as an attribute of the same name.
"""

from torch import nn

from node2seq.nn.models.cheby import Cheby
from node2seq.nn.models.gat import GAT
from node2seq.nn.models.gcn import GCN
from node2seq.nn.models.gin import GIN
from node2seq.nn.models.lgcn import LGCN
from node2seq.nn.models.mlp import MLP
from node2seq.nn.models.node2seq import GCNStar, Node2Seq
from node2seq.nn.models.sgc import SGC

MODELS: dict[str, type[nn.Module]] = {
    "node2seq": Node2Seq,
    "gcn": GCN,
    "gat": GAT,
    "cheby": Cheby,
    "sgc": SGC,
    "lgcn": LGCN,
    "gcn*": GCNStar,
    "mlp": MLP,
    "gin": GIN,
}

__all__ = ["GAT", "GCN", "GIN", "LGCN", "MLP", "MODELS", "SGC", "Cheby", "GCNStar", "Node2Seq"]

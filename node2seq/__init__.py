"""Graph learning where the order and the weight of each neighbour is learned."""

from node2seq.conv import Node2SeqConv, Trace
from node2seq.errors import Node2SeqError
from node2seq.gcn import GCNConv
from node2seq.models import GCN, MODELS, Node2Seq

__all__ = ["GCN", "MODELS", "GCNConv", "Node2Seq", "Node2SeqConv", "Node2SeqError", "Trace"]

__version__ = "0.1.0"

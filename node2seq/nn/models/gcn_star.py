"""The Node2Seq network with a GCN layer in the Node2Seq layer's place."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.models.node2seq import Node2Seq


@dataclass(frozen=True)
class GCNStarOptions:
    """The options of :class:`GCNStar`."""

    hidden_channels: int
    skip: Literal["sum", "concat"] = "sum"
    activation: Literal["relu", "elu", "none"] = "relu"
    input_dropout: float = 0.5
    dropout: float = 0.5
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class GCNStar(Node2Seq):
    """The paper's GCN*: its network with a GCN layer in the Node2Seq layer's place.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first two layers' outputs.
        out_channels (int): Number of classes.
        skip (str): How the first two outputs are combined: :obj:`"sum"` or :obj:`"concat"`.
            (default: :obj:`"sum"`)
        activation (str): :obj:`"relu"`, :obj:`"elu"` or :obj:`"none"`. (default: :obj:`"relu"`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = GCNStarOptions
    reads_sparse_rows = True
    carried = ("edge_weight",)

    def _make_special(self, options: Any, width_in: int, width_out: int, **shared: Any) -> nn.Module:
        return GCNConv(width_in, width_out, backend=options.backend, **shared)

"""The two-layer graph convolutional network."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Network


@dataclass(frozen=True)
class GCNOptions:
    """The options of :class:`GCN`."""

    hidden_channels: int
    input_dropout: float = 0.5
    dropout: float = 0.5
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class GCN(Network):
    """The two-layer network of the `"Semi-Supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_ paper.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = GCNOptions
    reads_sparse_rows = True
    carried = ("edge_weight",)

    def _make_layers(self, options: GCNOptions) -> None:
        first = GCNConv(self.in_channels, self.hidden_channels, backend=options.backend)
        second = GCNConv(self.hidden_channels, self.out_channels, backend=options.backend)
        self.convs = nn.ModuleList([first, second])
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)

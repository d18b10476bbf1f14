"""The two-layer graph convolutional network."""

from torch import nn

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.two_layers import TwoLayers


class GCN(TwoLayers):
    """The two-layer network of the `"Semi-Supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_ paper.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        input_dropout: float = 0.5,
        dropout: float = 0.5,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.backend = backend
        self.convs = nn.ModuleList(
            [
                GCNConv(in_channels, hidden_channels, backend=backend),
                GCNConv(hidden_channels, out_channels, backend=backend),
            ]
        )
        self.dropouts = make_dropouts(input_dropout, dropout)

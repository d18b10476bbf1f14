"""The Chebyshev network, and its layer aggregated deterministically."""

from torch import nn

from node2seq.nn.conv.cheb import ChebConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.two_layers import TwoLayers


class Cheby(TwoLayers):
    """The two-layer network with the filters of the `"Convolutional Neural Networks on Graphs with Fast
    Localized Spectral Filtering" <https://arxiv.org/abs/1606.09375>`_ paper.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        K (int): Number of polynomials, so that K − 1 hops are seen. (default: :obj:`3`)
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
        K: int = 3,
        input_dropout: float = 0.5,
        dropout: float = 0.5,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.K = K
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.backend = backend
        self.convs = nn.ModuleList(
            [
                ChebConv(in_channels, hidden_channels, K, backend=backend),
                ChebConv(hidden_channels, out_channels, K, backend=backend),
            ]
        )
        self.dropouts = make_dropouts(input_dropout, dropout)

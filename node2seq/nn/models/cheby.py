"""The Chebyshev network."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from node2seq.nn.conv.cheb import ChebConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Network


@dataclass(frozen=True)
class ChebyOptions:
    """The options of :class:`Cheby`."""

    hidden_channels: int
    K: int = 3
    input_dropout: float = 0.5
    dropout: float = 0.5
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class Cheby(Network):
    """The two-layer network with the filters of the `"Convolutional Neural Networks on Graphs with Fast
    Localized Spectral Filtering" <https://arxiv.org/abs/1606.09375>`_ paper.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        K (int): Number of polynomials, so that K − 1 hops are seen. (default: :obj:`3`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = ChebyOptions
    reads_sparse_rows = True
    carried = ("edge_weight",)

    def _make_layers(self, options: ChebyOptions) -> None:
        first = ChebConv(self.in_channels, self.hidden_channels, options.K, backend=options.backend)
        second = ChebConv(self.hidden_channels, self.out_channels, options.K, backend=options.backend)
        self.convs = nn.ModuleList([first, second])
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)

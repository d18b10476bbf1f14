"""The simplified graph convolutional network."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from node2seq.nn.conv.sg import SGConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Edges, Network, convolve


@dataclass(frozen=True)
class SGCOptions:
    """The options of :class:`SGC`."""

    hidden_channels: int
    K: int = 2
    input_dropout: float = 0.0
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class SGC(Network):
    """The one-layer network of the `"Simplifying Graph Convolutional Networks"
    <https://arxiv.org/abs/1902.07153>`_ paper: a linear classifier of features spread over K hops.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Not used unless ``own="apart"``: there is no hidden layer otherwise.
        out_channels (int): Number of classes.
        K (int): Number of hops. (default: :obj:`2`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = SGCOptions
    reads_sparse_rows = True
    carried = ("edge_weight",)

    def _make_layers(self, options: SGCOptions) -> None:
        self.conv = SGConv(self.in_channels, self.out_channels, options.K, backend=options.backend)
        self.dropouts = make_dropouts(options.input_dropout)

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """With no hidden layer, the logits themselves, [N, out_channels]."""
        return convolve(self.conv, self.dropouts[0](x, n_id), edges)

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return self._embed(x, edges, n_id)

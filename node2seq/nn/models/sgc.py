"""The simplified graph convolution, and its layer aggregated deterministically."""

from typing import Any

from torch import Tensor

from node2seq.nn.conv.sg import SGConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.capturing import Capturable


class SGC(Capturable):
    """The one-layer network of the `"Simplifying Graph Convolutional Networks"
    <https://arxiv.org/abs/1902.07153>`_ paper: a linear classifier of features spread over K hops.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Not used: there is no hidden layer.
        out_channels (int): Number of classes.
        K (int): Number of hops. (default: :obj:`2`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        K: int = 2,
        input_dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.K = K
        self.input_dropout = input_dropout
        self.backend = backend
        self.conv = SGConv(in_channels, out_channels, K, backend=backend)
        self.dropouts = make_dropouts(input_dropout)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seed of the dropout, anew."""
        for module in (self.conv, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings: with no hidden layer, the logits themselves, [N, out_channels]."""
        return self.conv(self.dropouts[0](x, n_id), edge_index)

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return self.embed(x, edge_index, n_id)

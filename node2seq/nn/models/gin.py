"""The graph isomorphism network for node classification, and its layer aggregated deterministically."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq import ops
from node2seq.nn.conv.gin import GINConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.capturing import Capturable


class GIN(Capturable):
    """A two-layer network with the layers of the `"How Powerful are Graph Neural Networks?"
    <https://arxiv.org/abs/1810.00826>`_ paper and a linear classifier.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of both layers' outputs.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

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
            GINConv(_two_layers(width, hidden_channels), train_eps=True, backend=backend)
            for width in (in_channels, hidden_channels)
        )
        self.lin = nn.Linear(hidden_channels, out_channels)
        self.dropouts = make_dropouts(input_dropout, dropout, dropout)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (*self.convs, self.lin, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, H]."""
        for conv, dropout in zip(self.convs, self.dropouts[:2], strict=True):
            x = F.relu(conv(dropout(x, n_id), edge_index))
        return x

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return ops.apply(self.lin, self.dropouts[2](self.embed(x, edge_index, n_id), n_id))


def _two_layers(width: int, hidden: int) -> nn.Sequential:
    # No bias ahead of the normalisation, which would subtract it again.
    return nn.Sequential(
        nn.Linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, hidden)
    )

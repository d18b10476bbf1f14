"""The network that sees no edges."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq import ops
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.capturing import Capturable


class MLP(Capturable):
    """Two linear layers on each node's own features: what the edges are worth is measured against it.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
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
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.lins = nn.ModuleList(
            [nn.Linear(in_channels, hidden_channels), nn.Linear(hidden_channels, out_channels)]
        )
        self.dropouts = make_dropouts(input_dropout, dropout)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (*self.lins, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(
        self,
        x: Tensor,
        edge_index: Any,  # noqa: ARG002 (called as every other model is)
        n_id: Tensor | None = None,
    ) -> Tensor:
        """The node embeddings before the last layer, [N, H]."""
        return F.relu(ops.apply(self.lins[0], self.dropouts[0](x, n_id)))

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return ops.apply(self.lins[1], self.dropouts[1](self.embed(x, edge_index, n_id), n_id))

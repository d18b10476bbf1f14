"""The graph attention network, and its layer aggregated deterministically."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq.nn.conv.gat import GATConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.capturing import Capturable


class GAT(Capturable):
    """The two-layer network of the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first layer's output per head.
        out_channels (int): Number of classes.
        heads (int): Attentions of the first layer, concatenated. (default: :obj:`8`)
        out_heads (int): Attentions of the second layer, averaged. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.6`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.6`)
        attention_dropout (float): Dropout of the attention weights. (default: :obj:`0.6`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        heads: int = 8,
        out_heads: int = 1,
        input_dropout: float = 0.6,
        dropout: float = 0.6,
        attention_dropout: float = 0.6,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.heads = heads
        self.out_heads = out_heads
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.backend = backend
        width = heads * hidden_channels
        self.dropouts = make_dropouts(input_dropout, dropout)
        self.convs = nn.ModuleList(
            [
                GATConv(
                    in_channels, hidden_channels, heads, layer=2, dropout=attention_dropout, backend=backend
                ),
                GATConv(
                    width,
                    out_channels,
                    out_heads,
                    concat=False,
                    layer=3,
                    dropout=attention_dropout,
                    backend=backend,
                ),
            ]
        )

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (*self.convs, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, heads * H]."""
        return F.elu(self.convs[0](self.dropouts[0](x, n_id), edge_index, n_id))

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return self.convs[1](self.dropouts[1](self.embed(x, edge_index, n_id), n_id), edge_index, n_id)

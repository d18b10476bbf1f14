"""The large-scale learnable graph convolutional network, and its layer."""

from typing import Any

import torch
from torch import Tensor, nn

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.lgcl import LGCL
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.capturing import Capturable


class LGCN(Capturable):
    """The network of the `"Large-Scale Learnable Graph Convolutional Networks"
    <https://arxiv.org/abs/1808.03965>`_ paper: a GCN layer as embedding, layers that add their output to
    their input's channels, a GCN layer as classifier.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the embedding.
        out_channels (int): Number of classes.
        num_lgcl (int): Number of learnable layers between the two GCN layers. (default: :obj:`2`)
        lgcl_channels (int): How many channels each of them adds. (default: :obj:`8`)
        k (int): How many values of the neighbours they keep per channel. (default: :obj:`8`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.84`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.84`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_lgcl: int = 2,
        lgcl_channels: int = 8,
        k: int = 8,
        input_dropout: float = 0.84,
        dropout: float = 0.84,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_lgcl = num_lgcl
        self.lgcl_channels = lgcl_channels
        self.k = k
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.backend = backend
        self.embedding = GCNConv(in_channels, hidden_channels, backend=backend)
        self.dropouts = make_dropouts(input_dropout, dropout)
        width = hidden_channels
        self.layers = nn.ModuleList()
        for number in range(num_lgcl):
            first = len(self.dropouts) + 2 * number
            self.layers.append(LGCL(width, lgcl_channels, k, dropout=dropout, layer=first, backend=backend))
            width += lgcl_channels
        self.classifier = GCNConv(width, out_channels, backend=backend)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (self.embedding, *self.layers, self.classifier, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, H + num_lgcl * lgcl_channels]."""
        x = self.embedding(self.dropouts[0](x, n_id), edge_index)
        for layer in self.layers:
            x = torch.cat([x, layer(x, edge_index, n_id)], dim=-1)
        return x

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return self.classifier(self.dropouts[1](self.embed(x, edge_index, n_id), n_id), edge_index)

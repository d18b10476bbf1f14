"""The graph attention network."""

from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq.nn.conv.gat import GATConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Edges, Network, convolve


@dataclass(frozen=True)
class GATOptions:
    """The options of :class:`GAT`."""

    hidden_channels: int
    heads: int = 8
    out_heads: int = 1
    input_dropout: float = 0.6
    dropout: float = 0.6
    attention_dropout: float = 0.6
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class GAT(Network):
    """The two-layer network of the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first layer's output per head.
        out_channels (int): Number of classes.
        heads (int): Attentions of the first layer, concatenated. (default: :obj:`8`)
        out_heads (int): Attentions of the second layer, averaged. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.6`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.6`)
        attention_dropout (float): Dropout of the attention weights. (default: :obj:`0.6`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        edge_dim (int, optional): Size of each edge's attributes. (default: :obj:`None`)
    """

    Options = GATOptions
    reads_sparse_rows = True
    carried = ("edge_attr",)

    def _make_layers(self, options: GATOptions) -> None:
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)
        shared: dict[str, Any] = {"dropout": options.attention_dropout, "backend": options.backend}
        shared["edge_dim"] = self.edge_dim
        first = GATConv(self.in_channels, self.hidden_channels, options.heads, layer=2, **shared)
        width = options.heads * self.hidden_channels
        second = GATConv(width, self.out_channels, options.out_heads, concat=False, layer=3, **shared)
        self.convs = nn.ModuleList([first, second])

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """The node embeddings before the last layer, [N, heads * H]."""
        return F.elu(convolve(self.convs[0], self.dropouts[0](x, n_id), edges, n_id))

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return convolve(self.convs[1], self.dropouts[1](self._embed(x, edges, n_id), n_id), edges, n_id)

"""The large-scale learnable graph convolutional network."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.lgcl import LGCL
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Edges, Network, convolve


@dataclass(frozen=True)
class LGCNOptions:
    """The options of :class:`LGCN`."""

    hidden_channels: int
    num_lgcl: int = 2
    lgcl_channels: int = 8
    k: int = 8
    input_dropout: float = 0.84
    dropout: float = 0.84
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class LGCN(Network):
    """The network of the `"Large-Scale Learnable Graph Convolutional Networks"
    <https://arxiv.org/abs/1808.03965>`_ paper: a GCN layer as embedding, layers that add their output to
    their input's channels, a GCN layer as classifier.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the embedding.
        out_channels (int): Number of classes.
        num_lgcl (int): Number of learnable layers between the two GCN layers. (default: :obj:`2`)
        lgcl_channels (int): How many channels each of them adds. (default: :obj:`8`)
        k (int): How many values of the neighbours they keep per channel. (default: :obj:`8`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.84`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.84`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = LGCNOptions
    reads_sparse_rows = True

    def _make_layers(self, options: LGCNOptions) -> None:
        width, backend = self.hidden_channels, options.backend
        self.embedding = GCNConv(self.in_channels, width, backend=backend)
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)
        self.layers = nn.ModuleList()
        for number in range(options.num_lgcl):
            own = {"dropout": options.dropout, "layer": len(self.dropouts) + 2 * number}
            self.layers.append(LGCL(width, options.lgcl_channels, options.k, **own, backend=backend))
            width += options.lgcl_channels
        self.classifier = GCNConv(width, self.out_channels, backend=backend)

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """The node embeddings before the last layer, [N, H + num_lgcl * lgcl_channels]."""
        x = convolve(self.embedding, self.dropouts[0](x, n_id), edges)
        for layer in self.layers:
            x = torch.cat([x, convolve(layer, x, edges, n_id)], dim=-1)
        return x

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return convolve(self.classifier, self.dropouts[1](self._embed(x, edges, n_id), n_id), edges)

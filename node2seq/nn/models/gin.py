"""The graph isomorphism network for node classification."""

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.gin import GINConv, GINEConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Edges, Network, convolve, make_linear


@dataclass(frozen=True)
class GINOptions:
    """The options of :class:`GIN`."""

    hidden_channels: int
    input_dropout: float = 0.5
    dropout: float = 0.5
    backend: str = "auto"


class GIN(Network):
    """A two-layer network with the layers of the `"How Powerful are Graph Neural Networks?"
    <https://arxiv.org/abs/1810.00826>`_ paper and a linear classifier.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of both layers' outputs.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        edge_dim (int, optional): Size of each edge's attributes, which are read as in
            :class:`torch_geometric.nn.GINEConv`. (default: :obj:`None`)
    """

    Options = GINOptions
    carried = ("edge_attr",)

    def _make_layers(self, options: GINOptions) -> None:
        shared: dict[str, Any] = {"train_eps": True, "backend": options.backend}
        if self.edge_dim is not None:
            shared["edge_dim"] = self.edge_dim
            if self.in_channels == -1:
                raise Node2SeqError(
                    f"in_channels=-1 with edge_dim={self.edge_dim}",
                    "attributes are projected to the size of the input",
                    "Pass the number of features",
                )
        conv = GINConv if self.edge_dim is None else GINEConv
        self.convs = nn.ModuleList(
            conv(_two_layers(width, self.hidden_channels), **shared)
            for width in (self.in_channels, self.hidden_channels)
        )
        self.lin = nn.Linear(self.hidden_channels, self.out_channels)
        self.dropouts = make_dropouts(options.input_dropout, options.dropout, options.dropout)

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        for conv, dropout in zip(self.convs, self.dropouts[:2], strict=True):
            x = F.relu(convolve(conv, dropout(x, n_id), edges))
        return x

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return ops.apply(self.lin, self.dropouts[2](self._embed(x, edges, n_id), n_id))


def _two_layers(width: int, hidden: int) -> nn.Sequential:
    # No bias ahead of the normalisation, which would subtract it again.
    return nn.Sequential(
        make_linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, hidden)
    )

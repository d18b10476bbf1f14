"""The network that sees no edges."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq import ops
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Edges, Network, make_linear


@dataclass(frozen=True)
class MLPOptions:
    """The options of :class:`MLP`."""

    hidden_channels: int
    input_dropout: float = 0.5
    dropout: float = 0.5


class MLP(Network):
    """Two linear layers on each node's own features: what the edges are worth is measured against it.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
    """

    Options = MLPOptions
    reads_sparse_rows = True

    def _make_layers(self, options: MLPOptions) -> None:
        self.lins = nn.ModuleList(
            [
                make_linear(self.in_channels, self.hidden_channels),
                nn.Linear(self.hidden_channels, self.out_channels),
            ]
        )
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)

    def _embed(
        self,
        x: Tensor,
        edges: Edges,  # noqa: ARG002 (called as every other model is)
        n_id: Tensor | None,
    ) -> Tensor:
        return F.relu(ops.apply(self.lins[0], self.dropouts[0](x, n_id)))

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return ops.apply(self.lins[1], self.dropouts[1](self._embed(x, edges, n_id), n_id))

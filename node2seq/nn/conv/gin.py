"""The graph isomorphism layer of PyTorch Geometric, aggregated deterministically."""

from typing import Any, ClassVar, cast

import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.typing import OptPairTensor

from node2seq import ops
from node2seq.nn.conv.base import DeterministicConv


class GINConv(torch_geometric.nn.GINConv, DeterministicConv):
    """:class:`torch_geometric.nn.GINConv` with the same parameters and outputs, and the same bits every time.

    Bipartite graphs, sparse adjacencies, explainers and hooks take PyG's own way.

    Args:
        nn (torch.nn.Module): What the sum of a node and its neighbours goes through.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.GINConv`.
    """

    propagate_type: ClassVar = {"x": OptPairTensor}

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.GINConv`."""
        if not isinstance(x, Tensor) or self.sends_messages(edge_index):
            return super().forward(x, edge_index, size)
        neighbours = self.neighbours(x, edge_index)
        out = neighbours.sum(x, x.new_ones(neighbours.union.rows.num_entries))
        return ops.apply(cast("nn.Module", self.nn), out + (1 + self.eps.unsqueeze(-1)) * x)

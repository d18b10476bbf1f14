"""The GraphSAGE layer of PyTorch Geometric, aggregated deterministically."""

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor

from node2seq import ops
from node2seq.nn.conv.base import DeterministicConv


class SAGEConv(torch_geometric.nn.SAGEConv, DeterministicConv):
    """:class:`torch_geometric.nn.SAGEConv` with the same parameters and outputs, and the same bits every
    time.

    The mean of the neighbours is taken after their projection, which is the same. Other aggregations,
    bipartite graphs, sparse adjacencies, explainers and hooks take PyG's own way.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int): Size of each output sample.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.SAGEConv`.
    """

    propagate_type: ClassVar = {"x": OptPairTensor}

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.SAGEConv`."""
        is_matrix = isinstance(x, (Tensor, ops.SparseRows))
        default = self.aggr == "mean" and not self.project and not self.normalize
        projections = [self.lin_l, self.lin_r] if self.root_weight else [self.lin_l]
        is_plain = is_matrix and self.has_plain(x, *projections)
        if not is_plain or not default or self.sends_messages(edge_index):
            return super().forward(ops.dense(x) if is_matrix else x, edge_index, size)
        values = ops.linear(x, self.lin_l.weight)
        out = self.neighbours(values, edge_index).mean(values)
        if self.root_weight:
            out = out + ops.linear(x, self.lin_r.weight)
        return ops.add_bias(out, self.lin_l.bias)

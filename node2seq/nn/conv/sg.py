"""The simplified graph convolution of PyTorch Geometric, aggregated deterministically."""

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from node2seq import ops
from node2seq.nn.conv.base import DeterministicConv, Whole


class SGConv(torch_geometric.nn.SGConv, DeterministicConv):
    """:class:`torch_geometric.nn.SGConv` with the same parameters and outputs, and the same bits every time.

    Projects first, which is the same and sends ``out_channels`` numbers along an edge instead of
    ``in_channels``. Sparse adjacencies, explainers and hooks take PyG's own way.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int): Size of each output sample.
        K (int): Number of hops. (default: :obj:`1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.SGConv`.
    """

    propagate_type: ClassVar = {"x": Tensor, "edge_weight": OptTensor}

    def forward(
        self, x: Tensor, edge_index: Any, edge_weight: OptTensor = None, *, whole: Whole | None = None
    ) -> Tensor:
        """Runs the forward pass of the module; see :class:`GCNConv`."""
        if not self.has_plain(x, self.lin) or self.cached or self.sends_messages(edge_index, edge_weight):
            return super().forward(ops.dense(x), edge_index, edge_weight)
        x = ops.linear(x, self.lin.weight)
        neighbours = self.neighbours(x, edge_index, add_self_loops=self.add_self_loops)
        weights = neighbours.gcn_weights(edge_weight, whole, x.dtype)
        for _ in range(self.K):
            x = neighbours.sum(x, weights)
        return ops.add_bias(x, self.lin.bias)

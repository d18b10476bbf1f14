"""The GCN layer of PyTorch Geometric, aggregated deterministically."""

from typing import ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import Adj, OptTensor

from node2seq import ops
from node2seq.nn.conv.base import DeterministicConv, Whole


class GCNConv(torch_geometric.nn.GCNConv, DeterministicConv):
    """:class:`torch_geometric.nn.GCNConv` with the same parameters and outputs, and the same bits every time.

    A graph is summed row by row over a plan that is built once per edge index. Sparse adjacencies,
    explainers and hooks take PyG's own way.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int): Size of each output sample.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.GCNConv`.
    """

    propagate_type: ClassVar = {"x": Tensor, "edge_weight": OptTensor}

    def forward(
        self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None, *, whole: Whole | None = None
    ) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.GCNConv`.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or SparseTensor): The edges.
            edge_weight (torch.Tensor, optional): The weight of each edge.
            whole (Whole, optional): The degrees of the nodes in the graph that this is a part of.
        """
        default = self.normalize and not self.improved and self.decomposed_layers == 1
        default = default and (edge_weight is None or not self.cached)
        if not default or self.sends_messages(edge_index, edge_weight):
            return super().forward(ops.dense(x), edge_index, edge_weight)
        x = ops.apply(self.lin, x)
        neighbours = self.neighbours(x, edge_index, add_self_loops=self.add_self_loops)
        weights = neighbours.gcn_weights(edge_weight, whole, x.dtype)
        return ops.add_bias(neighbours.sum(x, weights), self.bias)

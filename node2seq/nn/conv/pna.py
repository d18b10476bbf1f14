"""A layer that describes the neighbours by several aggregations."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import Linear

from node2seq import ops
from node2seq.nn.conv.base import Neighbours

# Under the root of the variance, whose slope would be infinite at zero.
_EPSILON = 1e-5


class PNAConv(nn.Module):
    r"""Mean, standard deviation and maximum of the neighbours, after the `"Principal Neighbourhood
    Aggregation for Graph Nets" <https://arxiv.org/abs/2004.05718>`_ paper, without its degree scalers.

    .. math::
        \mathbf{z}_j = \mathbf{W}_1 \mathbf{x}_j, \qquad
        \hat{\mathbf{x}}_i = \mathbf{W}_2 \left[ \mathrm{mean}_j \, \mathbf{z}_j \, \Vert \,
        \mathrm{std}_j \, \mathbf{z}_j \, \Vert \, \mathrm{max}_j \, \mathrm{relu}(\mathbf{z}_j) \right]

    A node without neighbours has a mean and a maximum of zero.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive it from the first input.
        out_channels (int): Size of each output sample.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    def __init__(self, in_channels: int, out_channels: int, *, backend: str = "auto") -> None:
        ops.check_backend(backend)
        super().__init__()
        self.backend = backend
        self.lin = Linear(in_channels, out_channels, bias=False)
        self.lin_out = Linear(3 * out_channels, out_channels, bias=False)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        self.lin.reset_parameters()
        self.lin_out.reset_parameters()

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """The layer's output, [N, out_channels].

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or SparseTensor): The edges.
        """
        values = ops.apply(self.lin, x)
        neighbours = Neighbours(values, edge_index, add_self_loops=False, backend=self.backend)
        mean, square = neighbours.mean(torch.cat([values, values.square()], dim=-1)).chunk(2, dim=-1)
        # Rounding may leave a variance slightly below zero.
        deviation = (F.relu(square - mean.square()) + _EPSILON).sqrt()
        weights = values.new_ones(neighbours.union.rows.num_entries)
        flat = values.flatten(0, -2)
        largest = neighbours.backend.largest(flat, neighbours.union, weights, 1).view(values.shape)
        return ops.apply(self.lin_out, torch.cat([mean, deviation, largest], dim=-1))

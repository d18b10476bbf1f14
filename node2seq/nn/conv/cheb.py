"""The Chebyshev layer of PyTorch Geometric, aggregated deterministically."""

from typing import ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from node2seq import ops
from node2seq.nn.conv.base import DeterministicConv


class ChebConv(torch_geometric.nn.ChebConv, DeterministicConv):
    """:class:`torch_geometric.nn.ChebConv` with the same parameters and outputs, and the same bits every
    time.

    Projects first and sums the polynomials from the last to the first (Clenshaw's recurrence), so that only
    ``out_channels`` numbers travel along an edge. Weighted graphs, other normalisations, sparse
    adjacencies, explainers and hooks take PyG's own way.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int): Size of each output sample.
        K (int): Number of polynomials.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.ChebConv`.
    """

    propagate_type: ClassVar = {"x": Tensor, "norm": Tensor}

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: OptTensor = None,
        batch: OptTensor = None,
        lambda_max: OptTensor = None,
    ) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.ChebConv`."""
        default = edge_weight is None and lambda_max is None and self.normalization == "sym"
        for lin in self.lins:
            ops.initialize(lin, x)
        default = default and all(map(ops.is_plain_linear, self.lins))
        if not default or self.sends_messages(edge_index):
            return super().forward(ops.dense(x), edge_index, edge_weight, batch, lambda_max)
        weights = torch.cat([lin.weight for lin in self.lins], dim=-2)  # pyright: ignore[reportCallIssue, reportArgumentType]
        projected = ops.linear(x, weights)
        neighbours = self.neighbours(projected, edge_index)
        laplacian = _scaled_laplacian(neighbours.union, x.dtype)
        terms = projected.flatten(0, -2).split(self.out_channels, dim=1)
        later, latest = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
        for term in reversed(terms[1:]):
            later, latest = term + 2.0 * neighbours.sum(later, laplacian) - latest, later
        out = terms[0] - latest
        if len(terms) > 1:
            out = out + neighbours.sum(later, laplacian)
        return ops.add_bias(out.view(*projected.shape[:-1], self.out_channels), self.bias)


def _scaled_laplacian(sequences: ops.Sequences, dtype: torch.dtype) -> Tensor:
    """Each entry's weight in 2 L / λ − I for λ = 2: minus the normalised adjacency without self loops."""
    target, source = sequences.rows.target, sequences.index
    loop = target == source
    # Whole numbers, so the sums are exact in any order; no shape depends on values.
    degree = source.new_zeros(sequences.num_sources).index_add(0, source, (~loop).long())
    scale = degree.to(dtype).pow(-0.5)
    scale = scale.masked_fill(scale.isinf(), 0.0)
    return (-scale[target] * scale[source]).masked_fill(loop, 0.0)

"""The Chebyshev layer of PyTorch Geometric, aggregated deterministically."""

from typing import ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from node2seq import ops
from node2seq.nn.conv.base import DeterministicConv, Neighbours, Whole, inverse_root, sums_at
from node2seq.nn.conv.edge_inputs import check_edge_values


class ChebConv(torch_geometric.nn.ChebConv, DeterministicConv):
    """:class:`torch_geometric.nn.ChebConv` with the same parameters and outputs, and the same bits every
    time.

    Projects first and sums the polynomials from the last to the first (Clenshaw's recurrence), so that only
    ``out_channels`` numbers travel along an edge. Other normalisations, sparse adjacencies,
    explainers and hooks take PyG's own way.

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
        *,
        whole: Whole | None = None,
    ) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.ChebConv`, :class:`GCNConv`."""
        default = lambda_max is None and self.normalization == "sym"
        # PyG counts the degrees of weighted edges at their first node, whichever way messages flow.
        default = default and (edge_weight is None or self.flow == "source_to_target")
        if not self.has_plain(x, *self.lins) or not default or self.sends_messages(edge_index, edge_weight):
            return super().forward(ops.dense(x), edge_index, edge_weight, batch, lambda_max)
        weights = torch.cat([lin.weight for lin in self.lins], dim=-2)  # pyright: ignore[reportCallIssue, reportArgumentType]
        projected = ops.linear(x, weights)
        neighbours = self.neighbours(projected, edge_index)
        if edge_weight is None:
            laplacian, own = _scaled_laplacian(neighbours, x.dtype, whole), None
        else:
            laplacian, own = _weighted_laplacian(neighbours, edge_weight)

        def spread(x: Tensor) -> Tensor:
            out = neighbours.sum(x, laplacian)
            return out if own is None else out + own * x

        terms = projected.flatten(0, -2).split(self.out_channels, dim=1)
        later, latest = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
        for term in reversed(terms[1:]):
            later, latest = term + 2.0 * spread(later) - latest, later
        out = terms[0] - latest
        if len(terms) > 1:
            out = out + spread(later)
        return ops.add_bias(out.view(*projected.shape[:-1], self.out_channels), self.bias)


def _scaled_laplacian(neighbours: Neighbours, dtype: torch.dtype, whole: Whole | None) -> Tensor:
    """Each entry's weight in 2 L / λ − I for λ = 2: minus the normalised adjacency without self loops."""
    sequences = neighbours.union
    target, source = sequences.rows.target, sequences.index
    loop = target == source
    if whole is None:
        # Whole numbers, so the sums are exact in any order; no shape depends on values.
        degree = source.new_zeros(sequences.num_sources).index_add(0, source, (~loop).long())
    else:
        degree = whole.out
    scale = degree.to(dtype).pow(-0.5)
    scale = scale.masked_fill(scale.isinf(), 0.0)
    weights = (-scale[target] * scale[source]).masked_fill(loop, 0.0)
    return weights if whole is None else weights * neighbours.drawn_weights(whole, dtype)


def _weighted_laplacian(neighbours: Neighbours, edge_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Each entry's weight in 2 L / λ − I where edges have weights, and that of the nodes themselves.

    PyG takes twice the largest weight in L for λ: 2, unless weights are negative.
    """
    check_edge_values("edge_weight", edge_weight, "[num_edges]", neighbours.edge_index)
    sequences = neighbours.sequences
    target, source = sequences.rows.target, sequences.index
    weight = neighbours.per_entry(edge_weight).masked_fill(target == source, 0.0)
    scale = inverse_root(sums_at(weight, source, sequences.num_sources))
    weight = -scale[target] * weight * scale[source]
    largest = torch.cat([weight, weight.new_ones(1)]).max()
    return (weight / largest).repeat(neighbours.copies), 1.0 / largest - 1.0

"""Features computed from the edges, for a graph that has none."""

from __future__ import annotations

import torch
from torch import Tensor

# Degrees 0, 1, 2, 3–4, 5–8, …, above 2¹⁵: fixed, so that a model fits a graph of any size.
_BINS = 18

#: What the columns are, for messages.
STRUCTURAL = (
    f"{_BINS + 4} structural features (a constant; the logarithms of the degree and of the neighbours' mean "
    "and largest degree; the degree's class, one-hot)"
)


def structural_features(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Features [N, 22] that depend only on the edges, not on the order of the nodes.

    Sums are of whole numbers in float64 and therefore exact, whatever the order of the edges.
    """
    source, target = edge_index
    degree = torch.bincount(target, minlength=num_nodes).double()
    near = torch.zeros(num_nodes, dtype=torch.float64).index_add_(0, target, degree[source])
    largest = torch.zeros(num_nodes, dtype=torch.float64).scatter_reduce_(0, target, degree[source], "amax")
    level = torch.ceil(torch.log2(degree.clamp(min=1))).long() + (degree > 0).long()
    onehot = torch.nn.functional.one_hot(level.clamp(max=_BINS - 1), _BINS)
    columns = [torch.ones_like(degree), degree.log1p(), (near / degree.clamp(min=1)).log1p(), largest.log1p()]
    return torch.cat([torch.stack(columns, dim=1), onehot.double()], dim=1).float()

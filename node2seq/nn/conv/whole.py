"""What a part of a graph cannot tell of the whole: how many edges its nodes have there."""

from typing import NamedTuple, Self

import torch
from torch import Tensor


class Whole(NamedTuple):
    """The degrees of nodes in the graph that a batch is drawn from.

    With them, a layer that weighs neighbours by degrees gives a node with all its edges what it has in the
    whole graph. Where only some edges were drawn, their sum is scaled up: it has the right mean.
    """

    into: Tensor
    """The edges into each node, loops not counted; or the sum of their weights, [N]."""
    out: Tensor
    """The same for the edges that start there."""
    own: Tensor
    """The weight of each node's entry for itself."""

    @classmethod
    def of(
        cls, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None, self_loops: bool = True
    ) -> Self:
        """The degrees of all nodes of a graph.

        Args:
            edge_index (torch.Tensor): Its edges.
            num_nodes (int): Its nodes.
            edge_weight (torch.Tensor, optional): The weight of each edge.
            self_loops (bool): Whether layers add a self loop to each node that has none.
        """
        source, target = edge_index
        weight = torch.ones(source.numel()) if edge_weight is None else edge_weight
        weight, loop = weight.double(), source == target
        zeros = torch.zeros(num_nodes, dtype=torch.float64)
        others = weight.masked_fill(loop, 0.0)
        own = zeros.index_add(0, target[loop], weight[loop])
        if self_loops:  # of several that are listed, the last counts
            own = zeros + 1.0
            if edge_weight is not None:
                own[target[loop]] = weight[loop]
        return cls(zeros.index_add(0, target, others), zeros.index_add(0, source, others), own)

    def take(self, nodes: Tensor) -> Self:
        """Those of some nodes."""
        return type(self)(*(values[nodes] for values in self))

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(*(values.to(device) for values in self))

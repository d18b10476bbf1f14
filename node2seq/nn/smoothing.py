"""Predictions smoothed over the graph, with a way back to where they started."""

from typing import Any

from torch import Tensor, nn

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.base import Neighbours


class Smoothing(nn.Module):
    r"""Spreads each node's values over the graph and pulls them back to what they were, several times:
    the propagation of the `"Predict then Propagate" <https://arxiv.org/abs/1810.05997>`_ paper.

    .. math::
        \mathbf{Z} \leftarrow (1 - \alpha) \hat{\mathbf{A}} \mathbf{Z} + \alpha \mathbf{Z}_0

    Args:
        steps (int): How often.
        teleport (float): The share :math:`\alpha` of the start in each step.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    def __init__(self, steps: int, teleport: float, *, backend: str = "auto") -> None:
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise Node2SeqError(
                f"smoothing={steps!r}",
                "it is how often predictions are spread over the graph",
                "Pass a whole number from 0 up",
            )
        if not 0.0 <= teleport <= 1.0:
            raise Node2SeqError(
                f"teleport={teleport!r}",
                "it is the share of a node's own prediction",
                "Pass a number from 0 to 1",
            )
        ops.check_backend(backend)
        super().__init__()
        self.steps = steps
        self.teleport = teleport
        self.backend = backend

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """The smoothed values, in the shape of ``x``."""
        if not self.steps:
            return x
        neighbours = Neighbours(x, edge_index, add_self_loops=True, backend=self.backend)
        start = self.teleport * x
        if edge_weight is None:
            weights = neighbours.union.gcn_weights(x.dtype)
        else:
            weights = neighbours.gcn_weights(edge_weight)
        weights = weights * (1.0 - self.teleport)
        for _ in range(self.steps):
            x = neighbours.sum(x, weights) + start
        return x

    def extra_repr(self) -> str:
        """The settings."""
        return f"steps={self.steps}, teleport={self.teleport}"

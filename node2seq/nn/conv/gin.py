"""The graph isomorphism layers of PyTorch Geometric, aggregated deterministically."""

from typing import Any, ClassVar, cast

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.typing import OptPairTensor, OptTensor

from node2seq import ops
from node2seq.nn.conv.base import DeterministicConv, Whole
from node2seq.nn.conv.edge_inputs import check_edge_values


class GINConv(torch_geometric.nn.GINConv, DeterministicConv):
    """:class:`torch_geometric.nn.GINConv` with the same parameters and outputs, and the same bits every time.

    Bipartite graphs, sparse adjacencies, explainers and hooks take PyG's own way.

    Args:
        nn (torch.nn.Module): What the sum of a node and its neighbours goes through.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.GINConv`.
    """

    propagate_type: ClassVar = {"x": OptPairTensor}

    def forward(self, x: Any, edge_index: Any, size: Any = None, *, whole: Whole | None = None) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.GINConv`, :class:`GCNConv`."""
        if not isinstance(x, Tensor) or self.sends_messages(edge_index):
            return super().forward(x, edge_index, size)
        x = ops.dense(x)
        neighbours = self.neighbours(x, edge_index)
        if whole is None:
            weights = x.new_ones(neighbours.union.rows.num_entries)
        else:
            weights = neighbours.drawn_weights(whole, x.dtype)
        out = neighbours.sum(x, weights)
        return ops.apply(cast("nn.Module", self.nn), out + (1 + self.eps.unsqueeze(-1)) * x)


class GINEConv(torch_geometric.nn.GINEConv, DeterministicConv):
    """:class:`torch_geometric.nn.GINEConv` with the same parameters and outputs, and the same bits every
    time.

    Bipartite graphs, sparse adjacencies, explainers and hooks take PyG's own way.

    Args:
        nn (torch.nn.Module): What the sum of a node and its neighbours goes through.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.GINEConv`.
    """

    propagate_type: ClassVar = {"x": OptPairTensor, "edge_attr": OptTensor}

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: OptTensor = None,
        size: Any = None,
        *,
        whole: Whole | None = None,
    ) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.GINEConv`, :class:`GCNConv`."""
        if not isinstance(x, Tensor) or edge_attr is None or self.sends_messages(edge_index, edge_attr):
            return super().forward(x, edge_index, edge_attr, size)
        check_edge_values("edge_attr", edge_attr, "[num_edges, edge_dim]", edge_index)
        attr = edge_attr if self.lin is None else ops.apply(self.lin, edge_attr)
        if attr.dim() > x.dim():  # the first layer of R runs, whose features are the same
            x = x.expand(attr.size(0), *x.shape)
        neighbours = self.neighbours(x, edge_index)
        sources = F.embedding(neighbours.union.index, x.flatten(0, -2)).view(*x.shape[:-2], -1, x.size(-1))
        rows = (sources + neighbours.per_entry(attr, dim=-2)).relu()
        if whole is not None:
            rows = rows * neighbours.drawn_weights(whole, x.dtype)[:, None]
        out = neighbours.sum_entries(rows)
        return ops.apply(cast("nn.Module", self.nn), out + (1 + self.eps.unsqueeze(-1)) * x)

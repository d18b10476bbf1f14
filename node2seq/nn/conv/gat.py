"""The graph attention layer of PyTorch Geometric, aggregated deterministically."""

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from node2seq import ops
from node2seq.nn.conv.base import DeterministicConv, Neighbours
from node2seq.nn.conv.edge_inputs import check_edge_values
from node2seq.nn.dropout import Dropout


class GATConv(torch_geometric.nn.GATConv, DeterministicConv):
    """:class:`torch_geometric.nn.GATConv` with the same parameters and outputs, and the same bits every time.

    The heads are summed as so many copies of the graph, row by row over a plan. Sparse adjacencies,
    explainers and hooks take PyG's own way, with PyG's own dropout.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int): Size of each output sample per head.
        heads (int): Number of attentions.
        layer (int): Which dropout of the network the dropout of the attention is.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.GATConv`.
    """

    propagate_type: ClassVar = {"x": OptPairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar = {"alpha": OptPairTensor, "edge_attr": OptTensor}

    def __init__(
        self, in_channels: int, out_channels: int, heads: int = 1, *, layer: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(in_channels, out_channels, heads, **kwargs)
        self.attention_dropout = Dropout(self.dropout, layer)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seed of the dropout, anew."""
        super().reset_parameters()
        if hasattr(self, "attention_dropout"):  # PyG's constructor calls this before there is one
            self.attention_dropout.reset_parameters()

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Tensor,
        edge_index: Any,
        edge_attr: OptTensor = None,
        *,
        n_id: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or SparseTensor): The edges.
            edge_attr (torch.Tensor, optional): The attributes of each edge, for a layer with ``edge_dim``.
            n_id (torch.Tensor, optional): The nodes' ids in the graph that this is a part of.
            **kwargs: See :meth:`torch_geometric.nn.GATConv.forward`.
        """
        is_matrix = isinstance(x, (Tensor, ops.SparseRows))
        default = is_matrix and not kwargs and self.res is None
        # The attributes of self entries are the means of the others by default.
        is_mean = not self.add_self_loops or (self.fill_value == "mean" and self.flow == "source_to_target")
        carried = edge_attr if self.lin_edge is not None else None
        default = default and (is_mean or carried is None)
        if self.lin is None or not default or self.sends_messages(edge_index, carried):
            return super().forward(ops.dense(x), edge_index, edge_attr, **kwargs)
        projected = ops.apply(self.lin, x)  # [N, H * C]
        neighbours = self.neighbours(
            projected, edge_index, add_self_loops=self.add_self_loops, heads=self.heads
        )
        values = projected.unflatten(-1, (self.heads, self.out_channels)).transpose(-3, -2)  # [H, N, C]
        source, target = (  # [H * N]
            (values * att.transpose(-3, -2)).sum(-1).view(-1) for att in (self.att_src, self.att_dst)
        )
        if carried is None:
            backend, sequences = neighbours.backend, neighbours.union
        else:  # each entry has a value of its own
            backend, sequences = neighbours.by_position
            source = source[neighbours.union.index] + self._of_entries(carried, neighbours)
        alpha = backend.attention(source, target, sequences, self.negative_slope)  # [H * E]
        alpha = self._drop(alpha.view(*values.shape[:-2], -1), neighbours.sequences, n_id).reshape(-1)
        out = neighbours.sum(values, alpha)
        out = out.transpose(-3, -2).flatten(-2) if self.concat else out.mean(dim=-3)
        return ops.add_bias(out, self.bias)

    def _of_entries(self, edge_attr: Tensor, neighbours: Neighbours) -> Tensor:
        """What the attributes add to each entry before the softmax, [H * E]."""
        edge_attr = edge_attr[:, None] if edge_attr.dim() == 1 else edge_attr
        check_edge_values("edge_attr", edge_attr, "[num_edges, edge_dim]", neighbours.edge_index)
        assert self.lin_edge is not None
        values = ops.apply(self.lin_edge, edge_attr).unflatten(-1, (self.heads, self.out_channels))
        values = neighbours.per_entry((values * self.att_edge).sum(-1).transpose(-2, -1))  # [H, E]
        if self.add_self_loops:
            # The mean of the projections is the projection of the mean.
            rows, target = neighbours.sequences.rows, neighbours.sequences.rows.target
            is_own = target == neighbours.sequences.index
            flat = values.flatten(0, -2).t().masked_fill(is_own[:, None], 0.0)  # [E, H]
            total = flat.new_zeros(rows.num_rows + 1, flat.size(1)).index_put(
                (target,), flat, accumulate=True
            )
            others = torch.cat([rows.length() - 1, rows.ptr.new_ones(1)]).clamp(min=1)
            mean = (total / others[:, None])[target].t().view(values.shape)
            values = torch.where(is_own, mean, values)
        return values.reshape(-1)

    def _drop(self, alpha: Tensor, sequences: ops.Sequences, n_id: Tensor | None) -> Tensor:
        """Drops attentions by the ids of their two nodes, so that it matters not how batches are cut."""
        dropout = self.attention_dropout
        if not dropout.drops:
            return alpha
        source, target = sequences.index, sequences.rows.target
        if n_id is not None:
            source, target = n_id[source], n_id[target]
        edge = ops.pair_word(target.new_zeros(()), target, source)
        return dropout(alpha.transpose(-2, -1), edge).transpose(-2, -1)

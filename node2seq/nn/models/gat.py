"""The graph attention network, and its layer aggregated deterministically."""

from typing import Any, ClassVar

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import OptPairTensor, OptTensor

from node2seq import ops
from node2seq.nn.adjacency import sequences_of
from node2seq.nn.fusing import can_fuse
from node2seq.nn.models.capturing import Capturable
from node2seq.nn.models.dropouts import make_dropout, make_dropouts


class GATConv(torch_geometric.nn.GATConv):
    """:class:`torch_geometric.nn.GATConv` with the same parameters and outputs, and the same bits every time.

    The heads are summed as so many copies of the graph, row by row over a plan. Edge features, sparse
    adjacencies, explainers and hooks take PyG's own way, with PyG's own dropout.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int): Size of each output sample per head.
        heads (int): Number of attentions.
        layer (int): Which dropout of the network the dropout of the attention is.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.GATConv`.
    """

    # PyG reads the arguments off the source of a class of that name, and takes ours for its own.
    propagate_type: ClassVar = {"x": OptPairTensor, "alpha": Tensor}
    propagate = MessagePassing.propagate  # and not the code that it generated for its own
    edge_updater_type: ClassVar = {"alpha": OptPairTensor, "edge_attr": OptTensor}
    edge_updater = MessagePassing.edge_updater

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        *,
        layer: int = 0,
        backend: str = "auto",
        **kwargs: Any,
    ) -> None:
        ops.check_backend(backend)
        super().__init__(in_channels, out_channels, heads, **kwargs)
        self.backend = backend
        self.attention_dropout = make_dropout(self.dropout, layer)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seed of the dropout, anew."""
        super().reset_parameters()
        if hasattr(self, "attention_dropout"):  # PyG's constructor calls this before there is one
            self.attention_dropout.reset_parameters()

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor, edge_index: Any, n_id: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or SparseTensor): The edges.
            n_id (torch.Tensor, optional): The nodes' ids in the graph that this is a part of.
            **kwargs: See :meth:`torch_geometric.nn.GATConv.forward`.
        """
        if not self._can_fuse(x, edge_index, kwargs):
            return super().forward(ops.dense(x), edge_index, **kwargs)
        nodes = x.size(-2)
        sequences, _ = sequences_of(
            edge_index,
            flow=self.flow,
            num_sources=nodes,
            num_targets=nodes,
            add_self_loops=self.add_self_loops,
            merge_duplicates=False,  # PyG counts an edge as often as it is listed
            backend=self.backend,
        )
        assert self.lin is not None
        projected = ops.apply(self.lin, x)
        runs = projected.shape[:-2]  # none, or R: the heads of R runs are R * H copies of the graph
        by_head = sequences.copies(ops.runs_of(projected) * self.heads)
        values = projected.view(*runs, nodes, self.heads, self.out_channels).transpose(-3, -2)  # [H, N, C]
        backend = ops.choose_backend(self.backend, values)
        source, target = (  # [H * N]
            (values * att.transpose(-3, -2)).sum(-1).view(-1) for att in (self.att_src, self.att_dst)
        )
        alpha = backend.attention(source, target, by_head, self.negative_slope)  # [H * E]
        alpha = self._drop(alpha.view(*runs, self.heads, -1), sequences, n_id).reshape(-1)
        out = backend.aggregate(values.reshape(-1, self.out_channels), by_head, alpha)
        out = out.view(*runs, self.heads, nodes, self.out_channels)
        out = out.transpose(-3, -2).reshape(*runs, nodes, -1) if self.concat else out.mean(dim=-3)
        return ops.add_bias(out, self.bias)

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

    def _can_fuse(self, x: Any, edge_index: Any, kwargs: dict[str, Any]) -> bool:
        default = self.lin is not None and self.res is None and self.edge_dim is None
        return (
            default and isinstance(x, (Tensor, ops.SparseRows)) and not kwargs and can_fuse(self, edge_index)
        )


class GAT(Capturable):
    """The two-layer network of the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first layer's output per head.
        out_channels (int): Number of classes.
        heads (int): Attentions of the first layer, concatenated. (default: :obj:`8`)
        out_heads (int): Attentions of the second layer, averaged. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.6`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.6`)
        attention_dropout (float): Dropout of the attention weights. (default: :obj:`0.6`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        heads: int = 8,
        out_heads: int = 1,
        input_dropout: float = 0.6,
        dropout: float = 0.6,
        attention_dropout: float = 0.6,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.heads = heads
        self.out_heads = out_heads
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.backend = backend
        width = heads * hidden_channels
        self.dropouts = make_dropouts(input_dropout, dropout)
        self.convs = nn.ModuleList(
            [
                GATConv(
                    in_channels, hidden_channels, heads, layer=2, dropout=attention_dropout, backend=backend
                ),
                GATConv(
                    width,
                    out_channels,
                    out_heads,
                    concat=False,
                    layer=3,
                    dropout=attention_dropout,
                    backend=backend,
                ),
            ]
        )

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (*self.convs, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, heads * H]."""
        return F.elu(self.convs[0](self.dropouts[0](x, n_id), edge_index, n_id))

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return self.convs[1](self.dropouts[1](self.embed(x, edge_index, n_id), n_id), edge_index, n_id)

"""The graph isomorphism network for node classification, and its layer aggregated deterministically."""

from typing import Any, ClassVar, cast

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import OptPairTensor

from node2seq import ops
from node2seq.nn.adjacency import sequences_of
from node2seq.nn.fusing import can_fuse
from node2seq.nn.models.capturing import Capturable
from node2seq.nn.models.dropouts import make_dropouts


class GINConv(torch_geometric.nn.GINConv):
    """:class:`torch_geometric.nn.GINConv` with the same parameters and outputs, and the same bits every time.

    Bipartite graphs, sparse adjacencies, explainers and hooks take PyG's own way.
    """

    # PyG reads the arguments off the source of a class of that name, and takes ours for its own.
    propagate_type: ClassVar = {"x": OptPairTensor}
    propagate = MessagePassing.propagate  # and not the code that it generated for its own

    def __init__(self, nn: nn.Module, *, backend: str = "auto", **kwargs: Any) -> None:
        ops.check_backend(backend)
        super().__init__(nn, **kwargs)
        self.backend = backend

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.GINConv`."""
        if not isinstance(x, Tensor) or not can_fuse(self, edge_index):
            return super().forward(x, edge_index, size)
        sequences, _ = sequences_of(
            edge_index,
            flow=self.flow,
            num_sources=x.size(-2),
            num_targets=x.size(-2),
            add_self_loops=False,
            merge_duplicates=False,  # PyG counts an edge as often as it is listed
            backend=self.backend,
        )
        union = sequences.copies(ops.runs_of(x))
        ones = x.new_ones(union.rows.num_entries)
        out = ops.choose_backend(self.backend, x).aggregate(x.flatten(0, -2), union, ones).view(x.shape)
        return ops.apply(cast("nn.Module", self.nn), out + (1 + self.eps.unsqueeze(-1)) * x)


class GIN(Capturable):
    """A two-layer network with the layers of the `"How Powerful are Graph Neural Networks?"
    <https://arxiv.org/abs/1810.00826>`_ paper and a linear classifier.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of both layers' outputs.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        input_dropout: float = 0.5,
        dropout: float = 0.5,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.backend = backend
        self.convs = nn.ModuleList(
            GINConv(_two_layers(width, hidden_channels), train_eps=True, backend=backend)
            for width in (in_channels, hidden_channels)
        )
        self.lin = nn.Linear(hidden_channels, out_channels)
        self.dropouts = make_dropouts(input_dropout, dropout, dropout)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (*self.convs, self.lin, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, H]."""
        for conv, dropout in zip(self.convs, self.dropouts[:2], strict=True):
            x = F.relu(conv(dropout(x, n_id), edge_index))
        return x

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return ops.apply(self.lin, self.dropouts[2](self.embed(x, edge_index, n_id), n_id))


def _two_layers(width: int, hidden: int) -> nn.Sequential:
    # No bias ahead of the normalisation, which would subtract it again.
    return nn.Sequential(
        nn.Linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, hidden)
    )

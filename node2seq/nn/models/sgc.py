"""The simplified graph convolution, and its layer aggregated deterministically."""

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import OptTensor

from node2seq import ops
from node2seq.nn.adjacency import sequences_of
from node2seq.nn.fusing import can_fuse
from node2seq.nn.models.capturing import Capturable
from node2seq.nn.models.dropouts import make_dropouts


class SGConv(torch_geometric.nn.SGConv):
    """:class:`torch_geometric.nn.SGConv` with the same parameters and outputs, and the same bits every time.

    Projects first, which is the same and sends ``out_channels`` numbers along an edge instead of
    ``in_channels``. Weighted graphs, sparse adjacencies, explainers and hooks take PyG's own way.
    """

    # PyG reads the arguments off the source of a class of that name, and takes ours for its own.
    propagate_type: ClassVar = {"x": Tensor, "edge_weight": OptTensor}
    propagate = MessagePassing.propagate  # and not the code that it generated for its own

    def __init__(
        self, in_channels: int, out_channels: int, K: int = 1, *, backend: str = "auto", **kwargs: Any
    ) -> None:
        ops.check_backend(backend)
        super().__init__(in_channels, out_channels, K, **kwargs)
        self.backend = backend

    def forward(self, x: Tensor, edge_index: Any, edge_weight: OptTensor = None) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.SGConv`."""
        if edge_weight is not None or self.cached or not can_fuse(self, edge_index):
            return super().forward(ops.dense(x), edge_index, edge_weight)
        x = ops.linear(x, self.lin.weight)
        backend = ops.choose_backend(self.backend, x)
        sequences, _ = sequences_of(
            edge_index,
            flow=self.flow,
            num_sources=x.size(-2),
            num_targets=x.size(-2),
            add_self_loops=self.add_self_loops,
            merge_duplicates=False,  # PyG counts an edge as often as it is listed
            backend=self.backend,
        )
        union, shape = sequences.copies(ops.runs_of(x)), x.shape
        x = x.flatten(0, -2)
        for _ in range(self.K):
            x = backend.aggregate(x, union, union.gcn_weights(x.dtype))
        return ops.add_bias(x.view(shape), self.lin.bias)


class SGC(Capturable):
    """The one-layer network of the `"Simplifying Graph Convolutional Networks"
    <https://arxiv.org/abs/1902.07153>`_ paper: a linear classifier of features spread over K hops.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Not used: there is no hidden layer.
        out_channels (int): Number of classes.
        K (int): Number of hops. (default: :obj:`2`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        K: int = 2,
        input_dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.K = K
        self.input_dropout = input_dropout
        self.backend = backend
        self.conv = SGConv(in_channels, out_channels, K, backend=backend)
        self.dropouts = make_dropouts(input_dropout)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seed of the dropout, anew."""
        for module in (self.conv, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings: with no hidden layer, the logits themselves, [N, out_channels]."""
        return self.conv(self.dropouts[0](x, n_id), edge_index)

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return self.embed(x, edge_index, n_id)

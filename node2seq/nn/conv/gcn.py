"""The GCN layer of PyTorch Geometric, aggregated deterministically."""

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import Adj, OptTensor

from node2seq import ops
from node2seq.nn.adjacency import sequences_of
from node2seq.nn.fusing import can_fuse


class GCNConv(torch_geometric.nn.GCNConv):
    """:class:`torch_geometric.nn.GCNConv` with the same parameters and outputs, and the same bits every time.

    PyG scatters messages, which races on a GPU. Here an unweighted graph is summed row by row over a plan
    that is built once per edge index. Weighted graphs, sparse adjacencies, explainers and hooks take PyG's
    own way.
    """

    # PyG reads the arguments off the source of the class, which it looks up by name: ours hides its own.
    propagate_type: ClassVar = {"x": Tensor, "edge_weight": OptTensor}
    # Not the code that PyG generates for its own layer, which explainers cannot enter.
    propagate = MessagePassing.propagate

    def __init__(self, in_channels: int, out_channels: int, *, backend: str = "auto", **kwargs: Any) -> None:
        ops.check_backend(backend)
        super().__init__(in_channels, out_channels, **kwargs)
        self.backend = backend

    def forward(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.GCNConv`."""
        if not self._can_fuse(edge_index, edge_weight):
            return super().forward(ops.dense(x), edge_index, edge_weight)
        sequences, _ = sequences_of(
            edge_index,
            flow=self.flow,
            num_sources=x.size(-2),
            num_targets=x.size(-2),
            add_self_loops=self.add_self_loops,
            merge_duplicates=False,  # PyG counts an edge as often as it is listed
            backend=self.backend,
        )
        x = ops.apply(self.lin, x)
        backend = ops.choose_backend(self.backend, x)
        union = sequences.copies(ops.runs_of(x))
        out = backend.aggregate(x.flatten(0, -2), union, union.gcn_weights(x.dtype)).view(x.shape)
        return ops.add_bias(out, self.bias)

    def _can_fuse(self, edge_index: Any, edge_weight: OptTensor) -> bool:
        default = self.normalize and not self.improved and self.decomposed_layers == 1
        return default and edge_weight is None and can_fuse(self, edge_index)

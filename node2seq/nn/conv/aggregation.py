"""What layers that add up neighbours share: one pass over a plan of the edges instead of single messages."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import is_torch_sparse_tensor

from node2seq import ops
from node2seq.nn.adjacency import sequences_of
from node2seq.nn.hooks import has_message_hooks


class Neighbours:
    """The neighbours of each node, an edge as often as it is listed, and the backend that reads them.

    Args:
        x (torch.Tensor): The features that are read: [N, C], or [R, N, C] for R runs at once.
        edge_index (torch.Tensor or SparseTensor): The edges.
        add_self_loops (bool): Whether a node is its own neighbour.
        flow (str): See :class:`torch_geometric.nn.MessagePassing`. (default: :obj:`"source_to_target"`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        heads (int): How often each run reads the graph. (default: :obj:`1`)
    """

    def __init__(
        self,
        x: Tensor,
        edge_index: Any,
        *,
        add_self_loops: bool,
        flow: str = "source_to_target",
        backend: str = "auto",
        heads: int = 1,
    ) -> None:
        self.sequences = sequences_of(
            edge_index,
            flow=flow,
            num_sources=x.size(-2),
            num_targets=x.size(-2),
            add_self_loops=add_self_loops,
            merge_duplicates=False,  # PyG counts an edge as often as it is listed
            backend=backend,
        )
        # R runs are the disjoint union of R copies of the graph.
        self.union = self.sequences.copies(ops.runs_of(x) * heads)
        self.backend = ops.choose_backend(backend, x)

    def sum(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """The weighted sum of a node's neighbours, in the shape of ``x``; with GCN's weights by default.

        Under autocast one of the two may be rounded to 16 bits: the sum has the precision of the other.
        """
        if weights is None:
            weights = self.union.gcn_weights(x.dtype)
        dtype = torch.promote_types(x.dtype, weights.dtype)
        flat, weights = x.flatten(0, -2).to(dtype), weights.to(dtype)
        return self.backend.aggregate(flat, self.union, weights).view(x.shape)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of a node's neighbours, in the shape of ``x``; zero for a node without any."""
        rows = self.union.rows
        total = self.sum(x, x.new_ones(rows.num_entries))
        return total / rows.length().clamp(min=1).to(x.dtype).view(*x.shape[:-1], 1)


class DeterministicConv(MessagePassing):
    """The second base of a layer whose first is one of PyTorch Geometric, with the same parameters.

    PyG scatters messages, which races on a GPU. Such a layer reads :meth:`neighbours` where it can and leaves
    the rest to PyG.

    Args:
        *args: See :class:`torch_geometric.nn.MessagePassing`.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.MessagePassing`.
    """

    if TYPE_CHECKING:  # PyG's layers give these other arguments than their base does
        message: Any
        message_and_aggregate: Any
        edge_update: Any

    def __init__(self, *args: Any, backend: str = "auto", **kwargs: Any) -> None:
        ops.check_backend(backend)
        super().__init__(*args, **kwargs)
        self.backend = backend

    # PyG looks up the arguments of `propagate` in the source of the class, by its name. Subclasses are named
    # like PyG's own layers and hide them, so each states its `propagate_type`.
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Not the code that PyG generates for its own layer, which explainers cannot enter.
        cls.propagate = MessagePassing.propagate
        cls.edge_updater = MessagePassing.edge_updater

    def sends_messages(self, edge_index: Any) -> bool:
        """Whether single messages are needed: for a sparse adjacency, an explainer or a hook."""
        is_plain = isinstance(edge_index, Tensor) and not is_torch_sparse_tensor(edge_index)
        return not is_plain or has_message_hooks(self)

    def neighbours(
        self, x: Tensor, edge_index: Any, *, add_self_loops: bool = False, heads: int = 1
    ) -> Neighbours:
        """Each node's neighbours, for features such as ``x``."""
        return Neighbours(
            x,
            edge_index,
            add_self_loops=add_self_loops,
            flow=self.flow,
            backend=self.backend,
            heads=heads,
        )

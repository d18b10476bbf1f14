"""The Chebyshev network, and its layer aggregated deterministically."""

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import OptTensor

from node2seq import ops
from node2seq.nn.adjacency import sequences_of
from node2seq.nn.fusing import can_fuse
from node2seq.nn.models.dropouts import make_dropouts
from node2seq.nn.models.two_layers import TwoLayers


class ChebConv(torch_geometric.nn.ChebConv):
    """:class:`torch_geometric.nn.ChebConv` with the same parameters and outputs, and the same bits every
    time.

    Projects first and sums the polynomials from the last to the first (Clenshaw's recurrence), so that only
    ``out_channels`` numbers travel along an edge. Weighted graphs, other normalisations, sparse
    adjacencies, explainers and hooks take PyG's own way.
    """

    # PyG reads the arguments off the source of a class of that name, and takes ours for its own.
    propagate_type: ClassVar = {"x": Tensor, "norm": Tensor}
    propagate = MessagePassing.propagate  # and not the code that it generated for its own

    def __init__(
        self, in_channels: int, out_channels: int, K: int, *, backend: str = "auto", **kwargs: Any
    ) -> None:
        ops.check_backend(backend)
        super().__init__(in_channels, out_channels, K, **kwargs)
        self.backend = backend

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: OptTensor = None,
        batch: OptTensor = None,
        lambda_max: OptTensor = None,
    ) -> Tensor:
        """Runs the forward pass of the module; see :class:`torch_geometric.nn.ChebConv`."""
        default = edge_weight is None and lambda_max is None and self.normalization == "sym"
        if not (default and can_fuse(self, edge_index)):
            return super().forward(ops.dense(x), edge_index, edge_weight, batch, lambda_max)
        sequences, _ = sequences_of(
            edge_index,
            flow=self.flow,
            num_sources=x.size(-2),
            num_targets=x.size(-2),
            add_self_loops=False,
            merge_duplicates=False,  # PyG counts an edge as often as it is listed
            backend=self.backend,
        )
        weights = torch.cat([lin.weight for lin in self.lins], dim=-2)  # pyright: ignore[reportCallIssue, reportArgumentType]
        projected = ops.linear(x, weights)
        union = sequences.copies(ops.runs_of(projected))
        laplacian = _scaled_laplacian(union, x.dtype)
        terms = projected.flatten(0, -2).split(self.out_channels, dim=1)
        backend = ops.choose_backend(self.backend, terms[0])
        later, latest = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
        for term in reversed(terms[1:]):
            later, latest = term + 2.0 * backend.aggregate(later, union, laplacian) - latest, later
        out = terms[0] - latest
        if len(terms) > 1:
            out = out + backend.aggregate(later, union, laplacian)
        return ops.add_bias(out.view(*projected.shape[:-1], -1), self.bias)


def _scaled_laplacian(sequences: ops.Sequences, dtype: torch.dtype) -> Tensor:
    """Each entry's weight in 2 L / λ − I for λ = 2: minus the normalised adjacency without self loops."""
    target, source = sequences.rows.target, sequences.index
    loop = target == source
    # Whole numbers, so the sums are exact in any order; no shape depends on values.
    degree = source.new_zeros(sequences.num_sources).index_add(0, source, (~loop).long())
    scale = degree.to(dtype).pow(-0.5)
    scale = scale.masked_fill(scale.isinf(), 0.0)
    return (-scale[target] * scale[source]).masked_fill(loop, 0.0)


class Cheby(TwoLayers):
    """The two-layer network with the filters of the `"Convolutional Neural Networks on Graphs with Fast
    Localized Spectral Filtering" <https://arxiv.org/abs/1606.09375>`_ paper.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        K (int): Number of polynomials, so that K − 1 hops are seen. (default: :obj:`3`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        K: int = 3,
        input_dropout: float = 0.5,
        dropout: float = 0.5,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.K = K
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.backend = backend
        self.convs = nn.ModuleList(
            [
                ChebConv(in_channels, hidden_channels, K, backend=backend),
                ChebConv(hidden_channels, out_channels, K, backend=backend),
            ]
        )
        self.dropouts = make_dropouts(input_dropout, dropout)

"""The large-scale learnable graph convolutional network, and its layer."""

from typing import Any

import torch
from torch import Tensor, nn

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.adjacency import sequences_of
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.dropout import Dropout
from node2seq.nn.models.capturing import Capturable
from node2seq.nn.models.dropouts import make_dropouts


class LGCL(nn.Module):
    """The learnable graph convolutional layer: per channel the k largest neighbour values, behind the node's
    own, as a short sequence that two 1D convolutions reduce to one element.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int): Size of each output sample.
        k (int): How many values of the neighbours are kept; an even number. (default: :obj:`8`)
        dropout (float): Dropout of the input and between the convolutions. (default: :obj:`0.0`)
        layer (int): The number of the first of the two dropouts. (default: :obj:`0`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        k: int = 8,
        *,
        dropout: float = 0.0,
        layer: int = 0,
        backend: str = "auto",
    ) -> None:
        if k < 2 or k % 2:
            raise Node2SeqError(
                f"k={k}", "two kernels of k / 2 + 1 reduce k + 1 values to one", "Give an even number"
            )
        ops.check_backend(backend)
        super().__init__()
        self.k = k
        self.backend = backend
        middle, kernel_size = (in_channels + out_channels) // 2, k // 2 + 1
        self.conv1 = nn.Conv1d(in_channels, middle, kernel_size)
        # Without a bias, which the normalisation would subtract again.
        self.conv2 = nn.Conv1d(middle, out_channels, kernel_size, bias=False)
        self.norm = nn.BatchNorm1d(out_channels)
        self.dropouts = nn.ModuleList([Dropout(dropout, layer), Dropout(dropout, layer + 1)])

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (self.conv1, self.conv2, self.norm, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The layer's output, [N, out_channels]."""
        sequences, _ = sequences_of(
            edge_index,
            flow="source_to_target",
            num_sources=x.size(-2),
            num_targets=x.size(-2),
            add_self_loops=True,
            merge_duplicates=False,
            backend=self.backend,
        )
        backend = ops.choose_backend(self.backend, x)
        x = self.dropouts[0](x, n_id)
        union = sequences.copies(ops.runs_of(x))
        values = backend.largest(x.flatten(0, -2), union, union.gcn_weights(x.dtype), self.k)
        values = values.view(*x.shape[:-1], self.k, -1)
        hidden = _convolve(self.conv1, torch.cat([x.unsqueeze(-2), values], dim=-2))  # [N, 1 + k / 2, middle]
        hidden = self.dropouts[1](hidden.flatten(-2), n_id).view_as(hidden)
        return ops.apply(self.norm, _convolve(self.conv2, hidden).squeeze(-2))


def _convolve(conv: nn.Conv1d, sequence: Tensor) -> Tensor:
    """The convolution over [N, length, C] as one matrix product: cuDNN may not be deterministic."""
    windows = sequence.unfold(-2, conv.kernel_size[0], 1)  # [N, places, C, taps]
    *rows, places = windows.shape[:-2]
    flat = windows.flatten(-2).reshape(*rows[:-1], rows[-1] * places, -1)
    return ops.linear(flat, conv.weight.flatten(-2), conv.bias).view(*rows, places, -1)


class LGCN(Capturable):
    """The network of the `"Large-Scale Learnable Graph Convolutional Networks"
    <https://arxiv.org/abs/1808.03965>`_ paper: a GCN layer as embedding, layers that add their output to
    their input's channels, a GCN layer as classifier.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the embedding.
        out_channels (int): Number of classes.
        num_lgcl (int): Number of learnable layers between the two GCN layers. (default: :obj:`2`)
        lgcl_channels (int): How many channels each of them adds. (default: :obj:`8`)
        k (int): How many values of the neighbours they keep per channel. (default: :obj:`8`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.84`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.84`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_lgcl: int = 2,
        lgcl_channels: int = 8,
        k: int = 8,
        input_dropout: float = 0.84,
        dropout: float = 0.84,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_lgcl = num_lgcl
        self.lgcl_channels = lgcl_channels
        self.k = k
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.backend = backend
        self.embedding = GCNConv(in_channels, hidden_channels, backend=backend)
        self.dropouts = make_dropouts(input_dropout, dropout)
        width = hidden_channels
        self.layers = nn.ModuleList()
        for number in range(num_lgcl):
            first = len(self.dropouts) + 2 * number
            self.layers.append(LGCL(width, lgcl_channels, k, dropout=dropout, layer=first, backend=backend))
            width += lgcl_channels
        self.classifier = GCNConv(width, out_channels, backend=backend)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (self.embedding, *self.layers, self.classifier, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, H + num_lgcl * lgcl_channels]."""
        x = self.embedding(self.dropouts[0](x, n_id), edge_index)
        for layer in self.layers:
            x = torch.cat([x, layer(x, edge_index, n_id)], dim=-1)
        return x

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return self.classifier(self.dropouts[1](self.embed(x, edge_index, n_id), n_id), edge_index)

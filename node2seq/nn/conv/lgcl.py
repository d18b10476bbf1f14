"""The learnable graph convolutional layer."""

from typing import Any

import torch
from torch import Tensor, nn

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.base import Neighbours, Whole
from node2seq.nn.dropout import make_dropouts


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
        self.dropouts = make_dropouts(dropout, dropout, start=layer)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (self.conv1, self.conv2, self.norm, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def forward(
        self, x: Tensor, edge_index: Any, n_id: Tensor | None = None, whole: Whole | None = None
    ) -> Tensor:
        """The layer's output, [N, out_channels]."""
        x = self.dropouts[0](x, n_id)
        neighbours = Neighbours(x, edge_index, add_self_loops=True, backend=self.backend)
        weights = neighbours.gcn_weights(None, whole, x.dtype)
        values = neighbours.backend.largest(x.flatten(0, -2), neighbours.union, weights, self.k)
        values = values.view(*x.shape[:-1], self.k, x.size(-1))
        hidden = _convolve(self.conv1, torch.cat([x.unsqueeze(-2), values], dim=-2))  # [N, 1 + k / 2, middle]
        hidden = self.dropouts[1](hidden.flatten(-2), n_id).view_as(hidden)
        return ops.apply(self.norm, _convolve(self.conv2, hidden).squeeze(-2))


def _convolve(conv: nn.Conv1d, sequence: Tensor) -> Tensor:
    """The convolution over [N, length, C] as one matrix product: cuDNN may not be deterministic."""
    windows = sequence.unfold(-2, conv.kernel_size[0], 1)  # [N, places, C, taps]
    *rows, places = windows.shape[:-2]
    flat = windows.flatten(-2).flatten(-3, -2)  # [N * places, C * taps]
    return ops.linear(flat, conv.weight.flatten(-2), conv.bias).view(*rows, places, conv.out_channels)

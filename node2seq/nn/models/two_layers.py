"""What networks of two plain layers have in common."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq.nn.models.capturing import Capturable


class TwoLayers(Capturable):
    """Dropout, a layer, ReLU, dropout, a layer; a subclass makes ``convs`` and ``dropouts``, two of each."""

    convs: nn.ModuleList
    dropouts: nn.ModuleList

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (*self.convs, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, H]."""
        return F.relu(self.convs[0](self.dropouts[0](x, n_id), edge_index))

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels]; see :meth:`Node2Seq.forward`."""
        return self.convs[1](self.dropouts[1](self.embed(x, edge_index, n_id), n_id), edge_index)

"""The Node2Seq network, and the same network with a GCN layer in the Node2Seq layer's place."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from node2seq.conv import Node2SeqConv
from node2seq.errors import check_choice
from node2seq.gcn import GCNConv
from node2seq.models.dropouts import make_dropouts

SKIPS = ("sum", "concat")
LAYERS = ("node2seq", "gcn")
ACTIVATIONS = {"relu": F.relu, "elu": F.elu}


class Node2Seq(nn.Module):
    r"""The network of the `"Node2Seq: Towards Trainable Convolutions in Graph Neural Networks"
    <https://arxiv.org/abs/2101.01849>`_ paper: one Node2Seq layer and two GCN layers, the outputs of the
    first two combined before the third.

    .. math::
        \mathbf{H}_1 = \sigma(f_1(\mathbf{X})), \qquad \mathbf{H}_2 = \sigma(f_2(\mathbf{H}_1)), \qquad
        \mathbf{Z} = f_3(\mathbf{H}_1 \oplus \mathbf{H}_2)

    Everything that the paper leaves open is an option.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first two layers' outputs.
        out_channels (int): Number of classes.
        position (int): Which of the three layers is the Node2Seq layer: 1, 2 or 3. (default: :obj:`2`)
        kernel_size (int): Taps of the Node2Seq layer. (default: :obj:`3`)
        readout (str): Its readout: :obj:`"max"`, :obj:`"mean"` or :obj:`"sum"`. (default: :obj:`"max"`)
        hops (int): How far away its neighbours may be. (default: :obj:`1`)
        threshold (float): The score a neighbour has to exceed to stay. (default: :obj:`0.0`)
        root (str): :obj:`"projected"` or :obj:`"input"`; see :class:`Node2SeqConv`.
            (default: :obj:`"projected"`)
        nonlocal_order (str): :obj:`"joint"` or :obj:`"local-first"`; see :class:`Node2SeqConv`.
            (default: :obj:`"joint"`)
        order (str): What its neighbours are sorted by: :obj:`"attention"`, :obj:`"degree"` or
            :obj:`"random"`; see :class:`Node2SeqConv`. (default: :obj:`"attention"`)
        conv_scale (float): Factor on the initial weights of the convolution. (default: :obj:`1.0`)
        skip (str): How the first two outputs are combined: :obj:`"sum"` or :obj:`"concat"`.
            (default: :obj:`"sum"`)
        activation (str): :obj:`"relu"` or :obj:`"elu"`. (default: :obj:`"relu"`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        layer (str): :obj:`"node2seq"`, or :obj:`"gcn"` to put a GCN layer in its place: the paper's GCN*.
            (default: :obj:`"node2seq"`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        position: int = 2,
        kernel_size: int = 3,
        readout: str = "max",
        hops: int = 1,
        threshold: float = 0.0,
        root: str = "projected",
        nonlocal_order: str = "joint",
        order: str = "attention",
        conv_scale: float = 1.0,
        skip: str = "sum",
        activation: str = "relu",
        input_dropout: float = 0.5,
        dropout: float = 0.5,
        layer: str = "node2seq",
        backend: str = "auto",
    ) -> None:
        check_choice("position", position, (1, 2, 3))
        check_choice("skip", skip, SKIPS)
        check_choice("activation", activation, ACTIVATIONS)
        check_choice("layer", layer, LAYERS)
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.position = position
        self.kernel_size = kernel_size
        self.readout = readout
        self.hops = hops
        self.threshold = threshold
        self.root = root
        self.nonlocal_order = nonlocal_order
        self.order = order
        self.conv_scale = conv_scale
        self.skip = skip
        self.activation = activation
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.layer = layer
        self.backend = backend
        joined = 2 * hidden_channels if skip == "concat" else hidden_channels
        widths = [
            (in_channels, hidden_channels),
            (hidden_channels, hidden_channels),
            (joined, out_channels),
        ]
        self.convs = nn.ModuleList()
        for place, (width_in, width_out) in enumerate(widths, start=1):
            if place == position and layer == "node2seq":
                conv: nn.Module = Node2SeqConv(
                    width_in,
                    width_out,
                    kernel_size,
                    readout=readout,
                    hops=hops,
                    threshold=threshold,
                    root=root,
                    nonlocal_order=nonlocal_order,
                    order=order,
                    backend=backend,
                )
            else:
                conv = GCNConv(width_in, width_out, backend=backend)
            self.convs.append(conv)
        self.dropouts = make_dropouts(input_dropout, dropout, dropout)
        self._scale_convolution()

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for module in (*self.convs, *self.dropouts):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]
        self._scale_convolution()

    def _scale_convolution(self) -> None:
        conv = self.convs[self.position - 1]
        if isinstance(conv, Node2SeqConv):
            with torch.no_grad():
                conv.weight.mul_(self.conv_scale)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The Node2Seq layer's parameters (or those of what stands in its place), and all others."""
        special = list(self.convs[self.position - 1].parameters())
        ids = set(map(id, special))
        return {"node2seq": special, "other": [p for p in self.parameters() if id(p) not in ids]}

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, H] (or 2 H for ``skip="concat"``)."""
        activate = ACTIVATIONS[self.activation]
        first = activate(self.convs[0](self.dropouts[0](x, n_id), edge_index))
        second = activate(self.convs[1](self.dropouts[1](first, n_id), edge_index))
        return torch.cat([first, second], dim=-1) if self.skip == "concat" else first + second

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels].

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or SparseTensor): The edges.
            n_id (torch.Tensor, optional): The nodes' ids in the graph that this is a part of, so that dropout
                drops the same elements however batches are cut.
        """
        return self.convs[2](self.dropouts[2](self.embed(x, edge_index, n_id), n_id), edge_index)


class GCNStar(Node2Seq):
    """The paper's GCN*: its network with a GCN layer in the Node2Seq layer's place.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first two layers' outputs.
        out_channels (int): Number of classes.
        skip (str): How the first two outputs are combined: :obj:`"sum"` or :obj:`"concat"`.
            (default: :obj:`"sum"`)
        activation (str): :obj:`"relu"` or :obj:`"elu"`. (default: :obj:`"relu"`)
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
        skip: str = "sum",
        activation: str = "relu",
        input_dropout: float = 0.5,
        dropout: float = 0.5,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            in_channels,
            hidden_channels,
            out_channels,
            skip=skip,
            activation=activation,
            input_dropout=input_dropout,
            dropout=dropout,
            layer="gcn",
            backend=backend,
        )

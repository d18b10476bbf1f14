"""The Node2Seq network, and the same network with a GCN layer in the Node2Seq layer's place."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from node2seq import ops
from node2seq.errors import Node2SeqError, check_choice
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.dropout import Dropout, make_dropouts
from node2seq.nn.models.capturing import Capturable
from node2seq.nn.smoothing import Smoothing

SKIPS = ("sum", "concat")
LAYERS = ("node2seq", "gcn")
OWNS = ("mixed", "apart")
NORMS = ("none", "layer")
SMOOTHED = ("logits", "first")
ACTIVATIONS = {"relu": F.relu, "elu": F.elu, "none": lambda x: x}


class Node2Seq(Capturable):
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
        taps (str): What each tap of its convolution is: :obj:`"full"`, :obj:`"depthwise"` or
            :obj:`"scalar"`; see :class:`Node2SeqConv`. (default: :obj:`"full"`)
        conv_scale (float): Factor on the initial weights of the convolution. (default: :obj:`1.0`)
        skip (str): How the first two outputs are combined: :obj:`"sum"` or :obj:`"concat"`.
            (default: :obj:`"sum"`)
        activation (str): :obj:`"relu"`, :obj:`"elu"` or :obj:`"none"`. (default: :obj:`"relu"`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        node_dropout (float): Dropout of whole nodes' input features. (default: :obj:`0.0`)
        norm (str): :obj:`"layer"` brings each node's hidden features to mean 0 and variance 1 before the
            activation. (default: :obj:`"none"`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only, for graphs whose neighbours are not alike. (default: :obj:`"mixed"`)
        smoothing (int): How often values are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own values a node keeps each time. (default: :obj:`0.1`)
        smoothed (str): Which values: the :obj:`"logits"` at the end, or what the :obj:`"first"` layer gives,
            before its activation, so that the other two see a wide neighbourhood. (default: :obj:`"logits"`)
        directed (bool): Whether each layer is a pair that reads the sources and the targets of a node's
            edges as neighbourhoods of their own, and adds up what they give. (default: :obj:`False`)
        targets_share (float): The share of the targets in that sum, from 0 to 1; the sources have the rest.
            Where one of them has nothing, its layers are left out. (default: :obj:`0.5`)
        self_loops (bool): Whether a node is one of its own neighbours in the three layers.
            (default: :obj:`True`)
        layer (str): :obj:`"node2seq"`, or :obj:`"gcn"` to put a GCN layer in its place: the paper's GCN*.
            (default: :obj:`"node2seq"`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    reads_sparse_rows = True

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
        taps: str = "full",
        conv_scale: float = 1.0,
        skip: str = "sum",
        activation: str = "relu",
        input_dropout: float = 0.5,
        dropout: float = 0.5,
        node_dropout: float = 0.0,
        norm: str = "none",
        own: str = "mixed",
        smoothing: int = 0,
        teleport: float = 0.1,
        smoothed: str = "logits",
        directed: bool = False,
        targets_share: float = 0.5,
        self_loops: bool = True,
        layer: str = "node2seq",
        backend: str = "auto",
    ) -> None:
        check_choice("position", position, (1, 2, 3))
        check_choice("skip", skip, SKIPS)
        check_choice("activation", activation, ACTIVATIONS)
        check_choice("layer", layer, LAYERS)
        check_choice("own", own, OWNS)
        check_choice("norm", norm, NORMS)
        check_choice("smoothed", smoothed, SMOOTHED)
        if not 0.0 <= targets_share <= 1.0:
            raise Node2SeqError(
                f"targets_share={targets_share!r}", "it is a share of the whole", "Pass a number from 0 to 1"
            )
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
        self.taps = taps
        self.conv_scale = conv_scale
        self.skip = skip
        self.activation = activation
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.node_dropout = node_dropout
        self.norm = norm
        self.own = own
        self.smoothing = smoothing
        self.teleport = teleport
        self.smoothed = smoothed
        self.directed = directed
        self.targets_share = targets_share
        self.self_loops = self_loops
        self.layer = layer
        self.backend = backend
        joined = 2 * hidden_channels if skip == "concat" else hidden_channels
        widths = [
            (in_channels, hidden_channels),
            (hidden_channels, hidden_channels),
            (joined, out_channels),
        ]

        def layers(flow: str) -> nn.ModuleList:
            return nn.ModuleList(
                self._make_layer(place, *width, flow=flow) for place, width in enumerate(widths, 1)
            )

        self.convs = layers("target_to_source" if directed and targets_share == 1 else "source_to_target")
        self.reversed_convs = layers("target_to_source") if directed and 0 < targets_share < 1 else None
        self.dropouts = make_dropouts(input_dropout, dropout, dropout)
        self.node_drop = Dropout(node_dropout, 3, whole_rows=True)
        self.own_layers = self.own_drop = None
        if own == "apart":
            self.own_layers = nn.ModuleList(
                [nn.Linear(in_channels, hidden_channels), nn.Linear(hidden_channels, out_channels)]
            )
            self.own_drop = Dropout(dropout, 4)
        self.smooth = Smoothing(smoothing, teleport, backend=backend)
        self._scale_convolution()

    def _make_layer(self, place: int, width_in: int, width_out: int, flow: str) -> nn.Module:
        if place != self.position or self.layer == "gcn":
            return GCNConv(
                width_in, width_out, add_self_loops=self.self_loops, flow=flow, backend=self.backend
            )
        return Node2SeqConv(
            width_in,
            width_out,
            self.kernel_size,
            readout=self.readout,
            hops=self.hops,
            threshold=self.threshold,
            root=self.root,
            nonlocal_order=self.nonlocal_order,
            order=self.order,
            taps=self.taps,
            add_self_loops=self.self_loops,
            flow=flow,
            backend=self.backend,
        )

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        parts = [self.convs, self.reversed_convs, self.dropouts, [self.node_drop], self.own_layers]
        for module in (module for part in parts if part is not None for module in part):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]
        if self.own_drop is not None:
            self.own_drop.reset_parameters()
        self._scale_convolution()

    def _special_layers(self) -> list[nn.Module]:
        """The Node2Seq layer, or what stands in its place, and its twin if the network is directed."""
        pairs = (self.convs, self.reversed_convs)
        return [convs[self.position - 1] for convs in pairs if convs is not None]

    def _scale_convolution(self) -> None:
        for conv in self._special_layers():
            if isinstance(conv, Node2SeqConv):
                with torch.no_grad():
                    conv.weight.mul_(self.conv_scale)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The Node2Seq layer's parameters (or those of what stands in its place), and all others."""
        special = [parameter for conv in self._special_layers() for parameter in conv.parameters()]
        ids = set(map(id, special))
        return {"node2seq": special, "other": [p for p in self.parameters() if id(p) not in ids]}

    def _apply_layer(self, number: int, x: Tensor, edge_index: Any) -> Tensor:
        out = self.convs[number](x, edge_index)
        if self.reversed_convs is not None:
            share = self.targets_share
            out = (1 - share) * out + share * self.reversed_convs[number](x, edge_index)
        return out

    def _activate(self, x: Tensor) -> Tensor:
        if self.norm == "layer":
            x = F.layer_norm(x, x.shape[-1:])
        return ACTIVATIONS[self.activation](x)

    def _embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None) -> Tensor:
        """The embeddings of features that were dropped from already."""
        first = self._apply_layer(0, x, edge_index)
        if self.smoothed == "first":
            first = self.smooth(first, edge_index)
        first = self._activate(first)
        second = self._activate(self._apply_layer(1, self.dropouts[1](first, n_id), edge_index))
        return torch.cat([first, second], dim=-1) if self.skip == "concat" else first + second

    def _drop_input(self, x: Tensor, n_id: Tensor | None) -> Tensor:
        return self.node_drop(self.dropouts[0](x, n_id), n_id)

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, H] (or 2 H for ``skip="concat"``)."""
        return self._embed(self._drop_input(x, n_id), edge_index, n_id)

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels].

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or SparseTensor): The edges.
            n_id (torch.Tensor, optional): The nodes' ids in the graph that this is a part of, so that dropout
                drops the same elements however batches are cut.
        """
        x = self._drop_input(x, n_id)
        out = self._apply_layer(2, self.dropouts[2](self._embed(x, edge_index, n_id), n_id), edge_index)
        if self.own_layers is not None and self.own_drop is not None:
            hidden = self._activate(ops.apply(self.own_layers[0], x))
            out = out + ops.apply(self.own_layers[1], self.own_drop(hidden, n_id))
        return self.smooth(out, edge_index) if self.smoothed == "logits" else out


class GCNStar(Node2Seq):
    """The paper's GCN*: its network with a GCN layer in the Node2Seq layer's place.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the first two layers' outputs.
        out_channels (int): Number of classes.
        skip (str): How the first two outputs are combined: :obj:`"sum"` or :obj:`"concat"`.
            (default: :obj:`"sum"`)
        activation (str): :obj:`"relu"`, :obj:`"elu"` or :obj:`"none"`. (default: :obj:`"relu"`)
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

"""The Node2Seq network with options that the paper does not have."""

from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.dropout import Dropout, make_dropouts
from node2seq.nn.models.network import Edges, Smoothing, convolve, make_linear
from node2seq.nn.models.node2seq import Node2Seq, Node2SeqOptions


@dataclass(frozen=True)
class Node2SeqPlusOptions(Node2SeqOptions):
    """The options of :class:`Node2SeqPlus`."""

    node_dropout: float = 0.0
    norm: Literal["none", "layer"] = "none"
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    smoothed: Literal["logits", "first"] = "logits"
    directed: bool = False
    targets_share: float = 0.5
    self_loops: bool = True
    layer: Literal["node2seq", "gcn", "dense"] = "node2seq"

    def __post_init__(self) -> None:
        if not 0.0 <= self.targets_share <= 1.0:
            raise Node2SeqError(
                f"targets_share={self.targets_share!r}",
                "it is a share of the whole",
                "Pass a number from 0 to 1",
            )


class Node2SeqPlus(Node2Seq):
    """:class:`Node2Seq` with what the paper does not have: a node's own features apart, smoothing, directed
    graphs, normalisation, and dropout of whole nodes. With the defaults it computes what Node2Seq does.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first two layers' outputs.
        out_channels (int): Number of classes.
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
        layer (str): :obj:`"node2seq"`, :obj:`"gcn"` to put a GCN layer in its place, as in GCN*, or
            :obj:`"dense"` for a dense layer, which sees no neighbours. (default: :obj:`"node2seq"`)
        **options: As in :class:`Node2Seq`.
    """

    Options = Node2SeqPlusOptions
    reads_sparse_rows = True
    targets_share: float

    def _make_layers(self, options: Node2SeqPlusOptions) -> None:
        sources, targets = (
            {"flow": flow, "add_self_loops": options.self_loops}
            for flow in ("source_to_target", "target_to_source")
        )
        share = options.targets_share if options.directed else 0.0
        self.convs = self._make_convs(options, **(targets if share == 1 else sources))
        self.reversed_convs = self._make_convs(options, **targets) if 0 < share < 1 else None
        self.dropouts = make_dropouts(options.input_dropout, options.dropout, options.dropout)
        self.node_drop = Dropout(options.node_dropout, 3, whole_rows=True)
        self.own_layers = self.own_drop = None
        if options.own == "apart":
            first = make_linear(self.in_channels, self.hidden_channels)
            self.own_layers = nn.ModuleList([first, nn.Linear(self.hidden_channels, self.out_channels)])
            self.own_drop = Dropout(options.dropout, 4)
        self.smooth = Smoothing(options.smoothing, options.teleport, backend=options.backend)
        self._scale_convolution()

    def layers_beside(self) -> list[nn.Module]:
        """Those that read edges backwards."""
        return [] if self.reversed_convs is None else [self.reversed_convs]

    def _make_special(self, options: Any, width_in: int, width_out: int, **shared: Any) -> nn.Module:
        if options.layer == "gcn":
            if self.edge_dim is not None:
                raise Node2SeqError(
                    f"edge_dim={self.edge_dim} with layer='gcn'",
                    "GCN layers read edge weights, and no attributes",
                    "Leave out one of the two",
                )
            return GCNConv(width_in, width_out, backend=options.backend, **shared)
        if options.layer == "dense":
            return make_linear(width_in, width_out)
        return super()._make_special(options, width_in, width_out, **shared)

    def _make_extras(self, options: Node2SeqPlusOptions) -> None:  # noqa: ARG002 (made with the layers here)
        return None

    def _special_layers(self) -> list[nn.Module]:
        pair = (self.convs, self.reversed_convs)
        return [convs[self.position - 1] for convs in pair if convs is not None]

    def _drop_input(self, x: Tensor, n_id: Tensor | None) -> Tensor:
        return self.node_drop(super()._drop_input(x, n_id), n_id)

    def _layer(self, number: int, x: Tensor, edges: Edges) -> Tensor:
        out = super()._layer(number, x, edges)
        if self.reversed_convs is not None:
            share = self.targets_share
            out = (1 - share) * out + share * convolve(self.reversed_convs[number], x, edges)
        return convolve(self.smooth, out, edges) if number == 0 and self.smoothed == "first" else out

    def _activate(self, x: Tensor) -> Tensor:
        return super()._activate(F.layer_norm(x, x.shape[-1:]) if self.norm == "layer" else x)

    def _classify_dropped(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        out = super()._classify_dropped(x, edges, n_id)
        if self.own_layers is not None and self.own_drop is not None:
            hidden = self._activate(ops.apply(self.own_layers[0], x))
            out = out + ops.apply(self.own_layers[1], self.own_drop(hidden, n_id))
        return convolve(self.smooth, out, edges) if self.smoothed == "logits" else out

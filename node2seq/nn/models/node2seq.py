"""The Node2Seq network."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import OF_RANKS, Edges, Network, convolve

ACTIVATIONS = {"relu": F.relu, "elu": F.elu, "none": lambda x: x}
# The options that the layer takes by the same names, besides the backend.
OF_LAYER = (
    *("kernel_size", "readout", "hops", "threshold", "root", "nonlocal_order", "max_candidates", "order"),
    "taps",
    *OF_RANKS,
)


@dataclass(frozen=True)
class Node2SeqOptions:
    """The options of :class:`Node2Seq`."""

    hidden_channels: int
    position: Literal[1, 2, 3] = 2
    kernel_size: int = 3
    readout: Literal["max", "mean", "sum", "ranks"] = "max"
    hops: int = 1
    threshold: float = 0.0
    root: Literal["projected", "input", "none"] = "projected"
    nonlocal_order: Literal["joint", "local-first"] = "joint"
    max_candidates: int | None = None
    order: Literal["attention", "degree", "random", "edge"] = "attention"
    taps: Literal["full", "depthwise", "scalar"] = "full"
    soft: bool | None = None
    scores: Literal["own", "shared"] | None = None
    score_channels: int = 8
    temperature: float = 1.0
    self_position: Literal["first", "last", "none"] = "first"
    conv_scale: float = 1.0
    skip: Literal["sum", "concat"] = "sum"
    activation: Literal["relu", "elu", "none"] = "relu"
    input_dropout: float = 0.5
    dropout: float = 0.5
    backend: str = "auto"

    #: What to do about options that it does not have.
    elsewhere: ClassVar = dict.fromkeys(
        [
            "node_dropout",
            "norm",
            "own",
            "smoothing",
            "teleport",
            "smoothed",
            "directed",
            "targets_share",
            "self_loops",
            "layer",
        ],
        "Use Node2SeqPlus (the model node2seq-plus), which has it",
    )


class Node2Seq(Network):
    r"""The network of the `"Node2Seq: Towards Trainable Convolutions in Graph Neural Networks"
    <https://arxiv.org/abs/2101.01849>`_ paper: one Node2Seq layer and two GCN layers, the outputs of the
    first two combined before the third.

    .. math::
        \mathbf{H}_1 = \sigma(f_1(\mathbf{X})), \qquad \mathbf{H}_2 = \sigma(f_2(\mathbf{H}_1)), \qquad
        \mathbf{Z} = f_3(\mathbf{H}_1 \oplus \mathbf{H}_2)

    Everything that the paper leaves open is an option. :class:`Node2SeqPlus` has more of them.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first two layers' outputs.
        out_channels (int): Number of classes.
        position (int): Which of the three layers is the Node2Seq layer: 1, 2 or 3. (default: :obj:`2`)
        kernel_size (int): Taps of the Node2Seq layer. (default: :obj:`3`)
        readout (str): Its readout: :obj:`"max"`, :obj:`"mean"`, :obj:`"sum"` or :obj:`"ranks"`.
            (default: :obj:`"max"`)
        hops (int): How far away its neighbours may be. (default: :obj:`1`)
        threshold (float): The score a neighbour has to exceed to stay. (default: :obj:`0.0`)
        root (str): :obj:`"projected"`, :obj:`"input"` or :obj:`"none"`; see :class:`Node2SeqConv`.
            (default: :obj:`"projected"`)
        nonlocal_order (str): :obj:`"joint"` or :obj:`"local-first"`; see :class:`Node2SeqConv`.
            (default: :obj:`"joint"`)
        max_candidates (int, optional): From how many nodes further away each node chooses at most; see
            :class:`Node2SeqConv`. (default: :obj:`None`)
        order (str): What its neighbours are sorted by: :obj:`"attention"`, :obj:`"degree"`,
            :obj:`"random"` or :obj:`"edge"`; see :class:`Node2SeqConv`. (default: :obj:`"attention"`)
        taps (str): What each tap of its convolution is: :obj:`"full"`, :obj:`"depthwise"` or
            :obj:`"scalar"`; see :class:`Node2SeqConv`. (default: :obj:`"full"`)
        soft (bool, optional): For ranks: whether they are soft, so that the order is learned; by default
            where it is by attention. (default: :obj:`None`)
        scores (str, optional): For soft ranks: :obj:`"own"` or :obj:`"shared"`; see :class:`Node2SeqConv`.
            (default: :obj:`None`)
        score_channels (int): The channels of scores of their own. (default: :obj:`8`)
        temperature (float): For soft ranks: what the scores are divided by. (default: :obj:`1.0`)
        self_position (str): With ``order="edge"``: where a node itself stands among its neighbours,
            :obj:`"first"`, :obj:`"last"` or :obj:`"none"`. (default: :obj:`"first"`)
        conv_scale (float): Factor on the initial weights of the convolution. (default: :obj:`1.0`)
        skip (str): How the first two outputs are combined: :obj:`"sum"` or :obj:`"concat"`.
            (default: :obj:`"sum"`)
        activation (str): :obj:`"relu"`, :obj:`"elu"` or :obj:`"none"`. (default: :obj:`"relu"`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        edge_dim (int, optional): Size of each edge's attributes, which the Node2Seq layer reads. Weights are
            read by all three layers. (default: :obj:`None`)
    """

    Options = Node2SeqOptions
    reads_sparse_rows = True
    carried = ("edge_weight", "edge_attr", "edge_order")
    position: int = 2
    activation: str
    conv_scale: float

    def _make_layers(self, options: Any) -> None:
        self.convs = self._make_convs(options)
        self.dropouts = make_dropouts(options.input_dropout, options.dropout, options.dropout)
        self._scale_convolution()

    def _make_convs(self, options: Any, **shared: Any) -> nn.ModuleList:
        """Two GCN layers, and at ``position`` the layer that ``_make_special`` makes."""
        hidden = self.hidden_channels
        joined = 2 * hidden if options.skip == "concat" else hidden
        widths = [(self.in_channels, hidden), (hidden, hidden), (joined, self.out_channels)]
        return nn.ModuleList(
            self._make_special(options, *pair, **shared)
            if place == self.position
            else GCNConv(*pair, backend=options.backend, **shared)
            for place, pair in enumerate(widths, 1)
        )

    def _make_special(self, options: Any, width_in: int, width_out: int, **shared: Any) -> nn.Module:
        own = {name: getattr(options, name) for name in (*OF_LAYER, "backend")}
        return Node2SeqConv(width_in, width_out, edge_dim=self.edge_dim, **own, **shared)

    def _special_layers(self) -> list[nn.Module]:
        return [self.convs[self.position - 1]]

    def _scale_convolution(self) -> None:
        for conv in self._special_layers():
            if isinstance(conv, Node2SeqConv):
                with torch.no_grad():
                    conv.weight.mul_(self.conv_scale)

    def reset_parameters(self) -> None:
        """Draws new initial parameters, and new seeds of the dropouts."""
        super().reset_parameters()
        self._scale_convolution()

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The Node2Seq layer's parameters (or those of what stands in its place), and all others."""
        special = [parameter for conv in self._special_layers() for parameter in conv.parameters()]
        ids = set(map(id, special))
        return {"node2seq": special, "other": [p for p in self.parameters() if id(p) not in ids]}

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # Networks of before there was Node2SeqPlus were saved with a dropout of nodes, whatever they dropped.
        if "node_drop" not in self._modules:
            for name in ("seed", "step"):
                state_dict.pop(f"{prefix}node_drop.{name}", None)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _drop_input(self, x: Tensor, n_id: Tensor | None) -> Tensor:
        return self.dropouts[0](x, n_id)

    def _layer(self, number: int, x: Tensor, edges: Edges) -> Tensor:
        return convolve(self.convs[number], x, edges)

    def _activate(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](x)

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """The node embeddings before the last layer, [N, H] (or 2 H for ``skip="concat"``)."""
        return self._embed_dropped(self._drop_input(x, n_id), edges, n_id)

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return self._classify_dropped(self._drop_input(x, n_id), edges, n_id)

    def _embed_dropped(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """The embeddings of features that were dropped from already."""
        first = self._activate(self._layer(0, x, edges))
        second = self._activate(self._layer(1, self.dropouts[1](first, n_id), edges))
        return torch.cat([first, second], dim=-1) if self.skip == "concat" else first + second

    def _classify_dropped(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return self._layer(2, self.dropouts[2](self._embed_dropped(x, edges, n_id), n_id), edges)

"""Networks of residual blocks for any graph: the same blocks with one of several layers inside."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import reset

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.gat import GATConv
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.conv.pna import PNAConv
from node2seq.nn.conv.sage import SAGEConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import OF_RANKS, Edges, Network, NormalizedSum, convolve
from node2seq.options import check_rules


@dataclass(frozen=True)
class ResidualOptions:
    """The options that all networks of residual blocks have."""

    hidden_channels: int
    num_layers: int = 2
    expansion: int = 1
    input_dropout: float = 0.0
    dropout: float = 0.2
    normalized_sum: bool = False
    smoothing: int = 0
    teleport: float = 0.1
    linear_hops: int = 0
    backend: str = "auto"

    def __post_init__(self) -> None:
        layers, expansion, hops = self.num_layers, self.expansion, self.linear_hops
        least = "a network needs at least one"
        check_rules(
            (layers >= 1, f"num_layers={layers!r}", least, "Give 1 or more"),
            (expansion >= 1, f"expansion={expansion!r}", least, "Give 1 or more"),
            (hops >= 0, f"linear_hops={hops!r}", "it is from how far features are read", "Give 0 or more"),
        )


class ResidualBlock(nn.Module):
    """Normalise; put the layer's output beside the node's own features; two dense layers; add the input.

    Args:
        conv (torch.nn.Module): The layer.
        pool (torch.nn.Module, optional): A second one, whose channels stand beside those of the first.
        channels (int): How many channels the block has, and both layers together.
        options (ResidualOptions): The width between the dense layers, the dropout behind each of them, and
            whether they also read the normalised sum of the neighbours.
        layer (int): The number of the first of the two dropouts.
    """

    def __init__(
        self, conv: nn.Module, pool: nn.Module | None, channels: int, options: ResidualOptions, layer: int
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.conv, self.pool = conv, pool
        self.sum = NormalizedSum(options.backend) if options.normalized_sum else None
        read, width = (2 if self.sum is None else 3) * channels, options.expansion * channels
        self.lins = nn.ModuleList([nn.Linear(read, width), nn.Linear(width, channels)])
        self.dropouts = make_dropouts(options.dropout, options.dropout, start=layer)

    def reset_parameters(self) -> None:
        """Draws new initial parameters, and new seeds of the dropouts."""
        for child in self.children():
            reset(child)

    def forward(self, x: Tensor, edges: Edges, n_id: Tensor | None = None) -> Tensor:
        """The block's output, in the shape of ``x``."""
        own = ops.apply(self.norm, x)
        layers = (layer for layer in (self.conv, self.pool, self.sum) if layer is not None)
        read = [own, *(convolve(layer, own, edges, n_id) for layer in layers)]
        hidden = F.gelu(self.dropouts[0](ops.apply(self.lins[0], torch.cat(read, dim=-1)), n_id))
        return x + self.dropouts[1](ops.apply(self.lins[1], hidden), n_id)


class LinearHops(nn.Module):
    r"""A model that is linear in a node's features and in their normalised sums over its neighbours, over the
    neighbours of these, and so on:

    .. math::
        \sum_{k=0}^{K} \hat{\mathbf{A}}^k \mathbf{X} \mathbf{W}_k + \mathbf{b}

    No gradient trains the weights. They are zero, and nothing is computed, until they are fitted in closed
    form (:mod:`node2seq.train.discriminant`).

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int): Number of classes.
        hops (int): How many hops :math:`K`.
        backend (str): See :mod:`node2seq.ops`.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, in_channels: int, out_channels: int, hops: int, backend: str) -> None:
        super().__init__()
        if in_channels < 1:
            raise Node2SeqError(
                f"linear_hops={hops} with in_channels={in_channels}",
                "the linear model needs to know how many features there are",
                "Give their number, or linear_hops=0",
            )
        self.out_channels, self.hops, self.is_fitted = out_channels, hops, False
        self.sum = NormalizedSum(backend)
        self.register_buffer("weight", torch.zeros((hops + 1) * out_channels, in_channels))
        self.register_buffer("bias", torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        """Forgets what was fitted."""
        self.set_weights(torch.zeros_like(self.weight), torch.zeros_like(self.bias))

    @torch.no_grad()
    def set_weights(self, weight: Tensor, bias: Tensor) -> None:
        """Takes weights in the shapes of its own: one matrix for each hop below the other, the node's own
        first, [(K + 1) * D, C], and [D]; or those of R runs.
        """
        self.weight.copy_(weight)
        self.bias.copy_(bias)
        self._look()

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._look()

    def _look(self) -> None:
        self.is_fitted = bool(self.weight.any() or self.bias.any())

    def products(self, weight: Tensor, x: Any, edges: Edges) -> Tensor:
        """What weights in the shape of its own give, without a bias, [N, D].

        Args:
            weight (torch.Tensor): The weights.
            x (torch.Tensor or SparseRows): The features.
            edges (Edges): The edges.
        """
        by_hop = ops.linear(x, weight).split(self.out_channels, dim=-1)
        total = by_hop[-1]
        for own in reversed(by_hop[:-1]):  # from far to near: each hop is one sum of few columns
            total = convolve(self.sum, total, edges) + own
        return total

    def forward(self, x: Any, edges: Edges) -> Tensor:
        """The logits."""
        return ops.add_bias(self.products(self.weight, x, edges), self.bias)

    def extra_repr(self) -> str:
        """The settings."""
        return f"hops={self.hops}, is_fitted={self.is_fitted}"


class ResidualNetwork(Network):
    """A linear map, residual blocks, a normalisation and a linear classifier, as in the `"A Critical Look at
    the Evaluation of GNNs under Heterophily" <https://arxiv.org/abs/2302.11640>`_ benchmark.

    A subclass makes the layer inside the blocks in ``_make_conv``. Nothing else differs, so a comparison of
    two of them is one of their layers alone.
    """

    num_layers: int
    expansion: int
    dropout: float | Tensor
    linear: LinearHops | None

    def _make_layers(self, options: Any) -> None:
        width = self.hidden_channels
        self.lin = Linear(self.in_channels, width)
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)
        self.blocks = nn.ModuleList(
            ResidualBlock(
                self._make_conv(options, width, 4 + 3 * number),
                self._make_pool(options, width),
                width,
                options,
                2 + 3 * number,
            )
            for number in range(options.num_layers)
        )
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, self.out_channels)
        hops, sizes = options.linear_hops, (self.in_channels, self.out_channels)
        self.linear = LinearHops(*sizes, hops, options.backend) if hops else None

    def _make_conv(self, options: Any, channels: int, layer: int) -> nn.Module:
        """The layer inside a block; ``layer`` is the number of its dropout, if it has one."""
        raise NotImplementedError

    def _make_pool(self, options: Any, channels: int) -> nn.Module | None:  # noqa: ARG002
        """The layer beside that one, for networks that have any."""
        return None

    def layers_beside(self) -> list[nn.Module]:
        """Those that stand beside the first layers of the blocks."""
        return [block.pool for block in self.blocks if isinstance(block.pool, nn.Module)]

    def _layers(self) -> list[nn.Module]:
        """The layers inside the blocks."""
        return [*(block.get_submodule("conv") for block in self.blocks), *self.layers_beside()]

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The parameters of the layers inside the blocks, and all others."""
        inside = [p for layer in self._layers() for p in layer.parameters()]
        ids = set(map(id, inside))
        return {"node2seq": inside, "other": [p for p in self.parameters() if id(p) not in ids]}

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """The node embeddings before the classifier, [N, H]."""
        hidden = ops.apply(self.lin, self.dropouts[0](x, n_id))
        hidden = F.gelu(self.dropouts[1](hidden, n_id))
        for block in self.blocks:
            hidden = block(hidden, edges, n_id)
        return ops.apply(self.norm, hidden)

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return ops.apply(self.classifier, self._embed(x, edges, n_id))

    def _beside(self, x: Tensor, edges: Edges) -> Tensor | None:
        return self.linear(x, edges) if self.linear is not None and self.linear.is_fitted else None

    @property
    def hops_beside(self) -> int:
        """From how far the linear model reads; 0 before it is fitted."""
        return self.linear.hops if self.linear is not None and self.linear.is_fitted else 0


@dataclass(frozen=True)
class ResidualNode2SeqOptions(ResidualOptions):
    """The options of :class:`ResidualNode2Seq`."""

    kernel_size: int = 3
    readout: Literal["max", "mean", "sum", "ranks"] = "max"
    hops: int = 1
    threshold: float = 0.0
    max_candidates: int | None = None
    order: Literal["attention", "degree", "random", "edge"] = "attention"
    taps: Literal["full", "depthwise", "scalar"] = "full"
    soft: bool | None = None
    scores: Literal["own", "shared"] | None = None
    score_channels: int = 8
    temperature: float = 1.0
    self_position: Literal["first", "last", "none"] = "first"
    self_loops: bool = True
    conv_scale: float = 1.0
    neighbour_max: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rules(
            (
                not self.neighbour_max or self.hidden_channels > 1,
                f"hidden_channels={self.hidden_channels} with neighbour_max=True",
                "half of the channels are those of a layer of their own",
                "Give 2 or more channels, or neighbour_max=False",
            )
        )


class ResidualNode2Seq(ResidualNetwork):
    """The network for any graph: residual blocks with a :class:`Node2SeqConv` beside each node's own
    features.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive it from the first input.
        hidden_channels (int): Size of each block's output.
        out_channels (int): Number of classes.
        num_layers (int): Number of blocks. (default: :obj:`2`)
        expansion (int): The width between the dense layers of a block, as a multiple of
            ``hidden_channels``. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.2`)
        normalized_sum (bool): Whether each block also reads the sum of the neighbours weighted by degrees, as
            in a GCN. (default: :obj:`False`)
        smoothing (int): How often the outputs are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): The share of a node's own output in each of these steps. (default: :obj:`0.1`)
        linear_hops (int): From how many hops a linear model reads features that is added to the trained
            network; 0: there is none. See :class:`LinearHops`. (default: :obj:`0`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        kernel_size (int): Taps of the Node2Seq layers. (default: :obj:`3`)
        readout (str): Their readout: :obj:`"max"`, :obj:`"mean"`, :obj:`"sum"` or :obj:`"ranks"`.
            (default: :obj:`"max"`)
        hops (int): How far away neighbours may be. (default: :obj:`1`)
        threshold (float): The score a neighbour has to exceed to stay. (default: :obj:`0.0`)
        max_candidates (int, optional): From how many nodes further away each node chooses at most; see
            :class:`Node2SeqConv`. (default: :obj:`None`)
        order (str): What neighbours are sorted by: :obj:`"attention"`, :obj:`"degree"`, :obj:`"random"`, or
            the number on each edge that is passed as ``edge_order``, :obj:`"edge"`.
            (default: :obj:`"attention"`)
        taps (str): What each tap of the convolution is: :obj:`"full"`, :obj:`"depthwise"` or
            :obj:`"scalar"`; see :class:`Node2SeqConv`. (default: :obj:`"full"`)
        soft (bool, optional): For ranks: whether they are soft, so that the order is learned; by default
            where it is by attention. (default: :obj:`None`)
        scores (str, optional): For soft ranks: :obj:`"own"` or :obj:`"shared"`; see :class:`Node2SeqConv`.
            (default: :obj:`None`)
        score_channels (int): The channels of scores of their own. (default: :obj:`8`)
        temperature (float): For soft ranks: what the scores are divided by. (default: :obj:`1.0`)
        self_position (str): With ``order="edge"``: where a node itself stands among its neighbours,
            :obj:`"first"`, :obj:`"last"` or :obj:`"none"`. (default: :obj:`"first"`)
        self_loops (bool): Whether a node is one of its own neighbours inside the layer; its own features
            stand beside the layer in any case. (default: :obj:`True`)
        conv_scale (float): Factor on the initial weights of the layers' convolution, and of what they add for
            a node's own features. (default: :obj:`1.0`)
        neighbour_max (bool): Whether half of the channels of each block's layer are those of a second
            :class:`Node2SeqConv`, which keeps the largest of the neighbours one by one: with
            ``kernel_size=1`` and ``readout="max"``. (default: :obj:`False`)
        edge_dim (int, optional): Size of each edge's attributes. (default: :obj:`None`)
    """

    Options = ResidualNode2SeqOptions
    reads_sparse_rows = True
    carried = ("edge_weight", "edge_attr", "edge_order")
    conv_scale: float

    def _make_layers(self, options: Any) -> None:
        super()._make_layers(options)
        self._scale_convolutions()

    def reset_parameters(self) -> None:
        """Draws new initial parameters, and new seeds of the dropouts."""
        super().reset_parameters()
        self._scale_convolutions()

    @torch.no_grad()
    def _scale_convolutions(self) -> None:
        for conv in self._layers():
            for weight in (conv.get_parameter("weight"), conv.get_parameter("lin_root.weight")):
                weight.mul_(self.conv_scale)

    def _make_conv(self, options: Any, channels: int, layer: int) -> nn.Module:  # noqa: ARG002
        width = channels - channels // 2 if options.neighbour_max else channels
        names = ("kernel_size", "readout", "taps", *OF_RANKS)
        return self._make_layer(options, channels, width, **{name: getattr(options, name) for name in names})

    def _make_pool(self, options: Any, channels: int) -> nn.Module | None:
        if not options.neighbour_max:
            return None
        shared = {"kernel_size": 1, "readout": "max", "self_position": options.self_position}
        return self._make_layer(options, channels, channels // 2, **shared)

    def _make_layer(self, options: Any, channels: int, width: int, **own: Any) -> nn.Module:
        """A layer that reads the neighbours that all layers of the network read."""
        names = ("hops", "threshold", "max_candidates", "order", "backend")
        shared = {name: getattr(options, name) for name in names}
        shared |= {"add_self_loops": options.self_loops, "edge_dim": self.edge_dim, "bias": False}
        return Node2SeqConv(channels, width, **shared, **own)


class ResidualGCN(ResidualNetwork):
    """The blocks of :class:`ResidualNode2Seq` with a GCN layer inside.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive it from the first input.
        hidden_channels (int): Size of each block's output.
        out_channels (int): Number of classes.
        num_layers (int): Number of blocks. (default: :obj:`2`)
        expansion (int): The width between the dense layers of a block, as a multiple of
            ``hidden_channels``. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.2`)
        normalized_sum (bool): Whether each block also reads the sum of the neighbours weighted by degrees, as
            in a GCN. (default: :obj:`False`)
        smoothing (int): How often the outputs are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): The share of a node's own output in each of these steps. (default: :obj:`0.1`)
        linear_hops (int): From how many hops a linear model reads features that is added to the trained
            network; 0: there is none. See :class:`LinearHops`. (default: :obj:`0`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = ResidualOptions
    reads_sparse_rows = True
    carried = ("edge_weight",)

    def _make_conv(self, options: Any, channels: int, layer: int) -> nn.Module:  # noqa: ARG002
        return GCNConv(channels, channels, bias=False, backend=options.backend)


@dataclass(frozen=True)
class ResidualGATOptions(ResidualOptions):
    """The options of :class:`ResidualGAT`."""

    heads: int = 4
    attention_dropout: float = 0.0


class ResidualGAT(ResidualNetwork):
    """The blocks of :class:`ResidualNode2Seq` with a graph attention layer inside.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive it from the first input.
        hidden_channels (int): Size of each block's output.
        out_channels (int): Number of classes.
        num_layers (int): Number of blocks. (default: :obj:`2`)
        expansion (int): The width between the dense layers of a block, as a multiple of
            ``hidden_channels``. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.2`)
        normalized_sum (bool): Whether each block also reads the sum of the neighbours weighted by degrees, as
            in a GCN. (default: :obj:`False`)
        smoothing (int): How often the outputs are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): The share of a node's own output in each of these steps. (default: :obj:`0.1`)
        linear_hops (int): From how many hops a linear model reads features that is added to the trained
            network; 0: there is none. See :class:`LinearHops`. (default: :obj:`0`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        heads (int): Attentions of each layer, which share its channels. (default: :obj:`4`)
        attention_dropout (float): Dropout of the attention weights. (default: :obj:`0.0`)
        edge_dim (int, optional): Size of each edge's attributes. (default: :obj:`None`)
    """

    Options = ResidualGATOptions
    reads_sparse_rows = True
    carried = ("edge_attr",)

    def _make_conv(self, options: Any, channels: int, layer: int) -> nn.Module:
        if options.heads < 1 or channels % options.heads:
            raise Node2SeqError(
                f"heads={options.heads} with hidden_channels={channels}",
                "each head has an equal share of the channels",
                "Give a number of heads that divides hidden_channels",
            )
        each = channels // options.heads
        own = {"dropout": options.attention_dropout, "layer": layer, "backend": options.backend}
        return GATConv(channels, each, options.heads, bias=False, edge_dim=self.edge_dim, **own)


class ResidualSAGE(ResidualNetwork):
    """The blocks of :class:`ResidualNode2Seq` with the mean of the neighbours inside, as in GraphSAGE.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive it from the first input.
        hidden_channels (int): Size of each block's output.
        out_channels (int): Number of classes.
        num_layers (int): Number of blocks. (default: :obj:`2`)
        expansion (int): The width between the dense layers of a block, as a multiple of
            ``hidden_channels``. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.2`)
        normalized_sum (bool): Whether each block also reads the sum of the neighbours weighted by degrees, as
            in a GCN. (default: :obj:`False`)
        smoothing (int): How often the outputs are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): The share of a node's own output in each of these steps. (default: :obj:`0.1`)
        linear_hops (int): From how many hops a linear model reads features that is added to the trained
            network; 0: there is none. See :class:`LinearHops`. (default: :obj:`0`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = ResidualOptions
    reads_sparse_rows = True

    def _make_conv(self, options: Any, channels: int, layer: int) -> nn.Module:  # noqa: ARG002
        # The node's own features stand beside it already.
        return SAGEConv(channels, channels, root_weight=False, bias=False, backend=options.backend)


class ResidualPNA(ResidualNetwork):
    """The blocks of :class:`ResidualNode2Seq` with mean, standard deviation and maximum of the neighbours
    inside, as in PNA.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive it from the first input.
        hidden_channels (int): Size of each block's output.
        out_channels (int): Number of classes.
        num_layers (int): Number of blocks. (default: :obj:`2`)
        expansion (int): The width between the dense layers of a block, as a multiple of
            ``hidden_channels``. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.2`)
        normalized_sum (bool): Whether each block also reads the sum of the neighbours weighted by degrees, as
            in a GCN. (default: :obj:`False`)
        smoothing (int): How often the outputs are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): The share of a node's own output in each of these steps. (default: :obj:`0.1`)
        linear_hops (int): From how many hops a linear model reads features that is added to the trained
            network; 0: there is none. See :class:`LinearHops`. (default: :obj:`0`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = ResidualOptions
    reads_sparse_rows = True

    def _make_conv(self, options: Any, channels: int, layer: int) -> nn.Module:  # noqa: ARG002
        return PNAConv(channels, channels, backend=options.backend)

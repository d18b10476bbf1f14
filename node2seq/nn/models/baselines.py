"""The networks that Node2Seq is compared with; those of residual blocks are in a file of their own."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.cheb import ChebConv
from node2seq.nn.conv.gat import GATConv
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.gin import GINConv, GINEConv
from node2seq.nn.conv.lgcl import LGCL
from node2seq.nn.conv.sg import SGConv
from node2seq.nn.dropout import make_dropouts
from node2seq.nn.models.network import Edges, Network, convolve, make_linear
from node2seq.nn.models.node2seq import Node2Seq


@dataclass(frozen=True)
class GCNOptions:
    """The options of :class:`GCN`."""

    hidden_channels: int
    input_dropout: float = 0.5
    dropout: float = 0.5
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class GCN(Network):
    """The two-layer network of the `"Semi-Supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_ paper.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = GCNOptions
    reads_sparse_rows = True
    carried = ("edge_weight",)

    def _make_layers(self, options: GCNOptions) -> None:
        first = GCNConv(self.in_channels, self.hidden_channels, backend=options.backend)
        second = GCNConv(self.hidden_channels, self.out_channels, backend=options.backend)
        self.convs = nn.ModuleList([first, second])
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)


@dataclass(frozen=True)
class GATOptions:
    """The options of :class:`GAT`."""

    hidden_channels: int
    heads: int = 8
    out_heads: int = 1
    input_dropout: float = 0.6
    dropout: float = 0.6
    attention_dropout: float = 0.6
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class GAT(Network):
    """The two-layer network of the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first layer's output per head.
        out_channels (int): Number of classes.
        heads (int): Attentions of the first layer, concatenated. (default: :obj:`8`)
        out_heads (int): Attentions of the second layer, averaged. (default: :obj:`1`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.6`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.6`)
        attention_dropout (float): Dropout of the attention weights. (default: :obj:`0.6`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        edge_dim (int, optional): Size of each edge's attributes. (default: :obj:`None`)
    """

    Options = GATOptions
    reads_sparse_rows = True
    carried = ("edge_attr",)

    def _make_layers(self, options: GATOptions) -> None:
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)
        shared: dict[str, Any] = {"dropout": options.attention_dropout, "backend": options.backend}
        shared["edge_dim"] = self.edge_dim
        first = GATConv(self.in_channels, self.hidden_channels, options.heads, layer=2, **shared)
        width = options.heads * self.hidden_channels
        second = GATConv(width, self.out_channels, options.out_heads, concat=False, layer=3, **shared)
        self.convs = nn.ModuleList([first, second])

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """The node embeddings before the last layer, [N, heads * H]."""
        return F.elu(convolve(self.convs[0], self.dropouts[0](x, n_id), edges, n_id))


@dataclass(frozen=True)
class ChebyOptions:
    """The options of :class:`Cheby`."""

    hidden_channels: int
    K: int = 3
    input_dropout: float = 0.5
    dropout: float = 0.5
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class Cheby(Network):
    """The two-layer network with the filters of the `"Convolutional Neural Networks on Graphs with Fast
    Localized Spectral Filtering" <https://arxiv.org/abs/1606.09375>`_ paper.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        K (int): Number of polynomials, so that K − 1 hops are seen. (default: :obj:`3`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = ChebyOptions
    reads_sparse_rows = True
    carried = ("edge_weight",)

    def _make_layers(self, options: ChebyOptions) -> None:
        first = ChebConv(self.in_channels, self.hidden_channels, options.K, backend=options.backend)
        second = ChebConv(self.hidden_channels, self.out_channels, options.K, backend=options.backend)
        self.convs = nn.ModuleList([first, second])
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)


@dataclass(frozen=True)
class SGCOptions:
    """The options of :class:`SGC`."""

    hidden_channels: int
    K: int = 2
    input_dropout: float = 0.0
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class SGC(Network):
    """The one-layer network of the `"Simplifying Graph Convolutional Networks"
    <https://arxiv.org/abs/1902.07153>`_ paper: a linear classifier of features spread over K hops.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Not used unless ``own="apart"``: there is no hidden layer otherwise.
        out_channels (int): Number of classes.
        K (int): Number of hops. (default: :obj:`2`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.0`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = SGCOptions
    reads_sparse_rows = True
    has_hidden_layers = False
    carried = ("edge_weight",)

    def _make_layers(self, options: SGCOptions) -> None:
        self.conv = SGConv(self.in_channels, self.out_channels, options.K, backend=options.backend)
        self.dropouts = make_dropouts(options.input_dropout)

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """With no hidden layer, the logits themselves, [N, out_channels]."""
        return convolve(self.conv, self.dropouts[0](x, n_id), edges)

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return self._embed(x, edges, n_id)


@dataclass(frozen=True)
class LGCNOptions:
    """The options of :class:`LGCN`."""

    hidden_channels: int
    num_lgcl: int = 2
    lgcl_channels: int = 8
    k: int = 8
    input_dropout: float = 0.84
    dropout: float = 0.84
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class LGCN(Network):
    """The network of the `"Large-Scale Learnable Graph Convolutional Networks"
    <https://arxiv.org/abs/1808.03965>`_ paper: a GCN layer as embedding, layers that add their output to
    their input's channels, a GCN layer as classifier.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the embedding.
        out_channels (int): Number of classes.
        num_lgcl (int): Number of learnable layers between the two GCN layers. (default: :obj:`2`)
        lgcl_channels (int): How many channels each of them adds. (default: :obj:`8`)
        k (int): How many values of the neighbours they keep per channel. (default: :obj:`8`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.84`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.84`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = LGCNOptions
    reads_sparse_rows = True

    def _make_layers(self, options: LGCNOptions) -> None:
        width, backend = self.hidden_channels, options.backend
        self.embedding = GCNConv(self.in_channels, width, backend=backend)
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)
        self.layers = nn.ModuleList()
        for number in range(options.num_lgcl):
            own = {"dropout": options.dropout, "layer": len(self.dropouts) + 2 * number}
            self.layers.append(LGCL(width, options.lgcl_channels, options.k, **own, backend=backend))
            width += options.lgcl_channels
        self.classifier = GCNConv(width, self.out_channels, backend=backend)

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """The node embeddings before the last layer, [N, H + num_lgcl * lgcl_channels]."""
        x = convolve(self.embedding, self.dropouts[0](x, n_id), edges)
        for layer in self.layers:
            x = torch.cat([x, convolve(layer, x, edges, n_id)], dim=-1)
        return x

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return convolve(self.classifier, self.dropouts[1](self._embed(x, edges, n_id), n_id), edges)


@dataclass(frozen=True)
class MLPOptions:
    """The options of :class:`MLP`."""

    hidden_channels: int
    input_dropout: float = 0.5
    dropout: float = 0.5


class MLP(Network):
    """Two linear layers on each node's own features: what the edges are worth is measured against it.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first layer's output.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
    """

    Options = MLPOptions
    reads_sparse_rows = True

    def _make_layers(self, options: MLPOptions) -> None:
        self.lins = nn.ModuleList(
            [
                make_linear(self.in_channels, self.hidden_channels),
                nn.Linear(self.hidden_channels, self.out_channels),
            ]
        )
        self.dropouts = make_dropouts(options.input_dropout, options.dropout)

    def _embed(
        self,
        x: Tensor,
        edges: Edges,  # noqa: ARG002 (called as every other model is)
        n_id: Tensor | None,
    ) -> Tensor:
        return F.relu(ops.apply(self.lins[0], self.dropouts[0](x, n_id)))

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return ops.apply(self.lins[1], self.dropouts[1](self._embed(x, edges, n_id), n_id))


@dataclass(frozen=True)
class GINOptions:
    """The options of :class:`GIN`."""

    hidden_channels: int
    input_dropout: float = 0.5
    dropout: float = 0.5
    backend: str = "auto"


class GIN(Network):
    """A two-layer network with the layers of the `"How Powerful are Graph Neural Networks?"
    <https://arxiv.org/abs/1810.00826>`_ paper and a linear classifier.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of both layers' outputs.
        out_channels (int): Number of classes.
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        edge_dim (int, optional): Size of each edge's attributes, which are read as in
            :class:`torch_geometric.nn.GINEConv`. (default: :obj:`None`)
    """

    Options = GINOptions
    carried = ("edge_attr",)

    def _make_layers(self, options: GINOptions) -> None:
        shared: dict[str, Any] = {"train_eps": True, "backend": options.backend}
        if self.edge_dim is not None:
            shared["edge_dim"] = self.edge_dim
            if self.in_channels == -1:
                raise Node2SeqError(
                    f"in_channels=-1 with edge_dim={self.edge_dim}",
                    "attributes are projected to the size of the input",
                    "Pass the number of features",
                )
        conv = GINConv if self.edge_dim is None else GINEConv
        self.convs = nn.ModuleList(
            conv(_two_layers(width, self.hidden_channels), **shared)
            for width in (self.in_channels, self.hidden_channels)
        )
        self.lin = nn.Linear(self.hidden_channels, self.out_channels)
        self.dropouts = make_dropouts(options.input_dropout, options.dropout, options.dropout)

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        for conv, dropout in zip(self.convs, self.dropouts[:2], strict=True):
            x = F.relu(convolve(conv, dropout(x, n_id), edges))
        return x

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return ops.apply(self.lin, self.dropouts[2](self._embed(x, edges, n_id), n_id))


def _two_layers(width: int, hidden: int) -> nn.Sequential:
    # No bias ahead of the normalisation, which would subtract it again.
    return nn.Sequential(
        make_linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, hidden)
    )


@dataclass(frozen=True)
class GCNStarOptions:
    """The options of :class:`GCNStar`."""

    hidden_channels: int
    skip: Literal["sum", "concat"] = "sum"
    activation: Literal["relu", "elu", "none"] = "relu"
    input_dropout: float = 0.5
    dropout: float = 0.5
    own: Literal["mixed", "apart"] = "mixed"
    smoothing: int = 0
    teleport: float = 0.1
    backend: str = "auto"


class GCNStar(Node2Seq):
    """The paper's GCN*: its network with a GCN layer in the Node2Seq layer's place.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the first two layers' outputs.
        out_channels (int): Number of classes.
        skip (str): How the first two outputs are combined: :obj:`"sum"` or :obj:`"concat"`.
            (default: :obj:`"sum"`)
        activation (str): :obj:`"relu"`, :obj:`"elu"` or :obj:`"none"`. (default: :obj:`"relu"`)
        input_dropout (float): Dropout of the input features. (default: :obj:`0.5`)
        dropout (float): Dropout of the hidden features. (default: :obj:`0.5`)
        own (str): :obj:`"apart"` adds the prediction of two dense layers that see a node's own features
            only. (default: :obj:`"mixed"`)
        smoothing (int): How often predictions are spread over the graph; see :class:`Smoothing`.
            (default: :obj:`0`)
        teleport (float): How much of its own prediction a node keeps each time. (default: :obj:`0.1`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    Options = GCNStarOptions
    reads_sparse_rows = True
    carried = ("edge_weight",)

    def _make_special(self, options: Any, width_in: int, width_out: int, **shared: Any) -> nn.Module:
        return GCNConv(width_in, width_out, backend=options.backend, **shared)

"""What networks have in common: edges, options, smoothed predictions, and how far they read."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.base import Neighbours, NotScripted, Whole
from node2seq.nn.conv.cheb import ChebConv
from node2seq.nn.conv.gat import GATConv
from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.gin import GINConv, GINEConv
from node2seq.nn.conv.inputs import has_message_hooks, is_count
from node2seq.nn.conv.lgcl import LGCL
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.conv.pna import PNAConv
from node2seq.nn.conv.sg import SGConv
from node2seq.nn.dropout import make_dropouts
from node2seq.options import build, check_rules, listed

# What networks take of the options of ``readout="ranks"`` and ``order="edge"``.
OF_RANKS = ("soft", "scores", "score_channels", "temperature", "self_position")

# The number of the first dropout of what stands beside the layers; those of the layers come before it.
_FIRST_BESIDE = 16

# What of the edges lies on a device.
_MOVED = ("index", "weight", "attr", "order", "whole")


class Edges(NamedTuple):
    """The edges of a graph and what they carry."""

    index: Any  # pyright: ignore[reportIncompatibleMethodOverride]
    """The edges in any form that PyG's layers take."""
    weight: Tensor | None = None
    """The weight of each edge, [edges]."""
    attr: Tensor | None = None
    """The attributes of each edge, [edges, edge_dim]."""
    order: Tensor | None = None
    """The number that each edge is sorted by, [edges]."""
    whole: Whole | None = None
    """The degrees of the nodes in the graph that this is a part of."""
    run: Callable[[nn.Module, Tensor], Tensor] | None = None
    """Called in the place of each layer, for inference layer by layer."""

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        moved = {
            name: None if (value := getattr(self, name)) is None else value.to(device) for name in _MOVED
        }
        return self._replace(**moved)


def convolve(conv: nn.Module, x: Tensor, edges: Edges, n_id: Tensor | None = None) -> Tensor:
    """Calls a layer with what it takes of the edges.

    Args:
        conv (torch.nn.Module): The layer.
        x (torch.Tensor): The node features.
        edges (Edges): The edges.
        n_id (torch.Tensor, optional): The nodes' ids in the graph that this is a part of, for attentions that
            are dropped.
    """
    if edges.run is not None:
        return conv.by_hops(x, edges.run) if isinstance(conv, Smoothing) else edges.run(conv, x)
    if isinstance(conv, nn.Linear):
        return ops.apply(conv, x)
    if isinstance(conv, GATConv):
        return conv(x, edges.index, edges.attr, n_id=n_id)
    if isinstance(conv, LGCL):
        return conv(x, edges.index, n_id, edges.whole)
    # These weigh neighbours by degrees, or add them up.
    by_degree = (GCNConv, SGConv, ChebConv, GINConv, GINEConv, Smoothing, NormalizedSum)
    whole = {} if edges.whole is None or not isinstance(conv, by_degree) else {"whole": edges.whole}
    if isinstance(conv, GINEConv):
        return conv(x, edges.index, edges.attr, **whole)
    if isinstance(conv, Node2SeqConv):
        return conv(x, edges.index, edges.weight, edges.attr, edge_order=edges.order)
    carried = () if edges.weight is None else (edges.weight,)
    return conv(x, edges.index, *carried, **whole)


class Network(NotScripted):
    """A network that classifies nodes. Every option is an attribute of the same name.

    A subclass names the dataclass of its options and makes its layers in ``_make_layers``. Unless it says
    otherwise, there are two: dropout, a layer, ReLU, dropout, a layer. ``carried`` names what it takes of
    ``edge_weight``, ``edge_attr`` and ``edge_order``.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the hidden layers' outputs.
        out_channels (int): Number of classes.
        edge_dim (int, optional): Size of each edge's attributes, for a network that takes them.
        **options: The other fields of ``Options``.
    """

    Options: ClassVar[type]
    carried: ClassVar[tuple[str, ...]] = ()
    has_hidden_layers: ClassVar[bool] = True
    edge_dim: int | None
    in_channels: int
    hidden_channels: int
    out_channels: int
    convs: nn.ModuleList
    dropouts: nn.ModuleList

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Gives the class the signature that its options make, for ``help``."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__signature__ = None  # its own, not an inherited one
        elif "Options" in vars(cls):
            cls.__signature__ = _signature(cls.Options)

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        edge_dim: int | None = None,
        **options: Any,
    ) -> None:
        given = {"hidden_channels": hidden_channels, **options}
        complete = build(self.Options, given, f"options of {type(self).__name__}")
        self._make(in_channels, out_channels, complete, edge_dim)

    @classmethod
    def with_options(
        cls, in_channels: int, out_channels: int, options: Any, edge_dim: int | None = None
    ) -> Self:
        """Make the network of an instance of ``Options``, which is complete and checked."""
        network = cls.__new__(cls)
        network._make(in_channels, out_channels, options, edge_dim)
        return network

    def _make(self, in_channels: int, out_channels: int, options: Any, edge_dim: int | None) -> None:
        super().__init__()
        self.check_carries(["edge_attr"] if edge_dim is not None else [])
        self.in_channels, self.out_channels, self.edge_dim = in_channels, out_channels, edge_dim
        for field in fields(options):
            setattr(self, field.name, getattr(options, field.name))
        if self.hidden_channels < 1 and self.has_hidden_layers:
            raise Node2SeqError(
                f"hidden_channels={self.hidden_channels}", "a layer needs at least one", "Give 1 or more"
            )
        self._make_layers(options)
        self.extras = self._make_extras(options)

    def _make_layers(self, options: Any) -> None:
        """Makes layers and dropouts; the order decides what is drawn for each of them."""
        raise NotImplementedError

    def _make_extras(self, options: Any) -> "Extras | None":
        """What ``own`` and ``smoothing`` add to the layers; None where nothing is added."""
        apart, steps = getattr(options, "own", "mixed") == "apart", getattr(options, "smoothing", 0)
        if not apart and not steps:
            return None
        widths = (self.in_channels, self.hidden_channels, self.out_channels) if apart else None
        dropouts = (options.input_dropout, getattr(options, "dropout", 0.0))
        return Extras(widths, dropouts, Smoothing(steps, options.teleport, backend=options.backend))

    def layers_beside(self) -> list[nn.Module]:
        """The layers that stand beside others and read from no further away than these."""
        return []

    def reset_parameters(self) -> None:
        """Draws new initial parameters, and new seeds of the dropouts."""
        for child in self.children():
            reset(child)

    def can_capture(self, x: Tensor) -> bool:
        """Whether passes over such features can be recorded as a CUDA graph.

        They can where all layers use fused kernels, which have the same sizes every time, and nobody listens
        to single messages.
        """
        if not x.is_cuda:
            return False
        backends = {vars(module)["backend"] for module in self.modules() if "backend" in vars(module)}
        plain = ops.BACKENDS.values()  # written in PyTorch alone, they look at values
        fused = all(ops.choose_backend(name, x) not in plain for name in backends)
        layers = [module for module in self.modules() if isinstance(module, MessagePassing)]
        return fused and not any(map(has_message_hooks, layers))

    @classmethod
    def check_carries(cls, names: Iterable[str]) -> None:
        """Raises an error if the network does not take one of ``edge_weight``, ``edge_attr`` and
        ``edge_order``.
        """
        for name in names:
            if name not in cls.carried:
                others = sorted(other.__name__ for other in _subclasses(Network) if name in other.carried)
                raise Node2SeqError(
                    f"{name} for {cls.__name__}",
                    "this network does not read what edges carry"
                    if not cls.carried
                    else f"of what edges carry, this network reads {listed(cls.carried)} alone",
                    f"Leave it out, or use one of {', '.join(others)}",
                )

    def embed(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        edge_order: Tensor | None = None,
        n_id: Tensor | None = None,
        whole: Whole | None = None,
    ) -> Tensor:
        """The node embeddings before the last layer, [N, H]; see :meth:`forward`."""
        return self._embed(x, self._edges(edge_index, edge_weight, edge_attr, edge_order, whole), n_id)

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        edge_order: Tensor | None = None,
        n_id: Tensor | None = None,
        whole: Whole | None = None,
    ) -> Tensor:
        """The logits of each class, [N, out_channels].

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor, SparseTensor or Edges): The edges, or all that is known of them.
            edge_weight (torch.Tensor, optional): The weight of each edge, for a network that takes it.
            edge_attr (torch.Tensor, optional): The attributes of each edge, for a network that was made with
                ``edge_dim``.
            edge_order (torch.Tensor, optional): The number that each edge is sorted by, for a network with
                ``order="edge"``.
            n_id (torch.Tensor, optional): The nodes' ids in the graph that this is a part of, so that dropout
                drops the same elements however batches are cut.
            whole (Whole, optional): The degrees of the nodes in that graph, so that they are weighed as
                there.
        """
        edges = self._edges(edge_index, edge_weight, edge_attr, edge_order, whole)
        out = self._classify(x, edges, n_id)
        out = out if self.extras is None else self.extras(out, x, edges, n_id)
        beside = self._beside(x, edges)
        return out if beside is None else out + beside

    def _edges(
        self,
        edge_index: Any,
        edge_weight: Tensor | None,
        edge_attr: Tensor | None,
        edge_order: Tensor | None,
        whole: Whole | None,
    ) -> Edges:
        if isinstance(edge_index, Edges):
            return edge_index
        given = {"edge_weight": edge_weight, "edge_attr": edge_attr, "edge_order": edge_order}
        self.check_carries([name for name, values in given.items() if values is not None])
        if (edge_attr is None) != (self.edge_dim is None):
            raise Node2SeqError(
                "no edge_attr" if edge_attr is None else f"edge_attr of shape {list(edge_attr.shape)}",
                f"the network was made with edge_dim={self.edge_dim}",
                "Pass the attributes of the edges to a network with edge_dim, and to no other",
            )
        if isinstance(edge_index, Tensor) and edge_index.layout == torch.sparse_csc:
            edge_index = edge_index.to_sparse_csr()  # the layers of PyG take no columns
        return Edges(edge_index, edge_weight, edge_attr, edge_order, whole)

    def _beside(self, x: Tensor, edges: Edges) -> Tensor | None:  # noqa: ARG002
        """What is added to all of it, if anything."""
        return None

    @property
    def hops_beside(self) -> int:
        """From how far that reads."""
        return 0

    def _embed(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return F.relu(convolve(self.convs[0], self.dropouts[0](x, n_id), edges, n_id))

    def _classify(self, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        return convolve(self.convs[1], self.dropouts[1](self._embed(x, edges, n_id), n_id), edges, n_id)


def make_linear(in_channels: int, out_channels: int, bias: bool = True) -> nn.Module:
    """A linear layer, or for -1 one that takes its size from its first input."""
    if in_channels == -1:
        return torch_geometric.nn.Linear(in_channels, out_channels, bias)
    return nn.Linear(in_channels, out_channels, bias)


def _subclasses(cls: type) -> list[type]:
    """The subclasses of a class in this package, direct or not."""
    below = [other for other in cls.__subclasses__() if other.__module__.startswith(f"{__package__}.")]
    return [found for other in below for found in (other, *_subclasses(other))]


def _signature(options: type) -> Signature:
    types = get_type_hints(options)
    channels = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=int)
        for name in ("in_channels", "hidden_channels", "out_channels")
    ]
    others = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
        for field in fields(options)
        if field.name != "hidden_channels"
    ]
    edge_dim = Parameter("edge_dim", Parameter.KEYWORD_ONLY, default=None, annotation=int | None)
    return Signature([*channels, *others, edge_dim])


class Smoothing(nn.Module):
    r"""Spreads each node's values over the graph and pulls them back to what they were, several times:
    the propagation of the `"Predict then Propagate" <https://arxiv.org/abs/1810.05997>`_ paper.

    .. math::
        \mathbf{Z} \leftarrow (1 - \alpha) \hat{\mathbf{A}} \mathbf{Z} + \alpha \mathbf{Z}_0

    Args:
        steps (int): How often.
        teleport (float): The share :math:`\alpha` of the start in each step.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
    """

    def __init__(self, steps: int, teleport: float, *, backend: str = "auto") -> None:
        check_rules(
            (
                is_count(steps, least=0),
                f"smoothing={steps!r}",
                "it is how often predictions are spread over the graph",
                "Pass a whole number from 0 up",
            ),
            (
                0.0 <= teleport <= 1.0,
                f"teleport={teleport!r}",
                "it is the share of a node's own prediction",
                "Pass a number from 0 to 1",
            ),
        )
        ops.check_backend(backend)
        super().__init__()
        self.steps = steps
        self.teleport = teleport
        self.backend = backend

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        *,
        whole: Whole | None = None,
    ) -> Tensor:
        """The smoothed values, in the shape of ``x``."""
        if not self.steps:
            return x
        neighbours = Neighbours(x, edge_index, add_self_loops=True, backend=self.backend)
        start = self.teleport * x
        weights = neighbours.gcn_weights(edge_weight, whole, x.dtype) * (1.0 - self.teleport)
        for _ in range(self.steps):
            x = neighbours.sum(x, weights) + start
        return x

    def by_hops(self, x: Tensor, run: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """The same by a function that calls a layer; the layer of each step is a :class:`NormalizedSum`."""
        step, start = NormalizedSum(self.backend), self.teleport * x
        for _ in range(self.steps):
            x = (1.0 - self.teleport) * run(step, x) + start
        return x

    def extra_repr(self) -> str:
        """The settings."""
        return f"steps={self.steps}, teleport={self.teleport}"


class Extras(nn.Module):
    """What a network may add to its layers: a node's own features apart, and smoothed predictions.

    Args:
        widths (tuple, optional): The sizes of two dense layers that see a node's own features only; their
            prediction is added. None: no such layers.
        dropouts (tuple): Dropout of their input and of their hidden features.
        smooth (Smoothing): Applied to the sum.
    """

    def __init__(
        self, widths: tuple[int, int, int] | None, dropouts: tuple[float, float], smooth: Smoothing
    ) -> None:
        super().__init__()
        self.lins = self.dropouts = None
        if widths is not None:
            inside, hidden, out = widths
            self.lins = nn.ModuleList([make_linear(inside, hidden), nn.Linear(hidden, out)])
            self.dropouts = make_dropouts(*dropouts, start=_FIRST_BESIDE)
        self.smooth = smooth

    def forward(self, logits: Tensor, x: Tensor, edges: Edges, n_id: Tensor | None) -> Tensor:
        """The prediction of the layers with the extras, in the shape of ``logits``."""
        if self.lins is not None and self.dropouts is not None:
            hidden = F.relu(ops.apply(self.lins[0], self.dropouts[0](x, n_id)))
            logits = logits + ops.apply(self.lins[1], self.dropouts[1](hidden, n_id))
        return convolve(self.smooth, logits, edges)


class NormalizedSum(nn.Module):
    r"""The sum of a node's neighbours and itself, weighted by their degrees as in a GCN:
    :math:`\hat{\mathbf{A}} \mathbf{X}`. It has no parameters.

    Args:
        backend (str): See :mod:`node2seq.ops`.
    """

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend

    def forward(
        self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None, *, whole: Whole | None = None
    ) -> Tensor:
        """The weighted sums of the neighbours' values, in the shape of ``x``."""
        neighbours = Neighbours(x, edge_index, add_self_loops=True, backend=self.backend)
        return neighbours.sum(x, neighbours.gcn_weights(edge_weight, whole, x.dtype))


def graph_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a network that read neighbours, in no particular order."""
    return [
        layer for layer in model.modules() if isinstance(layer, MessagePassing | LGCL | PNAConv | Smoothing)
    ]


def hops_of(layer: nn.Module) -> int:
    """How far away the nodes are that a layer reads, before any selection of nodes further away."""
    if isinstance(layer, Smoothing):
        return layer.steps
    return len(layer.lins) - 1 if isinstance(layer, ChebConv) else getattr(layer, "K", 1)


def layers_in_line(model: nn.Module) -> list[nn.Module]:
    """The layers of a network that read neighbours one after the other, without those that stand beside."""
    beside = model.layers_beside() if isinstance(model, Network) else []
    skipped = {id(module) for layer in beside for module in layer.modules()}
    return [layer for layer in graph_layers(model) if id(layer) not in skipped]


def hops_of_network(model: nn.Module) -> int:
    """How far away the nodes are that a whole network reads."""
    beside = model.hops_beside if isinstance(model, Network) else 0
    return max(sum(map(hops_of, layers_in_line(model))), beside)

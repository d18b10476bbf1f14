"""The layer: score → rank → convolve → read out."""

# No `from __future__ import annotations`: MessagePassing reads the annotations of `message` and `aggregate`.
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import Parameter, UninitializedParameter
from torch_geometric.nn import Linear, MessagePassing
from torch_geometric.typing import Adj, OptPairTensor, Size
from torch_geometric.utils import is_torch_sparse_tensor, softmax

from node2seq import ops
from node2seq.errors import Node2SeqError, check_choice
from node2seq.nn.adjacency import edges_of, sequences_of
from node2seq.nn.hooks import has_message_hooks, is_plain_linear

READOUTS = ("max", "mean", "sum")
ROOTS = ("projected", "input")
NONLOCAL_ORDERS = ("joint", "local-first")
ORDERS = ("attention", "degree", "random")
TAPS = ("full", "depthwise", "scalar")


class Trace(NamedTuple):
    """What the layer did at each node. Entry e of node i lies at ``ptr[i] <= e < ptr[i + 1]``, best first."""

    ptr: Tensor
    """Where each node's sequence starts, and where the last one ends, [N + 1]."""
    index: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]
    """The source node of each entry, [E]."""
    scores: Tensor
    """Its score, [E]."""
    is_nonlocal: Tensor
    """Whether it was taken from several hops away, [E]."""
    winner: Tensor | None
    """For ``readout="max"``: the window that won each channel, [N, D]. It starts at ``ptr[i] + winner``."""


class Node2SeqConv(MessagePassing):
    r"""The Node2Seq layer from the `"Node2Seq: Towards Trainable Convolutions in Graph Neural Networks"
    <https://arxiv.org/abs/2101.01849>`_ paper: each node sorts its neighbours by attention and runs a 1D
    convolution over the sorted sequence.

    .. math::
        \bar{\mathbf{x}}_i = \mathbf{W}_1 \mathbf{x}_i, \qquad
        s_{ij} = \bar{\mathbf{x}}_i^{\top} \bar{\mathbf{x}}_j, \qquad
        (j_1, \ldots, j_{k_i}) = \mathrm{argsort}^{\downarrow}_{j \in \mathcal{N}(i) \cup \{i\}} s_{ij}

    .. math::
        \hat{\mathbf{x}}_i = \mathbf{W}_2 \bar{\mathbf{x}}_i + \mathrm{readout}_{p} \sum_{t=0}^{K-1}
        \mathbf{\Theta}_t^{\top} \bar{\mathbf{x}}_{j_{p+t}} + \mathbf{b}

    Equal scores are ordered by the larger own score :math:`s_{jj}`, then by the smaller id. A sequence
    shorter than the kernel is padded with zeros at its end. No gradient passes through the order.

    With more than one hop, neighbours whose score is not above the threshold make room for the best nodes
    within that many hops; each sequence keeps its length.

    Args:
        in_channels (int or tuple): Size of each input sample, or :obj:`-1` to derive it from the first input.
            A tuple gives the source and target nodes of a bipartite graph a projection each; with
            ``root="input"`` only the order depends on the targets', which then receives no gradient.
        out_channels (int): Size of each output sample.
        kernel_size (int): Number of taps :math:`K` of the convolution. (default: :obj:`3`)
        readout (str): How the windows are combined: :obj:`"max"`, :obj:`"mean"` or :obj:`"sum"`.
            (default: :obj:`"max"`)
        hops (int): How far away neighbours may be. :obj:`1` is the plain layer. (default: :obj:`1`)
        threshold (float): With several hops, a neighbour stays only if its score is larger.
            (default: :obj:`0.0`)
        root (str): What :math:`\mathbf{W}_2` applies to: :obj:`"projected"`, as in the equation above, or
            :obj:`"input"` for :math:`\mathbf{x}_i`. (default: :obj:`"projected"`)
        nonlocal_order (str): With several hops, rank all chosen nodes together (:obj:`"joint"`) or neighbours
            before the others (:obj:`"local-first"`). (default: :obj:`"joint"`)
        order (str): What the chosen neighbours are sorted by: :obj:`"attention"`, as above;
            :obj:`"degree"`, a fixed order by the number of sequences that a node stands in, ties by these
            sequences' lengths together, then by id, like the node ranking of PATCHY-SAN; or :obj:`"random"`,
            a fixed order drawn once when the parameters are. (default: :obj:`"attention"`)
        taps (str): What each tap of the convolution is: a matrix (:obj:`"full"`, as above), one weight per
            channel (:obj:`"depthwise"`) or one weight (:obj:`"scalar"`). The last two start at
            :math:`1 / K`, the mean of each window, and have far fewer weights to learn from few labels.
            (default: :obj:`"full"`)
        add_self_loops (bool): Whether a node is its own neighbour. Set to :obj:`False` between different node
            types. (default: :obj:`True`)
        bias (bool): Whether to learn an additive bias. (default: :obj:`True`)
        backend (str): :obj:`"auto"`, :obj:`"native"`, :obj:`"triton"`, :obj:`"eager"` or
            :obj:`"reference"`; see :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        validate (bool): Whether to look for NaN and infinite features in each forward pass.
            (default: :obj:`False`)
        **kwargs (optional): Additional arguments of :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, C)` or
          :math:`((|\mathcal{V}_s|, C_s), (|\mathcal{V}_t|, C_t))` if bipartite, edge indices
          :math:`(2, |\mathcal{E}|)` or a sparse adjacency :math:`(|\mathcal{V}_t|, |\mathcal{V}_s|)`
        - **output:** node features :math:`(|\mathcal{V}_t|, D)`; with ``return_trace=True`` also a
          :class:`Trace`
    """

    # PyG would read the arguments off the source of the class, and misreads some subclasses.
    propagate_type: ClassVar = {
        "x": Tensor,
        "alpha": Tensor,
        "key": Tensor,
        "entry_of_edge": Tensor,
        "ranked": Any,
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # PyG puts generated code that explainers cannot enter in the place of a class's `propagate`, and
        # keeps the original for them. What a subclass inherits must not pass for the original.
        if "propagate" not in cls.__dict__:
            cls.propagate = MessagePassing.propagate

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        kernel_size: int = 3,
        *,
        readout: str = "max",
        hops: int = 1,
        threshold: float = 0.0,
        root: str = "projected",
        nonlocal_order: str = "joint",
        order: str = "attention",
        taps: str = "full",
        add_self_loops: bool = True,
        bias: bool = True,
        backend: str = "auto",
        validate: bool = False,
        **kwargs: Any,
    ) -> None:
        _check_at_least_one("kernel_size", kernel_size, "the number of taps of the convolution")
        _check_at_least_one("hops", hops, "how far away neighbours may be")
        _check_at_least_one("out_channels", out_channels, "the size of each output sample")
        in_channels = _check_in_channels(in_channels)
        check_choice("readout", readout, READOUTS)
        check_choice("root", root, ROOTS)
        check_choice("nonlocal_order", nonlocal_order, NONLOCAL_ORDERS)
        check_choice("order", order, ORDERS)
        check_choice("taps", taps, TAPS)
        ops.check_backend(backend)
        if not isinstance(threshold, (int, float)) or threshold != threshold:
            raise Node2SeqError(
                f"threshold={threshold!r}", "scores are compared with it", "Pass a number, such as 0.0"
            )
        if kwargs.get("decomposed_layers", 1) != 1:
            raise Node2SeqError(
                f"decomposed_layers={kwargs['decomposed_layers']!r}",
                "the order of the neighbours depends on all channels together",
                "Leave it out",
            )
        if kwargs.pop("aggr", None) is not None:
            raise Node2SeqError(
                "aggr", "the windows of the sorted sequence are combined by readout", "Pass readout instead"
            )
        super().__init__(aggr=None, node_dim=0, **kwargs)

        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.readout = readout
        self.hops = hops
        self.threshold: float | Tensor = float(threshold)  # or one for each of R runs, [R]
        self.root = root
        self.nonlocal_order = nonlocal_order
        self.order = order
        self.taps = taps
        self.add_self_loops = add_self_loops
        self.backend = backend
        self.validate = validate

        # MessagePassing orders pairs by the rows of edge_index; the flow says which of them is the source.
        self._source, self._target = (0, 1) if self.flow == "source_to_target" else (1, 0)
        pair = (in_channels, in_channels) if isinstance(in_channels, int) else in_channels
        self.lin = Linear(pair[self._source], out_channels, bias=False, weight_initializer="glorot")
        self.lin_dst = None
        if not isinstance(in_channels, int):
            self.lin_dst = Linear(pair[self._target], out_channels, bias=False, weight_initializer="glorot")
        widths = {"full": (out_channels, out_channels), "depthwise": (out_channels,), "scalar": ()}[taps]
        self.weight = Parameter(torch.empty(kernel_size, *widths))
        self.lin_root = Linear(
            out_channels if root == "projected" else pair[self._target],
            out_channels,
            bias=False,
            weight_initializer="glorot",
        )
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.order_seed: Tensor | None
        self.register_buffer("order_seed", torch.zeros((), dtype=torch.int64) if order == "random" else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        super().reset_parameters()
        self.lin.reset_parameters()
        if self.lin_dst is not None:
            self.lin_dst.reset_parameters()
        self.lin_root.reset_parameters()
        if self.taps == "full":
            bound = (self.kernel_size * self.out_channels) ** -0.5  # as torch.nn.Conv1d
            torch.nn.init.uniform_(self.weight, -bound, bound)
        else:  # the mean of each window
            torch.nn.init.constant_(self.weight, 1 / self.kernel_size)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)
        if self.order_seed is not None:
            self.order_seed.fill_(int(torch.randint(2**62, ())))

    def forward(
        self,
        x: Tensor | OptPairTensor,
        edge_index: Adj,
        size: Size = None,
        return_trace: bool = False,
    ) -> Any:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor or (torch.Tensor, torch.Tensor)): The node features.
            edge_index (torch.Tensor or SparseTensor): The edges.
            size ((int, int), optional): The number of nodes on each side of a bipartite graph.
            return_trace (bool): Whether to return a :class:`Trace` as well.
        """
        run: Any = self._run_uncompiled if is_torch_sparse_tensor(edge_index) else self._run
        return run(x, edge_index, size, return_trace)

    def _run(self, x: Tensor | OptPairTensor, edge_index: Adj, size: Size, return_trace: bool) -> Any:
        x_src, x_dst = self._check_features(x, size)
        out_dtype = torch.promote_types(x_src.dtype, self.weight.dtype)

        # Autocast would round the projection to 16 bits, which reorders a third of the longer sequences.
        with _without_autocast(x_src.device.type):
            key = _project(self.lin, x_src)  # eq. 1: X̄ = X W1, [M, D]
            shared = self.lin_dst is None and x_dst is x_src
            query = key if shared else _project(self.lin_dst or self.lin, x_dst)  # [N, D]
            sequences, candidates = sequences_of(
                edge_index,
                flow=self.flow,
                num_sources=key.size(-2),
                num_targets=query.size(-2),
                add_self_loops=self.add_self_loops,
                hops=self.hops,
                backend=self.backend,
            )
            # R runs are the disjoint union of R copies of the graph.
            runs, shape = ops.runs_of(key), query.shape
            sequences, key = sequences.copies(runs), key.flatten(0, -2)
            query = key if shared else query.flatten(0, -2)
            backend = ops.choose_backend(self.backend, key, sequences.rows.num_entries)
            ranking = ops.arrange(  # eqs. 2 to 4: the order of the neighbours
                query,
                key,
                sequences,
                candidates=None if candidates is None else candidates.copies(runs),
                hops=self.hops,
                threshold=self._threshold_of_each(shape, key.dtype) if self.hops > 1 else 0.0,
                joint=self.nonlocal_order == "joint",
                backend=backend,
            )
            if self.order != "attention":
                ranking = ops.rearrange(ranking, sequences, seed=self.order_seed)
            is_plain = not has_message_hooks(self) and type(self).message is Node2SeqConv.message
            ranked = ranking.ranked(sequences, self.hops) if is_plain else None
            own_is_key = shared and self.root == "projected" and is_plain_linear(self.lin_root)
            if is_plain and own_is_key:  # eqs. 5 to 7 in one step
                out, winner = self._convolve_and_add(key, ranked, backend)
                out = out.view(shape)
            else:
                if is_plain:
                    out, winner = self._convolve(key, ranked, backend)  # eqs. 5 and 6
                else:
                    out, winner = self._propagate_messages(edge_index, key, query, sequences, ranking)
                if len(shape) == 3:
                    out, query = out.view(shape), query.view(shape)
                root = query if self.root == "projected" else x_dst
                out = out + _project(self.lin_root, root)  # eq. 7
                out = ops.add_bias(out, self.bias)
        out = out.to(out_dtype)

        if return_trace:
            is_nonlocal = ranking.entry < 0
            return out, Trace(sequences.rows.ptr, ranking.node, ranking.score, is_nonlocal, winner)
        return out

    # torch.compile cannot read sparse tensors and would compile some parts of the layer without the others.
    _run_uncompiled = torch.compiler.disable(_run)

    def _threshold_of_each(self, shape: torch.Size, dtype: torch.dtype) -> float | Tensor:
        """The threshold, or each run's for every one of its targets, [R * N]."""
        threshold = self.threshold
        if isinstance(threshold, Tensor):
            threshold = threshold.to(dtype)[:, None].expand(shape[:-1]).reshape(-1)
        return threshold

    def _convolve(self, x: Tensor, ranked: Any, backend: Any) -> tuple[Tensor, Tensor | None]:
        return ops.convolve(x, self._kernel(x.dtype), ranked, self.readout, backend)

    def _convolve_and_add(self, x: Tensor, ranked: Any, backend: Any) -> tuple[Tensor, Tensor | None]:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        root = self.lin_root.weight.to(x.dtype)
        return ops.layer(x, self._kernel(x.dtype), root, bias, ranked, self.readout, backend)

    def _kernel(self, dtype: torch.dtype) -> Tensor:
        """The weights of the convolution as one matrix per tap, [K, D, D]."""
        weight = self.weight.to(dtype)
        if self.taps == "scalar":
            weight = weight[..., None].expand(*weight.shape, self.out_channels)
        return weight if self.taps == "full" else torch.diag_embed(weight)

    # Message passing, edge by edge: what explainers and hooks see #############

    def _propagate_messages(
        self, edge_index: Adj, key: Tensor, query: Tensor, sequences: ops.Sequences, ranking: ops.Ranking
    ) -> tuple[Tensor, Tensor | None]:
        source, target = edges_of(edge_index, self.flow)
        rows, span = sequences.rows, max(sequences.num_sources, 1)
        entry_of_edge = torch.searchsorted(rows.target * span + sequences.index, target * span + source)

        # The attention that explainers read: the softmax of the scores over each node's neighbours.
        with torch.no_grad():
            score = ops.reference.score(query, key, sequences)
            alpha = softmax(score, rows.target, num_nodes=rows.num_rows + 1)[entry_of_edge]

        # PyG lifts pairs of features differently with and without an explainer where the flow is reversed,
        # and sparse matrices not in every layout: messages need the sources and plain edges only.
        sizes = (sequences.num_sources, rows.num_rows)
        winners: list[Tensor | None] = []
        out = self.propagate(
            torch.stack([source, target] if self._source == 0 else [target, source]),
            size=(sizes[self._source], sizes[self._target]),
            x=key,
            alpha=alpha,
            key=key,
            entry_of_edge=entry_of_edge,
            ranked=(sequences, ranking, winners),
        )
        return out, winners[0] if winners else None

    def message(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x_j: Tensor,
        alpha: Tensor,  # noqa: ARG002 (explainers read alpha off this call)
    ) -> Tensor:
        """One row for each edge that was passed in, in that order."""
        return x_j

    def aggregate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Tensor, key: Tensor, entry_of_edge: Tensor, ranked: Any
    ) -> Tensor:
        """Merges duplicate edges, brings messages into their order and convolves over them.

        Self entries that were added and non-local nodes are no edges: their rows come from ``key``.
        """
        sequences, ranking, winners = ranked
        entries = sequences.rows.num_entries
        merged = inputs.new_zeros(entries, inputs.size(-1)).index_add(0, entry_of_edge, inputs)
        edges = entry_of_edge.new_zeros(entries).scatter_add(0, entry_of_edge, torch.ones_like(entry_of_edge))
        merged = merged / edges.clamp(min=1)[:, None]
        table = torch.cat([merged, key])
        is_edge = (ranking.entry >= 0) & (edges > 0)[ranking.entry]
        row = torch.where(is_edge, ranking.entry, entries + ranking.node)
        out, winner = self._convolve(table, ops.Sequences(sequences.rows, row, table.size(0)), ops.reference)
        winners.append(winner)
        return out

    # Checks ###################################################################

    def _check_features(self, x: Any, size: Size) -> tuple[Tensor, Tensor]:
        pair = x if isinstance(x, (tuple, list)) else (x, x)
        if len(pair) != 2:
            raise Node2SeqError(
                f"x is a {type(x).__name__} of {len(pair)}",
                "a graph has one kind of nodes, or sources and targets",
                "Pass a tensor, or a tuple of two",
            )
        x_src, x_dst = pair[self._source], pair[self._target]
        if x_src is None or x_dst is None:
            missing = "source" if x_src is None else "target"
            raise Node2SeqError(
                f"x=({', '.join('None' if part is None else 'Tensor' for part in pair)})",
                "each target's features are the query that its sources' features are scored against",
                f"Pass the {missing} nodes' features too",
            )
        sides = [("source", x_src, self.lin), ("target", x_dst, self.lin_dst or self.lin)]
        if x_src is x_dst and self.lin_dst is None:  # one look is enough
            sides.pop()
        for side, x, lin in sides:
            name = "x" if x_src is x_dst else f"x_{side}"
            stacked = not isinstance(lin.weight, UninitializedParameter) and lin.weight.dim() == 3
            is_matrix = isinstance(x, (Tensor, ops.SparseRows))
            if not is_matrix or not (x.dim() == 2 or (stacked and x.dim() == 3)):
                given = f"a tensor of shape {list(x.shape)}" if is_matrix else type(x).__name__
                raise Node2SeqError(
                    f"{name} is {given}", "node features are a matrix", "Pass shape [num_nodes, channels]"
                )
            if not x.is_floating_point():
                raise Node2SeqError(
                    f"{name} has dtype {x.dtype}", "features are multiplied with weights", "Pass x.float()"
                )
            width = x.size(-1)
            if not isinstance(lin.weight, UninitializedParameter):
                width = lin.weight.size(-1)
            elif lin is self.lin:  # a lazy projection that both sides share takes its width from the sources
                width = x_src.size(-1)
            if x.size(-1) != width:
                raise Node2SeqError(
                    f"{name} has {x.size(-1)} channels",
                    f"the layer projects it from {width}",
                    f"Pass {width} channels, or make the layer with another in_channels: a tuple of two "
                    "where sources and targets differ",
                )
            if self.validate and not ops.is_tracing() and not bool(x.isfinite().all()):
                x = ops.dense(x)
                row, column = (~x.isfinite()).nonzero()[0].tolist()
                raise Node2SeqError(
                    f"{name}[{row}, {column}] is {float(x[row, column])}",
                    "features have to be finite, or every score that they enter is lost",
                    "Replace missing values before training, for instance with torch.nan_to_num",
                )
        if size is not None:
            given = (size[self._source], size[self._target])
            for side, x, count in (("source", x_src, given[0]), ("target", x_dst, given[1])):
                if count is not None and count != x.size(-2):
                    raise Node2SeqError(
                        f"size={tuple(size)}",
                        f"there are features for {x.size(-2)} {side} nodes, not {count}",
                        "Pass one feature row per node, or leave size out",
                    )
        return x_src, x_dst

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size})"
        )


def _without_autocast(device: str) -> AbstractContextManager[object]:
    """Leaves autocast for a while; where it is off already, that would take as long as starting a kernel."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _project(lin: Linear, x: Tensor) -> Tensor:
    """A linear map in float32 or better."""
    if isinstance(lin.weight, UninitializedParameter):
        lin.initialize_parameters(lin, (x,))
    dtype = torch.promote_types(torch.promote_types(x.dtype, lin.weight.dtype), torch.float32)
    if x.dtype == lin.weight.dtype == dtype:
        return ops.apply(lin, x)
    return ops.linear(x.to(dtype), lin.weight.to(dtype))


def _check_in_channels(in_channels: Any) -> int | tuple[int, int]:
    pair = tuple(in_channels) if isinstance(in_channels, (tuple, list)) else (in_channels,) * 2
    if len(pair) != 2 or any(isinstance(c, bool) or not isinstance(c, int) or c < -1 or c == 0 for c in pair):
        raise Node2SeqError(
            f"in_channels={in_channels!r}",
            "it is the size of each input sample, or one for sources and one for targets",
            "Pass a whole number from 1 up, -1 to take it from the first input, or a tuple of two such",
        )
    return in_channels if isinstance(in_channels, int) else pair


def _check_at_least_one(name: str, value: Any, meaning: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Node2SeqError(
            f"{name}={value!r}", f"it is {meaning}, at least 1", "Pass a whole number from 1 up"
        )

"""What layers share: sums over a plan of the edges, and messages edge by edge for explainers and hooks."""

# No `from __future__ import annotations`: MessagePassing reads the annotations of `message` and `aggregate`.
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import Adj, OptTensor
from torch_geometric.utils import is_torch_sparse_tensor, softmax

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.edge_inputs import check_edge_values
from node2seq.nn.conv.inputs import check_not_traced, edges_of, entries_of, has_message_hooks, sequences_of


class NotScripted(nn.Module):
    """A base of what TorchScript, which PyTorch has deprecated, cannot read."""

    def __prepare_scriptable__(self) -> nn.Module:
        raise Node2SeqError(
            f"torch.jit.script of {type(self).__name__}",
            "TorchScript cannot read how it works on ragged sequences",
            "Use torch.compile, or torch.export.export",
        )


class Whole(NamedTuple):
    """The degrees of nodes in the graph that a batch is drawn from.

    With them, a layer that weighs neighbours by degrees gives a node with all its edges what it has in the
    whole graph. Where only some edges were drawn, their sum is scaled up: it has the right mean.
    """

    into: Tensor
    """The edges into each node, loops not counted; or the sum of their weights, [N]."""
    out: Tensor
    """The same for the edges that start there."""
    own: Tensor
    """The weight of each node's entry for itself."""

    @classmethod
    def of(
        cls, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None, self_loops: bool = True
    ) -> Self:
        """The degrees of all nodes of a graph.

        Args:
            edge_index (torch.Tensor): Its edges.
            num_nodes (int): Its nodes.
            edge_weight (torch.Tensor, optional): The weight of each edge.
            self_loops (bool): Whether layers add a self loop to each node that has none.
        """
        source, target = edge_index
        weight = torch.ones(source.numel()) if edge_weight is None else edge_weight
        weight, loop = weight.double(), source == target
        zeros = torch.zeros(num_nodes, dtype=torch.float64)
        others = weight.masked_fill(loop, 0.0)
        own = zeros.index_add(0, target[loop], weight[loop])
        if self_loops:  # of several that are listed, the last counts
            own = zeros + 1.0
            if edge_weight is not None:
                own[target[loop]] = weight[loop]
        return cls(zeros.index_add(0, target, others), zeros.index_add(0, source, others), own)

    def take(self, nodes: Tensor) -> Self:
        """Those of some nodes."""
        return type(self)(*(values[nodes] for values in self))

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(*(values.to(device) for values in self))


class Neighbours:
    """The neighbours of each node, an edge as often as it is listed, and the backend that reads them.

    Args:
        x (torch.Tensor): The features that are read: [N, C], or [R, N, C] for R runs at once.
        edge_index (torch.Tensor or SparseTensor): The edges.
        add_self_loops (bool): Whether a node is its own neighbour.
        flow (str): See :class:`torch_geometric.nn.MessagePassing`. (default: :obj:`"source_to_target"`)
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        heads (int): How often each run reads the graph. (default: :obj:`1`)
    """

    def __init__(
        self,
        x: Tensor,
        edge_index: Any,
        *,
        add_self_loops: bool,
        flow: str = "source_to_target",
        backend: str = "auto",
        heads: int = 1,
    ) -> None:
        check_not_traced()
        self.edge_index = edge_index
        nodes, is_forward = x.size(-2), int(flow == "source_to_target")
        # PyG counts an edge as often as it is listed.
        self._graph = ops.GraphNumbers(
            is_forward, nodes, nodes, add_self_loops=int(add_self_loops), merge_duplicates=0
        )
        self.sequences = sequences_of(edge_index, self._graph, backend=backend)
        # R runs are the disjoint union of R copies of the graph.
        self.copies = ops.runs_of(x) * heads
        self.union = self.sequences.copies(self.copies)
        self.backend = ops.choose_backend(backend, x)

    def sum(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """The weighted sum of a node's neighbours, in the shape of ``x``; with GCN's weights by default.

        Under autocast one of the two may be rounded to 16 bits: the sum has the precision of the other.
        """
        if weights is None:
            weights = self.union.gcn_weights(x.dtype)
        dtype = torch.promote_types(x.dtype, weights.dtype)
        flat, weights = x.flatten(0, -2).to(dtype), weights.to(dtype)
        return self.backend.aggregate(flat, self.union, weights).view(x.shape)

    def per_entry(
        self, values: Tensor, fill: float = 0.0, dim: int = -1, *, keep_loops: bool = False
    ) -> Tensor:
        """Values of edges as values of the entries of one run; see :func:`node2seq.ops.per_entry`."""
        entry = entries_of(self.edge_index, self._graph, keep_loops)
        return ops.per_entry(values, entry, self.sequences.rows.num_entries, fill, dim)

    def gcn_weights(self, edge_weight: Tensor | None, whole: Whole | None, dtype: torch.dtype) -> Tensor:
        """GCN's weights, for all runs: of edges with weights, or of a part of a graph."""
        target, source, nodes = self.sequences.rows.target, self.sequences.index, self.sequences.num_sources
        if whole is not None:
            weight = self.drawn_weights(whole, dtype, edge_weight)
            scale = inverse_root((whole.into + whole.own).to(dtype))
        elif edge_weight is not None:
            # Behind the last node: the row of traced leftovers, which count for nothing.
            weight = self.edge_weights(edge_weight).masked_fill(target == nodes, 0.0)
            scale = inverse_root(sums_at(weight, target, nodes + 1))
        else:
            return self.union.gcn_weights(dtype)
        return (scale[source] * weight * scale[target]).repeat(self.copies)

    def edge_weights(self, edge_weight: Tensor) -> Tensor:
        """The weight of each entry of one run; a self entry has that of the self loop listed last, or 1."""
        check_edge_values("edge_weight", edge_weight, "[num_edges]", self.edge_index)
        return self.per_entry(edge_weight, 1.0, keep_loops=True)

    def drawn_weights(self, whole: Whole, dtype: torch.dtype, edge_weight: Tensor | None = None) -> Tensor:
        """The weight of each entry of one run, [E]: a sum over what was drawn has the right mean."""
        rows = self.sequences.rows
        target, is_own = rows.target, rows.target == self.sequences.index
        if edge_weight is None:
            weight = torch.ones(rows.num_entries, dtype=dtype, device=target.device)
        else:
            weight = self.edge_weights(edge_weight).to(dtype)
        drawn = sums_at(weight.detach().masked_fill(is_own, 0.0), target, rows.num_rows)
        factor = (whole.into.to(dtype) / drawn).masked_fill(drawn == 0, 1.0)
        return torch.where(is_own, weight, weight * factor[target])

    def sum_entries(self, rows: Tensor) -> Tensor:
        """The sum over each node's entries of a row for each of them, [..., E, D] → [..., N, D]."""
        backend, positions = self.by_position
        flat = rows.flatten(0, -2)
        out = backend.aggregate(flat, positions, flat.new_ones(flat.size(0)))
        return out.view(*rows.shape[:-2], -1, rows.size(-1))

    @property
    def by_position(self) -> tuple[Any, ops.Sequences]:
        """What reads a value for each entry instead of one for each node, and the sequences to read it by."""
        backend = ops.reference if torch.compiler.is_compiling() else self.backend
        return backend, self.union.positions

    def mean(self, x: Tensor) -> Tensor:
        """The mean of a node's neighbours, in the shape of ``x``; zero for a node without any."""
        rows = self.union.rows
        total = self.sum(x, x.new_ones(rows.num_entries))
        return total / rows.length().clamp(min=1).to(x.dtype).view(*x.shape[:-1], 1)


def sums_at(weight: Tensor, node: Tensor, num_nodes: int) -> Tensor:
    """The sum of the weights at each node, [num_nodes]."""
    # By index: on a GPU its sums are deterministic, those of a scatter are not.
    return weight.new_zeros(num_nodes).index_put((node,), weight, accumulate=True)


def inverse_root(degree: Tensor) -> Tensor:
    """One over the root of the degree of each node, or zero where that is zero."""
    is_zero = degree == 0  # masked on both sides: its slope is infinite
    return degree.masked_fill(is_zero, 1.0).pow(-0.5).masked_fill(is_zero, 0.0)


class DeterministicConv(NotScripted, MessagePassing):
    """The second base of a layer whose first is one of PyTorch Geometric, with the same parameters.

    PyG scatters messages, which races on a GPU. Such a layer reads :meth:`neighbours` where it can and leaves
    the rest to PyG.

    Args:
        *args: See :class:`torch_geometric.nn.MessagePassing`.
        backend (str): See :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        **kwargs: See :class:`torch_geometric.nn.MessagePassing`.
    """

    if TYPE_CHECKING:  # PyG's layers give these other arguments than their base does
        message: Any
        message_and_aggregate: Any
        edge_update: Any

    def __init__(self, *args: Any, backend: str = "auto", **kwargs: Any) -> None:
        ops.check_backend(backend)
        super().__init__(*args, **kwargs)
        self.backend = backend

    # PyG looks up the arguments of `propagate` in the source of the class, by its name. Subclasses are named
    # like PyG's own layers and hide them, so each states its `propagate_type`.
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Not the code that PyG generates for its own layer, which explainers cannot enter.
        cls.propagate = MessagePassing.propagate
        cls.edge_updater = MessagePassing.edge_updater

    def sends_messages(self, edge_index: Any, carried: Tensor | None = None) -> bool:
        """Whether single messages are needed: for a sparse adjacency, an explainer or a hook.

        And where edges carry something in what is exported.
        """
        is_plain = isinstance(edge_index, Tensor) and not is_torch_sparse_tensor(edge_index)
        return not is_plain or has_message_hooks(self) or (carried is not None and ops.is_exporting())

    def has_plain(self, x: Tensor | ops.SparseRows, *projections: nn.Module) -> bool:
        """Whether nobody listens to projections of ``x``, so that their weights can be read instead.

        Those without a size take that of ``x`` first.
        """
        for lin in projections:
            ops.initialize(lin, x)
        return all(map(ops.is_plain_linear, projections))

    def neighbours(
        self, x: Tensor, edge_index: Any, *, add_self_loops: bool = False, heads: int = 1
    ) -> Neighbours:
        """Each node's neighbours, for features such as ``x``."""
        return Neighbours(
            x,
            edge_index,
            add_self_loops=add_self_loops,
            flow=self.flow,
            backend=self.backend,
            heads=heads,
        )


class SequenceMessages(NotScripted, MessagePassing):
    """The base of a layer whose convolution can run over single messages too; made with ``aggr=None``."""

    # PyG would read the arguments off the source of the class, and misreads some subclasses.
    propagate_type: ClassVar = {
        "x": Tensor,
        "alpha": Tensor,
        "edge_weight": OptTensor,
        "edge_attr": OptTensor,
        "key": Tensor,
        "entry_of_edge": Tensor,
        "entries": int,
        "convolution": Any,
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # PyG puts generated code that explainers cannot enter in the place of a class's `propagate`, and
        # keeps the original for them. What a subclass inherits must not pass for the original.
        if "propagate" not in cls.__dict__:
            cls.propagate = MessagePassing.propagate

    def convolve_messages(
        self,
        edge_index: Adj,
        query: Tensor,
        key: Tensor,
        weight: Tensor,
        ranking: ops.Ranking,
        readout: str,
        edges: ops.EdgeValues | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """What :func:`node2seq.ops.convolve` gives, by way of a message for each edge."""
        winners: list[Tensor | None] = []

        def convolve(table: Tensor, has_message: Tensor) -> Tensor:
            entries = has_message.numel()
            is_edge = (ranking.entry >= 0) & has_message[ranking.entry]
            row = torch.where(is_edge, ranking.entry, entries + ranking.node)
            ordered = ops.Sequences(ranking.sequences.rows, row, table.size(0))
            out, winner = ops.convolve(table, weight, ops.Ranking.given(ordered, ops.reference), readout)
            winners.append(winner)
            return out

        # The attention that explainers read: the softmax of the scores over each node's neighbours.
        sequences, flat = ranking.sequences, query.flatten(0, -2)
        with torch.no_grad():
            score = ops.reference.score(flat, key.flatten(0, -2), sequences)
            added = None if edges is None else edges.score(flat, sequences)
            score = score if added is None else score + added
            alpha = softmax(score, sequences.rows.target, num_nodes=sequences.rows.num_rows + 1)
        out = self.send_messages(edge_index, query, key, sequences, convolve, alpha, edges)
        return out.view(query.shape), winners[0] if winners else None

    def convolve_ranks_by_messages(
        self,
        edge_index: Adj,
        query: Tensor,
        key: Tensor,
        sequences: ops.Sequences,
        weight: Tensor,
        ranks: ops.Ranks,
        heads: int,
        edges: ops.EdgeValues | None = None,
    ) -> Tensor:
        """What :func:`node2seq.ops.convolve_ranks` gives, by way of a message for each edge.

        Each of R runs sends its messages once, to all H heads: the ranks are those of R * H graphs.
        """
        runs, listed = query.shape[:-2].numel(), ranks.listed
        entries, sources = sequences.index.numel(), max(key.size(-2), 1)
        run = torch.arange(listed.entry.numel(), device=key.device) // max(entries * heads, 1)
        entry = torch.where(listed.entry < 0, -1, run * entries + listed.entry % max(entries, 1))

        def convolve(table: Tensor, has_message: Tensor) -> Tensor:
            is_edge = (entry >= 0) & has_message[entry]
            node = has_message.numel() + run * sources + listed.node % sources
            rows = listed.sequences.rows
            ordered = ops.Sequences(rows, torch.where(is_edge, entry, node), table.size(0))
            return ops.reference.convolve_ranks(table, weight.to(table.dtype), ranks.weights, ordered)

        # The attention that explainers read: the share of each neighbour at the first rank, for each head.
        with torch.no_grad():
            place = torch.where(listed.entry < 0, listed.entry.numel(), listed.entry)
            alpha = key.new_zeros(place.numel() + 1).scatter(0, place, ranks.weights[0].to(key.dtype))[:-1]
            alpha = (
                alpha.view(runs, heads, entries).transpose(1, 2).reshape(runs * entries, heads).squeeze(-1)
            )
        return self.send_messages(edge_index, query, key, sequences.copies(runs), convolve, alpha, edges)

    def send_messages(
        self,
        edge_index: Adj,
        query: Tensor,
        key: Tensor,
        sequences: ops.Sequences,
        convolve: Callable[[Tensor, Tensor], Tensor],
        alpha: Tensor,
        edges: ops.EdgeValues | None,
    ) -> Tensor:
        """Sends a message for each edge of all runs, and convolves over them.

        Args:
            edge_index (torch.Tensor or SparseTensor): The edges of one run.
            query (torch.Tensor): The targets' projections.
            key (torch.Tensor): The sources' projections.
            sequences (Sequences): The graph's own sequences, of all runs.
            convolve (callable): Takes a row for each entry and behind them one for each source, and whether
                there is a message for each entry.
            alpha (torch.Tensor): The attention of each entry, [E] or [E, H].
            edges (EdgeValues, optional): What edges carry.
        """
        runs = query.shape[:-2].numel()
        is_forward = self.flow == "source_to_target"  # the flow says which row of edge_index is the source
        source, target = edges_of(edge_index, is_forward)
        if runs > 1:
            if edges is not None:
                raise Node2SeqError(
                    f"single messages of {runs} graphs whose edges carry something",
                    "they are sent for one graph at a time",
                    "Pass the features of one graph, or remove the explainer or hook",
                )
            run = torch.arange(runs, device=source.device)[:, None]
            source, target = (source + run * key.size(-2)).view(-1), (target + run * query.size(-2)).view(-1)
        key, rows, span = key.flatten(0, -2), sequences.rows, max(sequences.num_sources, 1)
        if edges is None:
            number = rows.target * span + sequences.index
            # Of several graphs that are traced, what is left over in one stands before the next.
            order = number.argsort(stable=True)
            entry_of_edge = order[torch.searchsorted(number, target * span + source, sorter=order)]
        else:  # listed self loops that the self entry replaces stand together behind the last entry
            entry_of_edge = edges.entry.clamp(max=rows.num_entries)

        # PyG lifts pairs of features differently with and without an explainer where the flow is reversed,
        # and sparse matrices not in every layout: messages need the sources and plain edges only.
        sizes = (sequences.num_sources, rows.num_rows)
        return self.propagate(
            torch.stack([source, target] if is_forward else [target, source]),
            size=sizes if is_forward else (sizes[1], sizes[0]),
            x=key,
            alpha=torch.cat([alpha, alpha.new_zeros(1, *alpha.shape[1:])])[entry_of_edge],
            edge_weight=None if edges is None else edges.weight,
            edge_attr=None if edges is None else edges.attr,
            key=key,
            entry_of_edge=entry_of_edge,
            entries=rows.num_entries,
            convolution=convolve,
        )

    def message(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x_j: Tensor,
        alpha: Tensor,  # noqa: ARG002 (explainers read alpha off this call)
        edge_weight: OptTensor,
        edge_attr: OptTensor,
    ) -> Tensor:
        """One row for each edge that was passed in, in that order."""
        row = x_j if edge_attr is None else x_j + edge_attr
        return row if edge_weight is None else row * edge_weight[:, None]

    def aggregate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Tensor, key: Tensor, entry_of_edge: Tensor, entries: int, convolution: Any
    ) -> Tensor:
        """Merges duplicate edges, brings messages into their order and convolves over them.

        Self entries that were added and non-local nodes are no edges: their rows come from ``key``.
        """
        merged = inputs.new_zeros(entries + 1, inputs.size(-1)).index_add(0, entry_of_edge, inputs)
        ones = torch.ones_like(entry_of_edge)
        edges = entry_of_edge.new_zeros(entries + 1).scatter_add(0, entry_of_edge, ones)[:-1]
        merged = merged[:-1] / edges.clamp(min=1)[:, None]
        return convolution(torch.cat([merged, key]), edges > 0)

"""What a layer is handed: options, features, edges in every form, hooks; checked. Edges become sequences.

What edges carry is checked in :mod:`node2seq.nn.conv.edge_inputs`.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.jit._trace import is_tracing as is_jit_tracing
from torch.nn.parameter import UninitializedParameter
from torch_geometric import EdgeIndex
from torch_geometric.nn import Linear, MessagePassing
from torch_geometric.typing import Adj, Size
from torch_geometric.typing import SparseTensor as _SparseTensor  # pyright: ignore[reportAttributeAccessIssue]
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.ops.plan_cache import PlanCache
from node2seq.options import check_choice, check_rules

# A stand-in that nothing is an instance of, where torch_sparse is not installed.
SparseTensor: Any = _SparseTensor

CHOICES = {
    "readout": ("max", "mean", "sum", "ranks"),
    "root": ("projected", "input", "none"),
    "nonlocal_order": ("joint", "local-first"),
    "order": ("attention", "degree", "random", "edge"),
    "self_position": ("first", "last", "none"),
    "taps": ("full", "depthwise", "scalar"),
}
_AT_LEAST_ONE = {
    "kernel_size": "the number of taps of the convolution",
    "hops": "how far away neighbours may be",
    "out_channels": "the size of each output sample",
}


# The weights, the attributes and the numbers of edges.
EdgeInputs = tuple[Tensor | None, Tensor | None, Tensor | None]


class Inputs(NamedTuple):
    """What a layer is called with, checked, and the way that it takes."""

    x_src: Tensor
    x_dst: Tensor | None
    edge_index: Adj
    values: EdgeInputs | None  # what edges carry
    is_plain: bool  # no explainer, no hook and no subclass's own message wants single messages
    is_shared: bool  # sources and targets are the same nodes, projected once
    root: ops.Root | None  # own features that go into the same product as the convolution: rows of the key
    then: ops.Convolution | None  # the windows that a backend may look ahead to
    dtype: torch.dtype  # of what is multiplied and gathered, where the backend can choose
    lin: Linear  # what sources are projected with; to look it up in the layer takes as long as many a check
    full_precision: AbstractContextManager[object]
    backend: Any
    weight: Tensor  # the taps


def is_count(value: Any, least: int = 1) -> bool:
    """Whether a value is a whole number, and no truth value, from ``least`` up."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_size(value: Any) -> bool:
    """Whether a value is a number of channels, or -1 for one that the first input tells."""
    return is_count(value, -1) and value != 0


def check_options(
    in_channels: Any, backend: str, threshold: Any, message_passing: dict, **options: Any
) -> None:
    """Raises an error if an option of the layer, or one that is for its base class, makes no sense."""
    for name, choices in CHOICES.items():
        check_choice(name, options[name], choices)
    ops.check_backend(backend)
    _check_sizes(in_channels, options)
    order, position = options["order"], options["self_position"]
    decomposed = message_passing.get("decomposed_layers", 1)
    check_rules(
        (
            position == "first" or order == "edge",
            f"self_position={position!r} with order={order!r}",
            "this order has a place for the self entry",
            "Leave it out, or use order='edge'",
        ),
        (
            isinstance(threshold, (int, float)) and threshold == threshold,
            f"threshold={threshold!r}",
            "scores are compared with it",
            "Pass a number, such as 0.0",
        ),
        (
            decomposed == 1,
            f"decomposed_layers={decomposed!r}",
            "the order of the neighbours depends on all channels together",
            "Leave it out",
        ),
        (
            message_passing.pop("aggr", None) is None,
            "aggr",
            "the windows of the sorted sequence are combined by readout",
            "Pass readout instead",
        ),
    )


def _check_sizes(in_channels: Any, options: Mapping[str, Any]) -> None:
    pair = in_channels if isinstance(in_channels, (tuple, list)) else (in_channels,) * 2
    edge_dim, most = options["edge_dim"], options["max_candidates"]
    check_rules(
        *(
            (
                is_count(options[name]),
                f"{name}={options[name]!r}",
                f"it is {meaning}, at least 1",
                "Pass a whole number from 1 up",
            )
            for name, meaning in _AT_LEAST_ONE.items()
        ),
        (
            len(pair) == 2 and all(map(_is_size, pair)),
            f"in_channels={in_channels!r}",
            "it is the size of each input sample, or one for sources and one for targets",
            "Pass a whole number from 1 up, -1 to take it from the first input, or a tuple of two such",
        ),
        (
            edge_dim is None or _is_size(edge_dim),
            f"edge_dim={edge_dim!r}",
            "it is the number of attributes of each edge",
            "Pass a whole number from 1 up, -1 to take it from the first input, or None",
        ),
        (
            most is None or is_count(most),
            f"max_candidates={most!r}",
            "it is how many nodes further away are looked at for each node",
            "Pass a whole number from 1 up, or None for all of them",
        ),
        (
            most is None or options["hops"] > 1,
            f"max_candidates={most} with hops=1",
            "no nodes further away are looked at",
            "Pass hops=2 or more",
        ),
    )


def check_not_traced() -> None:
    """Raises an error within ``torch.jit.trace``."""
    if not torch.compiler.is_compiling() and is_jit_tracing():
        raise Node2SeqError(
            "torch.jit.trace",
            "it would record this one graph",
            "Use torch.export.export, or torch.onnx.export with dynamo=True",
        )


def check_size(size: Any) -> None:
    """Raises an error if ``size`` is no pair of numbers."""
    if size is None:
        return
    if not isinstance(size, (tuple, list)):
        given = f"size of type {type(size).__name__}"
    elif len(size) != 2:
        given = f"size of length {len(size)}"
    else:
        whole = (int, torch.SymInt)  # of which the second are traced
        wrong = [c for c in size if c is not None and (not isinstance(c, whole) or isinstance(c, bool))]
        if not wrong:
            return
        given = f"size with a {type(wrong[0]).__name__}"
    raise Node2SeqError(
        given, "it is the number of nodes on each side", "Pass two whole numbers; each may be None"
    )


def needs_targets(root: str, order: str, hops: int) -> str | None:
    """Why a layer with such options cannot do without the features of the targets, if it cannot."""
    if root != "none":
        return f"root={root!r} adds each target's own features"
    if order == "attention":
        return "order='attention' scores its sources against each target's features"
    return f"hops={hops} chooses neighbours by their scores" if hops > 1 else None


def check_features(layer: Any, lin: Linear, x: Any, size: Size) -> tuple[Tensor, Tensor | None]:
    """The features of the sources and of the targets, or an error if the layer cannot work on them.

    Args:
        layer (Node2SeqConv): The layer.
        lin (Linear): What it projects the sources with.
        x: The features: of all nodes, or a pair in the order of the rows of the edge index.
        size (tuple): The number of nodes on each side, if it is given.
    """
    source, lin_dst, validate = layer._source, layer.lin_dst, layer.validate
    pair = x if isinstance(x, (tuple, list)) else (x, x)
    if len(pair) != 2:
        raise Node2SeqError(
            f"x is a {type(x).__name__} of {len(pair)}",
            "a graph has one kind of nodes, or sources and targets",
            "Pass a tensor, or a tuple of two",
        )
    x_src, x_dst = pair[source], pair[1 - source]
    needs = needs_targets(layer.root, layer.order, layer.hops) if x_dst is None else None
    if x_src is None or needs is not None:
        raise Node2SeqError(
            f"x=({', '.join('None' if part is None else 'Tensor' for part in pair)})",
            "the sources' features are what is convolved" if x_src is None else str(needs),
            "Pass the source nodes' features"
            if x_src is None
            else "Pass the target nodes' features too, or make a layer of one hop with order='degree', "
            "'random' or 'edge' and root='none'",
        )
    is_one = x_src is x_dst
    _check_matrix("x" if is_one else "x_source", x_src, lin, x_src, validate)
    if x_dst is not None and (not is_one or lin_dst is not None):  # otherwise one look is enough
        # A lazy projection that both sides share takes its width from the sources.
        like = x_src if lin_dst is None else x_dst
        _check_matrix("x" if is_one else "x_target", x_dst, lin_dst or lin, like, validate)
        if x_src.shape[:-2] != x_dst.shape[:-2]:
            counts = [f"{part.shape[:-2].numel()} graphs'" for part in (x_src, x_dst)]
            raise Node2SeqError(
                f"{counts[0]} sources and {counts[1]} targets",
                "each graph has both",
                "Pass as many feature matrices of targets as of sources",
            )
    if size is None:
        return x_src, x_dst
    for side, features, count in (("source", x_src, size[source]), ("target", x_dst, size[1 - source])):
        if count is not None and features is not None and count != features.size(-2):
            raise Node2SeqError(
                f"size={tuple(size)}",
                f"there are features for {features.size(-2)} {side} nodes, not {count}",
                "Pass one feature row per node, or leave size out",
            )
    return x_src, x_dst


def _check_matrix(name: str, x: Any, lin: Linear, like: Any, validate: bool) -> None:
    """One side's features; ``like`` has the width that a projection without weights will take."""
    is_matrix = isinstance(x, (Tensor, ops.SparseRows))
    if not is_matrix or x.dim() not in (2, 3):
        given = f"a tensor of shape {list(x.shape)}" if is_matrix else type(x).__name__
        raise Node2SeqError(
            f"{name} is {given}",
            "node features are a matrix, or one for each of several graphs with the same edges",
            "Pass shape [num_nodes, channels] or [num_graphs, num_nodes, channels]",
        )
    if not x.is_floating_point():
        raise Node2SeqError(
            f"{name} has dtype {x.dtype}", "features are multiplied with weights", "Pass x.float()"
        )
    check_width(name, x, lin, "in_channels: a tuple of two where sources and targets differ", like.size(-1))
    if validate and not ops.is_tracing() and not bool(x.isfinite().all()):
        x = ops.dense(x)
        place = (~x.isfinite()).nonzero()[0].tolist()
        raise Node2SeqError(
            f"{name}{place} is {float(x[tuple(place)])}",
            "features have to be finite, or every score that they enter is lost",
            "Replace missing values before training, for instance with torch.nan_to_num",
        )


def check_width(name: str, x: Any, lin: Linear, option: str, lazy_width: int | None = None) -> None:
    """Raises an error for a width that a projection cannot take; one without weights takes the one given."""
    weight = lin.weight
    is_lazy = isinstance(weight, UninitializedParameter)
    width = weight.size(-1) if not is_lazy else x.size(-1) if lazy_width is None else lazy_width
    if x.size(-1) != width:
        raise Node2SeqError(
            f"{name} has {x.size(-1)} channels",
            f"the layer projects it from {width}",
            f"Pass {width} channels, or make the layer with another {option}",
        )


_ARE_ONES = PlanCache()  # whether all values of a sparse matrix are


def is_sparse(edge_index: Any) -> bool:
    """Whether edges are handed over as a sparse matrix."""
    return isinstance(edge_index, SparseTensor) or is_torch_sparse_tensor(edge_index)


def edges_of(edge_index: Any, is_forward: bool) -> tuple[Tensor, Tensor]:
    """The source and the target of each edge, int64. A sparse adjacency has a row for each target."""
    if isinstance(edge_index, SparseTensor):
        row, col, _ = edge_index.coo()
        return col, row
    if is_torch_sparse_tensor(edge_index):
        is_coo = edge_index.layout == torch.sparse_coo  # which PyG would mark as coalesced: a change in place
        row, col = edge_index._indices() if is_coo else to_edge_index(edge_index)[0]
        return col.long(), row.long()
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    first, second = edge_index[0].long(), edge_index[1].long()
    return (first, second) if is_forward else (second, first)


def sequences_of(
    edge_index: Any, graph: ops.GraphNumbers, *, hops: int = 1, backend: str = "auto"
) -> ops.Sequences:
    """The sequences of a graph, built once and found again.

    Edges are checked when the sequences are built; node ids are not while exporting or capturing. The user's
    choice of a backend only decides who builds them.
    """
    is_compiling = torch.compiler.is_compiling()
    if is_compiling or not isinstance(edge_index, (Tensor, SparseTensor)):
        _check_form(edge_index, graph)
    if hops > 1 and graph.num_sources != graph.num_targets:
        raise Node2SeqError(
            f"hops={hops} on a graph of {graph.num_sources} source and {graph.num_targets} target nodes",
            "paths of several edges need the same nodes on both sides",
            "Use hops=1 on bipartite graphs and sampled blocks",
        )
    if is_compiling:
        if ops.is_exporting():
            return graph.build(*edges_of(edge_index, bool(graph.is_forward)))
        return _traced(edge_index, graph)

    def edges() -> tuple[Tensor, Tensor]:
        _check_form(edge_index, graph)
        return edges_of(edge_index, bool(graph.is_forward))

    return graph.find(_owner(edge_index), backend, edges)


def entries_of(edge_index: Any, graph: ops.GraphNumbers, keep_loops: bool = False) -> Tensor:
    """The entry of each edge in the sequences of a graph that keep duplicates, [edges]; found once.

    See :func:`node2seq.ops.edge_values.find_entry_of_edge`.
    """
    if torch.compiler.is_compiling():
        return _traced(edge_index, graph).entry_of_edge(keep_loops)
    edges = partial(edges_of, edge_index, bool(graph.is_forward))
    return graph.find_entries(_owner(edge_index), keep_loops, edges)


def values_of(edge_index: Any) -> Tensor | None:
    """What a sparse adjacency carries, in the order of :func:`edges_of`; nothing if all its values are ones.

    PyTorch's sparse matrices have values whether they mean something or not.
    """
    if isinstance(edge_index, SparseTensor):
        return edge_index.coo()[2]
    if not is_torch_sparse_tensor(edge_index):
        return None
    is_coo = edge_index.layout == torch.sparse_coo
    values = edge_index._values() if is_coo else to_edge_index(edge_index)[1]
    # With a gradient they are ones now and other numbers after a step.
    if not edge_index.requires_grad and _ARE_ONES.get(edge_index, None, lambda: bool((values == 1).all())):
        return None
    if is_coo and not edge_index.is_coalesced():
        raise Node2SeqError(
            "a sparse adjacency with values that is not coalesced",
            "each of its values is a sum over what is listed for one pair of nodes",
            "Pass adj_t.coalesce(), or edge_index and edge_weight, where parallel edges may differ",
        )
    return edge_index.values() if is_coo else values


def _owner(edge_index: Any) -> Any:
    """What a graph is known by."""
    return edge_index.storage.col() if isinstance(edge_index, SparseTensor) else edge_index


def _traced(edge_index: Any, graph: ops.GraphNumbers) -> ops.TracedSequences:
    if isinstance(edge_index, (SparseTensor, EdgeIndex)):  # edges that are new in each step, as is their plan
        edge_index = torch.stack(edges_of(edge_index, bool(graph.is_forward)))
        graph = graph._replace(is_forward=1)
    return ops.TracedSequences(edge_index, graph)


def _check_form(edge_index: Any, graph: ops.GraphNumbers) -> None:
    if is_sparse(edge_index):
        if not graph.is_forward:
            raise Node2SeqError(
                "flow='target_to_source' with a sparse adjacency",
                "a sparse adjacency has a row for each target already",
                "Pass the transposed matrix to a layer with flow='source_to_target'",
            )
        shape = (edge_index.size(0), edge_index.size(1))
        if shape != (graph.num_targets, graph.num_sources):
            raise Node2SeqError(
                f"a sparse adjacency of shape {list(shape)}",
                f"there are {graph.num_targets} target and {graph.num_sources} source nodes",
                "Pass adj_t, which has a row for each target and a column for each source",
            )
    elif not isinstance(edge_index, Tensor):
        raise Node2SeqError(
            f"edge_index is a {type(edge_index).__name__}",
            "edges are a tensor of node ids or a sparse matrix",
            "Pass an integer tensor of shape [2, num_edges], such as torch.tensor(edges).t()",
        )
    elif edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise Node2SeqError(
            f"edge_index has dtype {edge_index.dtype}", "node ids are whole numbers", "Pass edge_index.long()"
        )
    elif edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise Node2SeqError(
            f"edge_index has shape {list(edge_index.shape)}",
            "it holds a row of source ids and a row of target ids",
            "Pass shape [2, num_edges]; a list of pairs needs .t().contiguous()",
        )


def has_message_hooks(layer: MessagePassing) -> bool:
    """Whether an explainer or a hook wants to see or change single messages; the fused path has none."""
    hooks = (
        layer._propagate_forward_pre_hooks,
        layer._propagate_forward_hooks,
        layer._message_forward_pre_hooks,
        layer._message_forward_hooks,
        layer._aggregate_forward_pre_hooks,
        layer._aggregate_forward_hooks,
    )
    return bool(layer.explain) or any(hooks)

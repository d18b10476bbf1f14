"""Where neighbours stand: the trace of a layer; and of ``readout="ranks"``, its options and heads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.typing import Adj

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.base import SequenceMessages
from node2seq.nn.conv.inputs import Inputs, is_count
from node2seq.options import check_choice, check_rules


class Trace(NamedTuple):
    """What the layer did at each node. Entry e of node i lies at ``ptr[i] <= e < ptr[i + 1]``, best first.

    Of several graphs at once it is the trace of their disjoint union: node i of graph b is node b N + i. Each
    of H heads has a graph of its own: node i of head h of graph b is node (b H + h) N + i.
    """

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
    edge: Tensor | None = None
    """Where edges carry something: the edge of each entry as it is listed, or −1 for none, [E]."""
    ranks: Tensor | None = None
    """For ``readout="ranks"``: the share of each entry at each of the first ranks, [K, E]."""

    @classmethod
    def of(
        cls,
        ranking: ops.Ranking,
        winner: Tensor | None,
        edges: ops.EdgeValues | None,
        graphs: int,
        ranks: ops.Ranks | None = None,
    ) -> "Trace":
        """The trace of a ranking and of what was read out."""
        node, score, entry = ranking
        edge = None if edges is None else edges.edge_of(entry, graphs)
        shares = None if ranks is None else ranks.at_positions().detach()
        is_nonlocal, rows = entry < 0, ranking.sequences.rows
        ptr = rows.ptr
        if graphs > 1 and torch.compiler.is_compiling():  # what is left over in each graph goes to the end
            order = rows.target.argsort(stable=True)
            node, score, is_nonlocal = node[order], score[order], is_nonlocal[order]
            edge = None if edge is None else edge[order]
            shares = None if shares is None else shares[:, order]
            ptr = torch.cat([ptr.new_zeros(1), rows.length().cumsum(0)])
        return cls(ptr, node, score, is_nonlocal, winner, edge, shares)


class RankOptions(NamedTuple):
    """The options of ranks with their defaults: what another readout has as well."""

    soft: bool | None = None
    """Whether ranks are soft; by default where the order is learned."""
    scores: str | None = None
    """What scores are taken from; by default from projections of their own where ranks are soft."""
    score_channels: int = 8
    """The channels of such projections."""
    temperature: float = 1.0
    """What scores are divided by."""
    heads: int = 1
    """How many orders there are at once."""


def complete_ranks(given: RankOptions, readout: str, order: str) -> RankOptions:
    """The options with what was left open, or an error if they make no sense."""
    if readout != "ranks":
        for name, value in given._asdict().items():
            if value != RankOptions._field_defaults[name]:
                raise Node2SeqError(
                    f"{name}={value!r} with readout={readout!r}",
                    "it is an option of ranks",
                    "Leave it out, or use readout='ranks'",
                )
        return given._replace(soft=False, scores="shared")
    soft = order == "attention" if given.soft is None else bool(given.soft)
    scores = ("own" if soft else "shared") if given.scores is None else given.scores
    check_choice("scores", scores, ("own", "shared"))
    width, temperature, heads = given.score_channels, given.temperature, given.heads
    at_least_one = "there is at least one", "Pass a whole number from 1 up"
    is_number = isinstance(temperature, (int, float))
    only_soft = "Leave it out, or use soft=True with order='attention'"
    check_rules(
        (is_count(width), f"score_channels={width!r}", *at_least_one),
        (is_count(heads), f"heads={heads!r}", *at_least_one),
        (
            is_number and 0 < temperature < float("inf"),
            f"temperature={temperature!r}",
            "scores are divided by it",
            "Pass a number above 0, such as 1.0",
        ),
        (
            not soft or order == "attention",
            f"soft=True with order={order!r}",
            "soft ranks are shares by a score that is learned, and this order has none",
            "Use soft=False, or order='attention'",
        ),
        (
            soft or scores != "own",
            "scores='own' with soft=False",
            "no gradient passes through a hard order, so projections of its own would never learn",
            only_soft,
        ),
        (
            soft or temperature == 1.0,
            f"temperature={temperature} with soft=False",
            "a hard order is the same at every temperature",
            only_soft,
        ),
        (
            heads == 1 or scores == "own",
            f"heads={heads} without scores of their own",
            "every head would have the same order",
            "Use soft=True and scores='own', or heads=1",
        ),
    )
    return RankOptions(soft, scores, width, float(temperature), heads)


def rank_softly(
    layer: Any,
    given: Inputs,
    query: Tensor,
    key: Tensor,
    sequences: ops.Sequences,
    edges: ops.EdgeValues | None,
) -> ops.Ranks:
    """How much of each neighbour stands at each rank, of each head.

    Args:
        layer (Node2SeqConv): The layer.
        given (Inputs): What it was called with.
        query (torch.Tensor): The targets' projections, which score where the layer has no others for it.
        key (torch.Tensor): The sources' projections.
        sequences (Sequences): The neighbours of each target.
        edges (EdgeValues, optional): What edges carry.
    """
    heads, x_src, x_dst, backend = layer.heads, given.x_src, given.x_dst, given.backend
    if layer.lin_query is not None and x_dst is not None:
        query = split_heads(ops.project(layer.lin_query, x_dst, backend), heads)
        key = split_heads(ops.project(layer.lin_key, x_src, backend), heads)
        edge_attr = None if given.values is None else given.values[1]
        if edges is not None and edge_attr is not None:
            attr = ops.project(layer.lin_edge_key, edge_attr)
            if heads > 1:
                attr = attr if attr.dim() == 3 else attr.expand(ops.runs_of(x_src), -1, -1)
            edges = edges._replace(attr=split_heads(attr, heads))
    return ops.soft_ranks(
        query,
        key,
        sequences,
        layer.kernel_size,
        temperature=layer.temperature,
        hops=layer.hops,
        threshold=threshold_of_heads(layer.threshold, heads) if layer.hops > 1 else 0.0,
        joint=layer.nonlocal_order == "joint",
        max_candidates=layer.max_candidates,
        edges=edges,
        backend=backend,
    )


def convolve_heads(
    layer: SequenceMessages,
    heads: int,
    query: Tensor,
    key: Tensor,
    sequences: ops.Sequences,
    weight: Tensor,
    ranks: ops.Ranks,
    edges: ops.EdgeValues | None,
    dtype: torch.dtype,
    edge_index: Adj | None,
) -> Tensor:
    """A matrix for each rank and one for the mean, of each head; by messages with an edge index."""
    runs = key.shape[:-2].numel()
    weight = taps_of_heads(weight, heads, runs)
    if edge_index is not None:
        given = (query, key, sequences, weight, ranks, heads, edges)
        out = layer.convolve_ranks_by_messages(edge_index, *given)
        graphs = [runs * heads] if heads > 1 or key.dim() == 3 else []
        out = out.view(*graphs, query.size(-2), weight.size(-1))
    else:
        edges = None if edges is None else edges_of_heads(edges, heads, runs)
        out = ops.convolve_ranks(for_heads(key, heads), weight, ranks, edges, dtype)
    return join_heads(out, heads, key.dim() == 3)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Channels of several heads as graphs of their own: [..., N, H * d] → [R * H, N, d]."""
    if heads == 1:
        return x
    return x.unflatten(-1, (heads, -1)).movedim(-2, -3).flatten(0, -3).contiguous()


def join_heads(x: Tensor, heads: int, has_runs: bool) -> Tensor:
    """The other way round: [R * H, N, D] → [N, H * D], or [R, N, H * D] where there were runs."""
    if heads == 1:
        return x
    x = x.unflatten(0, (-1, heads)).movedim(-3, -2).flatten(-2)
    return x if has_runs else x[0]


def for_heads(x: Tensor, heads: int) -> Tensor:
    """The same for each head: [..., N, D] → [R * H, N, D]."""
    if heads == 1:
        return x
    return x.unsqueeze(-3).expand(*x.shape[:-2], heads, -1, -1).flatten(0, -3)


def taps_of_heads(weight: Tensor, heads: int, runs: int) -> Tensor:
    """Each head's matrices: [H * (K + 1), D, D] → [R * H, K + 1, D, D], the same for each run or its own."""
    if heads == 1:
        return weight
    weight = weight.unflatten(-3, (heads, -1))
    return (weight if weight.dim() == 5 else weight.expand(runs, -1, -1, -1, -1)).flatten(0, 1)


def edges_of_heads(edges: ops.EdgeValues, heads: int, runs: int) -> ops.EdgeValues:
    """What edges carry, for graphs that each head reads."""
    if heads == 1 or edges.attr is None or edges.attr.dim() == 2:
        return edges
    return edges._replace(attr=edges.attr.repeat_interleave(heads, 0, output_size=runs * heads))


def threshold_of_heads(threshold: float | Tensor, heads: int) -> float | Tensor:
    """β of each run for each of its heads."""
    return torch.repeat_interleave(threshold, heads) if isinstance(threshold, Tensor) else threshold


class Call(NamedTuple):
    """What a layer was called with, what it gave, and what it did."""

    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None
    edge_attr: Tensor | None
    out: Tensor
    trace: Trace


@contextmanager
def recorded(model: nn.Module) -> Iterator[dict[str, Call]]:
    """Keeps what each Node2Seq layer of a model does inside the block, by the name of the layer.

    The layers stand in the order of their calls. Each may be called once.
    """
    calls: dict[str, Call] = {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, SequenceMessages):
            handles.append(module.register_forward_pre_hook(_ask_for_trace, with_kwargs=True))
            handles.append(module.register_forward_hook(_keeper(calls, name), with_kwargs=True))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _ask_for_trace(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return args, {**kwargs, "return_trace": True}


def _keeper(calls: dict[str, Call], name: str) -> Any:
    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Tensor:
        if name in calls:
            raise Node2SeqError(
                f"the layer {name}",
                "the model calls it more than once, so it has more than one order at a node",
                "Give each call a layer of its own",
            )
        out, trace = result
        weight, attr = (
            args[place] if len(args) > place else kwargs.get(key)
            for place, key in ((2, "edge_weight"), (3, "edge_attr"))
        )
        calls[name] = Call(args[0], args[1], weight, attr, out, trace)
        return out

    return keep


@torch.no_grad()
def learned_matrices(conv: Any, most: int) -> list[tuple[str, list[list[float]]]]:
    """The title and the values of each matrix of a layer: rows are channels read.

    Args:
        conv (Node2SeqConv): The layer.
        most (int): A matrix of more rows or columns is given in blocks: the strongest value of each.
    """
    found = []
    for number, weight in enumerate(conv.tap_matrices().double().cpu()):
        head, tap = divmod(number, conv.tap_matrices().size(0) // conv.heads)
        words = f"tap {tap + 1}"
        if conv.readout == "ranks":
            words = "mean of all" if tap == conv.kernel_size else f"rank {tap + 1}"
        title = words if conv.heads == 1 else f"head {head + 1}, {words}"
        found.append((title, _in_blocks(weight, most)))
    return found


def _in_blocks(values: Tensor, most: int) -> list[list[float]]:
    rows = values.tensor_split(min(values.size(0), most))
    blocks = [some.tensor_split(min(values.size(1), most), dim=1) for some in rows]
    strongest = ((block.reshape(-1) for block in line) for line in blocks)
    return [[round(float(block[block.abs().argmax()]), 5) for block in line] for line in strongest]

"""What each neighbour adds to a layer's output: exact, because the convolution is linear once the order and
the winning windows are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from node2seq import ops
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.conv.ranks import Call, Trace, split_heads
from node2seq.nn.models.residual import ResidualNetwork


class Contributions(NamedTuple):
    """The terms that a layer's output is the sum of, for some nodes; in float64.

    Each of H heads writes to D channels of its own, and has a row of entries for each node: all rows of the
    first head, then those of the second, and so on.
    """

    entry: Tensor
    """Which entry of the trace each term belongs to, [E]."""
    row: Tensor
    """Its row: head times number of nodes, plus place of the node among those asked for, [E]."""
    terms: Tensor
    """What the entry adds to its head's channels, [E, D]."""
    own: Tensor
    """What the node's own features add apart from the sequence, [nodes, H * D]."""
    bias: Tensor
    """The bias, [H * D]."""

    def total(self) -> Tensor:
        """The sum of all terms: the layer's output, [nodes, H * D]."""
        nodes, channels = self.own.size(0), self.terms.size(-1)
        heads = self.own.size(-1) // channels
        summed = self.own.new_zeros(heads * nodes, channels).index_add(0, self.row, self.terms)
        return summed.view(heads, nodes, channels).movedim(0, 1).flatten(1) + self.own + self.bias


@torch.no_grad()
def contributions(conv: Node2SeqConv, call: Call, nodes: Tensor | None = None) -> Contributions:
    """What each entry of the sequences of some nodes adds to the layer's output.

    Args:
        conv (Node2SeqConv): The layer.
        call (Call): What it was called with and what it did, see :func:`~node2seq.nn.conv.ranks.recorded`.
        nodes (torch.Tensor, optional): The nodes, [n]; all if not given.
    """
    trace, total = call.trace, call.out.size(-2)
    if nodes is None:
        nodes = torch.arange(total, device=call.x.device)
    heads = torch.arange(conv.heads, device=nodes.device)[:, None]
    rows = (heads * total + nodes).view(-1)
    length = (trace.ptr[1:] - trace.ptr[:-1])[rows]
    asked = ops.Rows.from_lengths(length)
    row, position = asked.target, asked.position()
    entry = trace.ptr[rows][row] + position
    with ops.full_precision(call.x.device):
        key = ops.project(conv.lin, call.x)
        values = _rows(conv, call, key, entry)
        own, bias = _own(conv, call, key, nodes)
    windows = (length - conv.kernel_size + 1).clamp(min=1)[row]
    weight = conv.tap_matrices().double().unflatten(0, (conv.heads, -1))  # [H, K, D, D]
    head = row // nodes.numel() if nodes.numel() else row
    terms = values.new_zeros(entry.numel(), conv.out_channels)
    for tap in range(weight.size(1)):
        share = _share(conv, trace, tap, entry, rows[row], position, windows, length[row])
        for number in range(conv.heads):
            mine = (head == number).nonzero().view(-1) if conv.heads > 1 else slice(None)
            part = values[mine] @ weight[number, tap]
            terms[mine] += share[mine] * part
    return Contributions(entry, row, terms, own, bias)


def _rows(conv: Node2SeqConv, call: Call, key: Tensor, entry: Tensor) -> Tensor:
    """The row that is convolved at each entry: w (x̄_j + a), or x̄_j where edges carry nothing."""
    trace = call.trace
    values = key[trace.index[entry] % key.size(-2)].double()
    if trace.edge is None:
        return values
    edge = trace.edge[entry]
    is_edge = edge >= 0
    if call.edge_attr is not None and conv.lin_edge is not None:
        attr = call.edge_attr if call.edge_attr.dim() == 2 else call.edge_attr[:, None]
        added = ops.project(conv.lin_edge, attr)[edge.clamp(min=0)].double()
        values = values + added.where(is_edge[:, None], 0.0)
    if call.edge_weight is not None:
        values = values * call.edge_weight[edge.clamp(min=0)].double().where(is_edge, 1.0)[:, None]
    return values


def _share(
    conv: Node2SeqConv,
    trace: Trace,
    tap: int,
    entry: Tensor,
    row: Tensor,
    position: Tensor,
    windows: Tensor,
    length: Tensor,
) -> Tensor:
    """How much of what a tap makes of each entry reaches the output, [E, 1], or [E, D] for a maximum."""
    if conv.readout == "ranks":
        is_mean = tap == conv.kernel_size
        share = 1 / length.double() if is_mean or trace.ranks is None else trace.ranks[tap, entry].double()
        return share[:, None]
    if conv.readout == "max":
        assert trace.winner is not None
        return ((position - tap)[:, None] == trace.winner[row]).double()
    inside = ((position >= tap) & (position < tap + windows)).double()
    return (inside / windows if conv.readout == "mean" else inside)[:, None]


def _own(conv: Node2SeqConv, call: Call, key: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """What is added for the nodes' own features, and the bias."""
    channels = conv.heads * conv.out_channels
    own = key.new_zeros(nodes.numel(), channels)
    if conv.lin_root is not None:
        own = ops.project(conv.lin_root, (key if conv.root == "projected" else call.x)[nodes])
    bias = key.new_zeros(channels) if conv.bias is None else conv.bias.detach()
    return own.double(), bias.double()


@contextmanager
def giving(
    layers: Mapping[str, Node2SeqConv], outputs: dict[str, Tensor], last: str, rows: Tensor, given: Tensor
) -> Iterator[None]:
    """Lets layers give known outputs instead of computing them, the last one with other rows.

    Gradients are recorded from there on.
    """

    def answer(name: str) -> Any:
        def forward(*_args: Any, **_kwargs: Any) -> Tensor:
            if name != last:
                return outputs[name]
            torch.set_grad_enabled(True)
            return outputs[name].index_put((rows,), given)

        return forward

    try:
        for name in outputs:
            layers[name].forward = answer(name)
        yield
    finally:
        for name in outputs:
            del layers[name].forward


@contextmanager
def without_linear(model: nn.Module) -> Iterator[None]:
    """Leaves a network's linear part out."""
    linear = model.linear if isinstance(model, ResidualNetwork) else None
    if linear is None:
        yield
        return
    was_fitted, linear.is_fitted = linear.is_fitted, False
    try:
        yield
    finally:
        linear.is_fitted = was_fitted


@torch.no_grad()
def scores_of(
    conv: Node2SeqConv, call: Call, node: int, head: int, sources: list[int], edges: list[int]
) -> list[float]:
    """The scores of some neighbours, as the layer's trace would have them."""
    x, attr = call.x, None
    at = torch.tensor(edges, device=x.device)
    rows = torch.cat([x[node : node + 1], x[sources]])
    if call.edge_attr is not None:
        attr = call.edge_attr if call.edge_attr.dim() == 2 else call.edge_attr[:, None]
        attr = attr[at.clamp(min=0)]
    if conv.lin_query is not None and conv.lin_key is not None:
        query = split_heads(ops.project(conv.lin_query, rows[:1]), conv.heads)
        key = split_heads(ops.project(conv.lin_key, rows[1:]), conv.heads)
        query, key = (part if conv.heads == 1 else part[head] for part in (query, key))
        lin_edge = conv.lin_edge_key
    else:
        query, key = ops.project(conv.lin, rows).split([1, len(sources)])
        lin_edge = conv.lin_edge
    if attr is not None and lin_edge is not None:
        added = split_heads(ops.project(lin_edge, attr), conv.heads if lin_edge is conv.lin_edge_key else 1)
        added = added if added.dim() == 2 else added[head]
        key = key + added.where((at >= 0)[:, None], 0.0)
    return (key @ query[0]).tolist()

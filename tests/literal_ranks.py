"""The layer with ``readout="ranks"``, and any layer with ``order="edge"``, entry by entry in loops."""

from typing import NamedTuple

import literal
import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq import Node2SeqConv


class Given(NamedTuple):
    """A graph and what its edges carry."""

    x: Tensor | tuple[Tensor, Tensor]
    edge_index: Tensor
    weight: Tensor | None = None
    attr: Tensor | None = None
    order: Tensor | None = None

    def run(self, conv: Node2SeqConv, **asked: bool):
        """What the layer itself makes of it."""
        return conv(self.x, self.edge_index, self.weight, self.attr, edge_order=self.order, **asked)


Entry = tuple[int, int]  # a source, and the edge that leads from it or −1


class Sides(NamedTuple):
    """What targets and sources are scored by, and what attributes add to the sources."""

    query: Tensor
    key: Tensor
    added: Tensor | None

    def score(self, node: int, entry: Entry) -> Tensor:
        source, edge = entry
        key = self.key[source]
        if self.added is not None and edge >= 0:
            key = key + self.added[edge]
        return (self.query[node] * key).sum()

    def own(self, source: int) -> float:
        key = self.key[source].detach()
        return float((key * key).sum())


def entries_of(conv: Node2SeqConv, given: Given) -> list[list[Entry]]:
    """The entries of each node: each edge where edges carry something, else each distinct source."""
    x_src, x_dst = given.x if isinstance(given.x, tuple) else (given.x, given.x)
    carries = any(values is not None for values in given[2:])
    entries: list[list[Entry]] = [[] for _ in range(x_dst.size(0))]
    for edge, (source, target) in enumerate(given.edge_index.t().tolist()):
        if conv.add_self_loops and source == target:
            continue
        entry = (source, edge if carries else -1)
        if entry not in entries[target]:
            entries[target].append(entry)
    if conv.add_self_loops:
        for node in range(min(x_src.size(0), x_dst.size(0))):
            entries[node].append((node, -1))
    return entries


def ranked(sides: Sides, node: int, chosen: list[Entry]) -> list[Entry]:
    """By attention: score, own score, id, as listed."""

    def key(entry: Entry) -> tuple:
        return -float(sides.score(node, entry).detach()), -sides.own(entry[0]), *entry

    return sorted(chosen, key=key)


def select(conv: Node2SeqConv, sides: Sides, node: int, entries: list[list[Entry]]) -> list[Entry]:
    """Node ``node``'s entries by attention, with what several hops bring."""
    local = entries[node]
    if conv.hops == 1:
        return ranked(sides, node, local)
    neighbours = [{source for source, _ in mine} for mine in entries]
    kept = [entry for entry in local if float(sides.score(node, entry).detach()) > conv.threshold]
    room = len(local) - len(kept)
    beyond = literal.within_hops(neighbours, node, conv.hops) - literal.within_hops(neighbours, node, 1)
    far = ranked(sides, node, [(j, -1) for j in beyond])[:room]
    dropped = ranked(sides, node, [entry for entry in local if entry not in kept])
    kept = kept + dropped[: room - len(far)]
    if conv.nonlocal_order == "joint":
        return ranked(sides, node, kept + far)
    return ranked(sides, node, kept) + ranked(sides, node, far)


def by_edge(conv: Node2SeqConv, sides: Sides, node: int, chosen: list[Entry], order: Tensor) -> list[Entry]:
    """By the number of each edge: the self entry first or last, non-local nodes behind all."""

    def key(entry: Entry) -> tuple:
        source, edge = entry
        own = -sides.own(source)
        if edge >= 0:
            return 1, -order[edge].item(), own, source, edge
        if source == node and conv.add_self_loops:
            return (2 if conv.self_position == "last" else 0), 0, own, source, edge
        return 3, 0, own, source, edge

    return sorted(chosen, key=key)


def layer(conv: Node2SeqConv, given: Given) -> tuple[Tensor, list[list[list[Entry]]]]:
    """The output of the layer, and of each head the order of each node's entries."""
    x_src, x_dst = given.x if isinstance(given.x, tuple) else (given.x, given.x)
    x_bar = F.linear(x_src, conv.lin.weight)
    own_bar = F.linear(x_dst, (conv.lin_dst or conv.lin).weight)
    carried = None
    if conv.lin_edge is not None and given.attr is not None:
        carried = F.linear(given.attr, conv.lin_edge.weight)
    entries = entries_of(conv, given)
    parts, orders = [], []
    for head in range(conv.heads):
        sides = Sides(own_bar, x_bar, carried)
        if conv.lin_query is not None and conv.lin_key is not None:
            place = slice(head * conv.score_channels, (head + 1) * conv.score_channels)
            added = None
            if conv.lin_edge_key is not None and given.attr is not None:
                added = F.linear(given.attr, conv.lin_edge_key.weight[place])
            query = F.linear(x_dst, conv.lin_query.weight[place])
            sides = Sides(query, F.linear(x_src, conv.lin_key.weight[place]), added)
        weight = _matrices(conv).chunk(conv.heads)[head]
        mine = [select(conv, sides, node, entries) for node in range(x_dst.size(0))]
        if given.order is not None:
            mine = [by_edge(conv, sides, node, one, given.order) for node, one in enumerate(mine)]
        orders.append(mine)
        parts.append(
            torch.stack(
                [
                    _read(conv, sides, node, one, x_bar, carried, given.weight, weight)
                    for node, one in enumerate(mine)
                ]
            )
        )
    out = torch.cat(parts, dim=1)
    if conv.lin_root is not None:
        out = out + F.linear(own_bar if conv.root == "projected" else x_dst, conv.lin_root.weight)
    return (out if conv.bias is None else out + conv.bias), orders


def _matrices(conv: Node2SeqConv) -> Tensor:
    """A matrix for each tap of each head."""
    eye = torch.eye(conv.out_channels, dtype=conv.weight.dtype)
    matrices = {"full": lambda tap: tap, "depthwise": torch.diag, "scalar": lambda tap: tap * eye}
    return torch.stack([matrices[conv.taps](tap) for tap in conv.weight])


def _read(
    conv: Node2SeqConv,
    sides: Sides,
    node: int,
    order: list[Entry],
    x_bar: Tensor,
    carried: Tensor | None,
    edge_weight: Tensor | None,
    weight: Tensor,
) -> Tensor:
    """What is read out of one node's sequence."""
    rows = []
    for source, edge in order:
        row = x_bar[source]
        if edge >= 0 and carried is not None:
            row = row + carried[edge]
        rows.append(row if edge < 0 or edge_weight is None else edge_weight[edge] * row)
    if not rows:
        return x_bar.new_zeros(conv.out_channels)
    sequence = torch.stack(rows)
    if conv.readout != "ranks":
        return literal.convolve(sequence, weight, conv.readout)
    if conv.soft:
        score = torch.stack([sides.score(node, entry) for entry in order])
        shares = literal.soft_shares(score / (sides.key.size(1) ** 0.5 * conv.temperature), conv.kernel_size)
    else:
        shares = torch.eye(conv.kernel_size, len(order), dtype=sequence.dtype)
    return literal.convolve_ranks(sequence, shares, weight)

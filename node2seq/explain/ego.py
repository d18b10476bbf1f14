"""The part of a graph that decides what a model gives for one node, and copies of it without some edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.models.network import Network, NormalizedSum, Smoothing, hops_of, layers_in_line

# A part that is larger than this share of the graph is taken for the whole: its edges are indexed already.
_NEARLY_ALL = 0.5
#: The flows by which edges are read: along their direction, or against it too.
FORWARDS = ("source_to_target",)
BOTH_WAYS = ("source_to_target", "target_to_source")


class ReceptiveField(NamedTuple):
    """From how far a model reads."""

    hops: int | None
    """The largest number of edges of a path that matters; None where the whole graph does."""
    flows: tuple[str, ...] = FORWARDS
    """Whether edges are read against their direction too: :data:`BOTH_WAYS`."""
    counts_edges: bool = True
    """Whether the number of edges into the last nodes matters, by which a GCN layer divides."""


def receptive_field(model: nn.Module) -> ReceptiveField:
    """From how far a model reads: the hops of its layers one after the other.

    A fixed order by degree or at random, and candidates that are drawn, depend on the whole graph. Layers
    that read the same edges backwards stand beside the others, not behind them.
    """
    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    own = [layer for layer in layers if isinstance(layer, Node2SeqConv)]
    if any(layer.order in ("degree", "random") or layer.max_candidates is not None for layer in own):
        return ReceptiveField(None)
    flows = BOTH_WAYS if any(layer.flow == BOTH_WAYS[1] for layer in layers) else FORWARDS
    in_line = layers_in_line(model)
    hops = sum(layer.hops if isinstance(layer, Node2SeqConv) else hops_of(layer) for layer in in_line)
    hops = max(hops, model.hops_beside if isinstance(model, Network) else 0)
    sums = any(isinstance(module, NormalizedSum) for module in model.modules())
    spreads = any(isinstance(layer, Smoothing) and layer.steps for layer in in_line)
    return ReceptiveField(hops, flows, sums or spreads or len(own) < len(layers))


class Ego(NamedTuple):
    """A part of a graph around a node. Nodes and edges keep their order, so that ties end as they did."""

    nodes: Tensor
    """The nodes as the graph numbers them, ascending, [n]."""
    edges: Tensor
    """The edges as the graph lists them, ascending, [e]."""
    edge_index: Tensor
    """The same edges between the nodes as the part numbers them, [2, e]."""
    centre: int
    """The node in the middle as the part numbers it."""
    is_whole: bool
    """Whether this is the whole graph."""


@dataclass(frozen=True)
class Graph:
    """A graph that is searched outwards from single nodes.

    Args:
        edge_index: The edges, [2, E].
        num_nodes: The number of nodes.
    """

    edge_index: Tensor
    num_nodes: int

    @cached_property
    def _by_target(self) -> tuple[Tensor, Tensor]:
        return _index(self.edge_index[1], self.num_nodes)

    @cached_property
    def _by_source(self) -> tuple[Tensor, Tensor]:
        return _index(self.edge_index[0], self.num_nodes)

    def read(self, nodes: Tensor, flow: str) -> tuple[Tensor, Tensor]:
        """The edges that lead to some nodes by a flow, ascending for each node, and their other ends."""
        forwards = flow == "source_to_target"
        ptr, order = self._by_target if forwards else self._by_source
        start, length = ptr[nodes], ptr[nodes + 1] - ptr[nodes]
        place = torch.repeat_interleave(start - (length.cumsum(0) - length), length)
        edges = order[place + torch.arange(place.numel(), device=place.device)]
        return edges, self.edge_index[0 if forwards else 1, edges]

    def around(self, node: int, field: ReceptiveField) -> Ego:
        """Everything that a model of that receptive field reads for a node.

        That is all nodes within its hops, and all edges into those that are not the last; where their number
        counts, into the last ones too.
        """
        if field.hops is None:
            return self.whole(node)
        found = torch.tensor([node], device=self.edge_index.device)
        seen = torch.zeros(self.num_nodes, dtype=torch.bool, device=found.device)
        seen[found] = True
        edges = [found.new_zeros(0)]
        for _ in range(field.hops + field.counts_edges):
            read, ends = zip(*(self.read(found, flow) for flow in field.flows), strict=True)
            edges += read
            reached = torch.cat(ends)
            found = reached[~seen[reached]].unique()
            seen[found] = True
            if not found.numel():
                break
        nodes = seen.nonzero().view(-1)
        if nodes.numel() > _NEARLY_ALL * self.num_nodes:
            return self.whole(node)
        listed = torch.cat(edges)
        listed = listed.sort().values if field.flows == FORWARDS else listed.unique()
        ends = torch.searchsorted(nodes, self.edge_index[:, listed])
        return Ego(nodes, listed, ends, int(torch.searchsorted(nodes, node)), False)

    def whole(self, node: int) -> Ego:
        """The whole graph."""
        device = self.edge_index.device
        nodes = torch.arange(self.num_nodes, device=device)
        edges = torch.arange(self.edge_index.size(1), device=device)
        return Ego(nodes, edges, self.edge_index, node, True)

    def distances(self, node: int, most: int, flow: str) -> dict[int, int]:
        """How many edges each node lies away from a node, up to ``most``."""
        found = torch.tensor([node], device=self.edge_index.device)
        away = {node: 0}
        for distance in range(1, most + 1):
            _, ends = self.read(found, flow)
            new = [end for end in ends.unique().tolist() if end not in away]
            away |= dict.fromkeys(new, distance)
            found = torch.tensor(new, dtype=torch.int64, device=found.device)
        return away


def _index(ends: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Where the edges of each node start in the order by their end, [nodes + 1], and that order."""
    count = torch.bincount(ends, minlength=nodes)
    return torch.cat([count.new_zeros(1), count.cumsum(0)]), ends.argsort(stable=True)


def local_edges(
    conv: Node2SeqConv, graph: Graph, node: int, are_apart: bool
) -> dict[tuple[int, int], list[int]]:
    """The entries that a node's sequence has before any selection, with the edges of each.

    Keys are a source and its edge, or −1 where parallel edges share an entry and for the node itself.

    Args:
        conv: The layer.
        graph: The edges that it reads.
        node: The node.
        are_apart: Whether parallel edges have an entry each.
    """
    at = torch.tensor([node], device=graph.edge_index.device)
    edges, sources = (part.tolist() for part in graph.read(at, conv.flow))
    found: dict[tuple[int, int], list[int]] = {(node, -1): []} if conv.add_self_loops else {}
    for edge, source in zip(edges, sources, strict=True):
        if source != node or not conv.add_self_loops:  # the self entry replaces it
            found.setdefault((source, edge if are_apart else -1), []).append(edge)
    return found

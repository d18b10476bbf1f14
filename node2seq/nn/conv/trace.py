"""What the layer did at each node, as it returns it."""

from typing import NamedTuple

import torch
from torch import Tensor

from node2seq import ops


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

"""What edges carry, brought to the positions of the ranked sequences: weights, attributes, an order."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq.ops.sequences import Ranking, Sequences, inverse


def find_entry_of_edge(
    source: Tensor,
    target: Tensor,
    num_sources: int,
    num_targets: int,
    *,
    add_self_loops: bool,
    keep_loops: bool = False,
) -> Tensor:
    """The entry of each edge in sequences that keep duplicates, [edges].

    A listed self loop that the self entry replaces gets a number of its own behind the last entry. So a
    value for each entry can be written to as many places as there are edges and self entries, each once.

    Args:
        source (torch.Tensor): The source of each edge, [edges].
        target (torch.Tensor): Its target, [edges].
        num_sources (int): The number of source nodes M.
        num_targets (int): The number of target nodes N.
        add_self_loops (bool): Whether each node is its own source.
        keep_loops (bool): Whether the last self loop that is listed for a node is its self entry.
    """
    span, edges = max(num_sources, 1), source.numel()
    number = target * span + source  # ascending by target, then source, as the sequences are
    if add_self_loops:
        number = torch.where(source == target, num_targets * span, number)
        loops = torch.arange(min(num_sources, num_targets), device=source.device)
        number = torch.cat([number, loops * span + loops])
    entry = inverse(number.argsort(stable=True))  # parallel edges as they are listed
    if keep_loops and add_self_loops:
        edge = torch.arange(edges, device=source.device)
        loop = torch.where(source == target, edge, -1)
        last = source.new_full((num_targets,), -1).scatter_reduce(0, target, loop, "amax")
        node = target.clamp(max=max(entry.numel() - edges - 1, 0))
        return torch.where(last[target] == edge, entry[edges + node], entry[:edges])
    return entry[:edges].clone()  # not a view, which would keep the self entries alive


def per_entry(values: Tensor, entry_of_edge: Tensor, entries: int, fill: float, dim: int = -1) -> Tensor:
    """Values of edges as values of entries: E instead of the number of edges in one of the dimensions.

    Args:
        values (torch.Tensor): The value of each edge.
        entry_of_edge (torch.Tensor): What :func:`find_entry_of_edge` gives.
        entries (int): The number of entries E.
        fill (float): The value of self entries.
        dim (int): Which dimension that of the edges is. (default: :obj:`-1`)
    """
    shape = list(values.shape)
    shape[dim] = entries + values.size(dim)
    places = values.new_full(shape, fill).index_copy(dim, entry_of_edge, values)
    return places.narrow(dim, 0, entries)


class EdgeValues(NamedTuple):
    """What each edge carries. The row at a position is then w (x̄_j + a) instead of x̄_j.

    Self entries and non-local nodes are no edges: their weight is 1, and they have no attribute.
    """

    entry: Tensor
    """The entry of each edge, [edges]; see :func:`find_entry_of_edge`."""
    weight: Tensor | None
    """w: the weight of each edge, [edges], the same for all runs."""
    attr: Tensor | None
    """a: the projected attribute of each edge, [edges, D] or [R, edges, D]."""
    order: Tensor | None = None
    """The number that each edge is sorted by, [edges], the same for all runs."""

    @property
    def changes_rows(self) -> bool:
        """Whether the row at a position is another than its source's."""
        return self.weight is not None or self.attr is not None

    def score(self, query: Tensor, sequences: Sequences) -> Tensor | None:
        """What the attributes add to the score of each entry, [E], or for R runs [R * E]; None without any.

        Args:
            query (torch.Tensor): The targets' projections, [N, D] or [R, N, D].
            sequences (Sequences): The sequences of one run.
        """
        rows = sequences.rows
        if self.attr is None:
            return None
        # What the self entry replaces is no entry, and in traced graphs one of no target.
        target = rows.target[self.entry.clamp(max=max(rows.num_entries - 1, 0))]
        target = target.clamp(max=max(rows.num_rows - 1, 0))
        added = (query[..., target, :] * self.attr).sum(-1)
        return per_entry(added, self.entry, rows.num_entries, 0.0).reshape(-1)

    def edge_of(self, entry: Tensor, runs: int = 1) -> Tensor:
        """The edge of each of some entries, as it is listed, or −1 for none, [R * E].

        Args:
            entry (torch.Tensor): Entries, or −1 for what is none, [R * E].
            runs (int): The number of runs R. (default: :obj:`1`)
        """
        edge, entries = torch.arange(self.entry.numel(), device=entry.device), entry.numel() // runs
        edge = per_entry(edge, self.entry, entries, -1)
        return torch.cat([edge, edge.new_full((1,), -1)])[
            torch.where(entry < 0, entries, entry % max(entries, 1))
        ]

    def rows(self, x: Tensor, ranking: Ranking) -> Tensor:
        """The row at each position, [E, D], or for R runs [R, E, D].

        Args:
            x (torch.Tensor): The sources' projections, [M, D] or [R, M, D].
            ranking (Ranking): What stands where.
        """
        runs, everywhere = x.shape[:-2].numel(), ranking.node.numel()
        entries, device = everywhere // runs, x.device
        with torch.no_grad():
            run = torch.arange(runs, device=device)[:, None]
            # What is at no position, or no entry, goes to one place behind the last.
            entry = torch.where(self.entry < entries, self.entry + run * entries, everywhere).view(-1)
            position = torch.full((everywhere + 1,), everywhere, device=device)
            position[ranking.entry] = torch.arange(everywhere, device=device)  # −1 is the last place
            position[everywhere] = everywhere
            position = position[entry]
        # Not an index: its backward pass is slower, and on a GPU a scatter would not be deterministic.
        rows = F.embedding(ranking.node, x.flatten(0, -2))
        if self.attr is not None:
            attr = self.attr.expand(*x.shape[:-2], -1, -1).reshape(-1, x.size(-1))
            places = rows.new_zeros(everywhere + 1, x.size(-1))
            rows = rows + places.index_copy(0, position, attr)[:-1]
        if self.weight is not None:
            places = rows.new_ones(everywhere + 1)
            rows = rows * places.index_copy(0, position, self.weight.repeat(runs))[:-1, None]
        return rows.view(*x.shape[:-2], entries, x.size(-1))

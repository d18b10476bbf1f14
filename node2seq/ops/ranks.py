"""The layer whose ranks keep their identity: how much of each neighbour stands at each rank, and a matrix for
each rank.

Features are [N, C], or [R, N, C] for R runs at once, as in :mod:`node2seq.ops.layer`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq.ops.dispatch import choose_backend
from node2seq.ops.edge_values import EdgeValues
from node2seq.ops.layer import rank
from node2seq.ops.ranking import Positions, Ranking
from node2seq.ops.sequences import Sequences


class Ranks(NamedTuple):
    """How much of each entry stands at each of the first ranks."""

    weights: Tensor
    """p: the share of each entry at each rank, [K, E]."""
    listed: Ranking
    """Which entries these are: the graph's own as they are listed, or those that were selected, ranked."""
    ranking: Ranking
    """Their order, best first."""

    def at_positions(self) -> Tensor:
        """The shares of what stands at each position of the ranking, [K, E]."""
        return self.weights if self.listed is self.ranking else self.weights[:, self.ranking.entry]


def soft_ranks(
    query: Tensor,
    key: Tensor,
    sequences: Sequences,
    count: int,
    *,
    temperature: float = 1.0,
    hops: int = 1,
    threshold: float | Tensor = 0.0,
    joint: bool = True,
    max_candidates: int | None = None,
    edges: EdgeValues | None = None,
    backend: Any = "auto",
) -> Ranks:
    """The soft ranks of each target's neighbours by their scores, which get a gradient.

    The scores are divided by the root of their channels and by the temperature. With several hops neighbours
    are selected first, by the same scores and without a gradient.

    Args:
        query (torch.Tensor): What the targets are scored by, [N, d] or [R, N, d].
        key (torch.Tensor): What the sources are scored by, [M, d] or [R, M, d].
        sequences (Sequences): The neighbours of each target.
        count (int): The number of ranks K.
        temperature (float): What scores are divided by; the smaller, the closer to a hard order.
        hops (int): ℓ; see :func:`node2seq.ops.rank`.
        threshold (float or torch.Tensor): β; see :func:`node2seq.ops.rank`.
        joint (bool): Whether the selected are ranked as a whole; see :func:`node2seq.ops.rank`.
        max_candidates (int, optional): See :func:`node2seq.ops.rank`.
        edges (EdgeValues, optional): What edges carry; their attributes have as many channels as ``key``.
        backend (str or module): The user's choice, or what :func:`choose_backend` made of it.
    """
    flat = key.flatten(0, -2)
    if isinstance(backend, str):
        backend = choose_backend(backend, flat)
    union = sequences.copies(key.size(0) if key.dim() == 3 else 1)
    how: dict[str, Any] = {"hops": hops, "threshold": threshold, "joint": joint, "edges": edges}
    how["max_candidates"] = max_candidates

    def ranked() -> Ranking:
        return rank(query.detach(), key.detach(), sequences, **how, backend=backend)

    if hops > 1:
        ranking = ranked()
        union = union.with_sources(ranking.node)
        ranking = listed = Ranking(ranking.sequences, union, ranking.find, backend, ranking.positions)
    else:  # nothing needs their order but a trace
        ranking = Ranking(union, None, lambda: ranked().positions, backend)
        listed = _as_listed(union, backend)
    score = backend.pair_scores(query.flatten(0, -2), flat, union)
    added = None if edges is None else edges.score(query, sequences)
    if added is not None:
        score = score + (added if hops == 1 else torch.cat([added, added.new_zeros(1)])[listed.entry])
    score = score / (key.size(-1) ** 0.5 * temperature)
    return Ranks(backend.soft_ranks(score, union, count), listed, ranking)


def hard_ranks(ranking: Ranking, count: int, hops: int, dtype: torch.dtype) -> Ranks:
    """One neighbour at each rank.

    Args:
        ranking (Ranking): Their order.
        count (int): The number of ranks K.
        hops (int): How far away they may be; with one hop they are the graph's own entries.
        dtype (torch.dtype): Of what they weigh.
    """
    sequences, backend = ranking.sequences, ranking.backend
    if hasattr(backend, "trace_hard_ranks"):  # one opaque step of what is compiled now
        weights = backend.trace_hard_ranks(ranking.layout, count)
    else:
        place = sequences.rows.position()
        if hops == 1:
            place = torch.zeros_like(place).scatter(0, ranking.entry, place)
        weights = (place == torch.arange(count, device=place.device)[:, None]).to(dtype)
    if hops == 1:
        return Ranks(weights, _as_listed(sequences, backend), ranking)
    chosen = sequences.with_sources(ranking.node)
    ranking = Ranking(sequences, chosen, ranking.find, backend, ranking.positions)
    return Ranks(weights, ranking, ranking)


def convolve_ranks(
    x: Tensor,
    weight: Tensor,
    ranks: Ranks,
    edges: EdgeValues | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """A matrix for each rank and one for the mean of all neighbours, [N, D] or [R, N, D].

    Args:
        x (torch.Tensor): The sources' projections, [M, C] or [R, M, C].
        weight (torch.Tensor): Θ, the last one that of the mean, [K + 1, C, D], or those of R runs,
            [R, K + 1, C, D].
        ranks (Ranks): Who stands where.
        edges (EdgeValues, optional): What edges carry.
        dtype (torch.dtype): Of what is multiplied and gathered, where the backend can choose.
    """
    listed, backend = ranks.listed, ranks.listed.backend
    sequences = listed.layout
    if edges is not None and edges.changes_rows:  # each entry has a row of its own
        x, sequences = edges.rows(x, listed), listed.sequences.positions
    how = {"dtype": dtype} if getattr(backend, "CHOOSES_DTYPE", False) else {}
    given = (x.flatten(0, -2), weight.to(x.dtype), ranks.weights.to(x.dtype))
    out = backend.convolve_ranks(*given, sequences, **how)
    return out.view(*x.shape[:-2], -1, weight.size(-1))


def _as_listed(sequences: Sequences, backend: Any) -> Ranking:
    """The graph's own entries in their own order."""

    def positions() -> Positions:
        numbers = torch.arange(sequences.index.numel(), device=sequences.index.device)
        return Positions(sequences.index, numbers.new_zeros(0), numbers)

    return Ranking(sequences, sequences, positions, backend)

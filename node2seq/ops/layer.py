"""The steps of the layer, for one run or R of them: rank the neighbours, convolve over them, by windows or by
ranks that keep their identity.

Features are [N, C], or [R, N, C] for R runs at once: their graph is the disjoint union of R copies of the one
that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._decomp import register_decomposition
from torch.nn.parameter import UninitializedParameter

from node2seq.ops import eager
from node2seq.ops.candidates import candidates_of
from node2seq.ops.dense_selection import select_dense
from node2seq.ops.dispatch import NATIVE_DTYPES, choose_backend, is_transformed
from node2seq.ops.edge_values import EdgeValues
from node2seq.ops.fixed_order import EdgeOrder, find_order, rank_by_edges, rearrange, rearrange_by_edges
from node2seq.ops.linear import SparseRows, initialize, is_plain_linear, linear
from node2seq.ops.selection import select
from node2seq.ops.sequences import Convolution, Positions, Ranking, Root, Rows, Sequences, rank_parallel
from node2seq.options import check_rules


def rank(
    query: Tensor,
    key: Tensor,
    sequences: Sequences,
    *,
    hops: int = 1,
    threshold: float | Tensor = 0.0,
    joint: bool = True,
    max_candidates: int | None = None,
    order: str = "attention",
    seed: Tensor | None = None,
    edges: EdgeValues | None = None,
    then: Convolution | None = None,
    backend: Any = "auto",
) -> Ranking:
    """Equations 2 to 4: score each target's neighbours, select, and rank. No gradient passes through.

    Args:
        query (torch.Tensor): The targets' projections, [N, D] or [R, N, D].
        key (torch.Tensor): The sources' projections, [M, D] or [R, M, D].
        sequences (Sequences): The neighbours of each target.
        hops (int): ℓ; with one hop nothing is selected.
        threshold (float or torch.Tensor): β; one for all, one for each run, [R], or one for each target, [N].
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
        max_candidates (int, optional): From how many nodes further away each target chooses at most; from all
            if not given.
        order (str): What the chosen are sorted by: ``attention``, ``degree``, ``random``, or a number on each
            edge, ``edge`` with self entries first and ``edge-self-last`` with these last.
        seed (torch.Tensor, optional): What a random order is drawn with: one for all, or each run's, [R].
        edges (EdgeValues, optional): What edges carry; the sequences have an entry for each edge then.
        then (Convolution, optional): The convolution over ``key`` that follows.
        backend (str or module): The user's choice, or what :func:`choose_backend` made of it.
    """
    runs, is_shared = key.size(0) if key.dim() == 3 else 1, query is key
    union = sequences if runs == 1 else sequences.copies(runs)
    if isinstance(threshold, Tensor) and threshold.numel() == runs:
        threshold = threshold.to(key.dtype).view(-1, 1).expand(runs, query.size(-2)).reshape(-1)
    if seed is not None and runs > 1:
        seed = seed.expand(runs)
    given = query
    if key.dim() == 3:
        key = key.flatten(0, -2)
        query = key if is_shared else query.flatten(0, -2)
    if isinstance(backend, str):
        backend = choose_backend(backend, key)
    if torch.compiler.is_compiling() and hasattr(backend, "trace_rank"):  # one opaque step
        return backend.trace_rank(
            query, key, union, hops, threshold, joint, max_candidates, order, seed, edges
        )
    added = None if edges is None else partial(edges.score, given, sequences)
    by_edge = None
    with torch.no_grad():
        if edges is not None and order.startswith("edge"):
            by_edge = find_order(sequences, edges, order == "edge-self-last")
        if hops == 1:
            following = then if order == "attention" else None
            ranking = _rank_local(backend, query, key, union, added, by_edge, following)
        else:
            graph, choice = (sequences, runs, union), (hops, threshold, joint, max_candidates)
            ranking = _rank_selected(backend, query, key, *graph, added, *choice)
            if by_edge is not None:
                ranking = rearrange_by_edges(by_edge, backend.precedence((key * key).sum(-1)), ranking)
        if order in ("degree", "random"):
            ranking = rearrange(ranking, hops, seed, parallel=edges is not None)
    ranking.backend = backend
    return ranking


def convolve(
    x: Tensor,
    weight: Tensor,
    ranking: Ranking,
    readout: str,
    root: Root | None = None,
    edges: EdgeValues | None = None,
    dtype: torch.dtype = torch.float32,
    with_winner: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Equations 5 and 6, and with a root equation 7 where sources are targets.

    Args:
        x (torch.Tensor): The sources' projections, [M, C] or [R, M, C].
        weight (torch.Tensor): The taps, [K, C, D], or those of R runs, [R, K, C, D].
        ranking (Ranking): Their order.
        readout (str): ``max``, ``mean`` or ``sum``.
        root (Root, optional): What the own rows are multiplied with, and the bias that is added.
        edges (EdgeValues, optional): What edges carry; without a root.
        dtype (torch.dtype): Of what is multiplied and gathered, where the backend can choose.
        with_winner (bool): Whether the winners are asked for; without, a backend may leave them out.

    Returns:
        The readout, [N, D] or [R, N, D], and of a maximum the winning window of each channel, [R * N, D].
    """
    if edges is not None and hasattr(ranking.backend, "convolve_edges"):
        return ranking.backend.convolve_edges(x, weight.to(x.dtype), ranking.layout, readout, edges)
    if edges is not None and edges.changes_rows:  # each position has a row of its own
        x, ranking = edges.rows(x, ranking), Ranking.given(ranking.sequences.positions, ranking.backend)
    backend, layout, winner = ranking.backend, ranking.layout, None
    how: dict[str, Any] = {"dtype": dtype} if getattr(backend, "CHOOSES_DTYPE", False) else {}
    is_one, own = x.dim() == 2, ()  # of one run nothing has to be laid out anew
    flat = x if is_one else x.flatten(0, -2)
    if weight.dtype != x.dtype:
        weight = weight.to(x.dtype)
    if root is not None:
        if root.weight.dtype != x.dtype or (root.bias is not None and root.bias.dtype != x.dtype):
            root = Root(root.weight.to(x.dtype), None if root.bias is None else root.bias.to(x.dtype))
        own = root if getattr(backend, "ADDS_ROOT", False) else ()
    if readout == "max":
        if getattr(backend, "CHOOSES_WINNERS", False):
            how["with_winner"] = with_winner
        out, winner = backend.convolve_max(flat, weight, layout, *own, **how)
    else:
        out = backend.convolve_sum(flat, weight, layout, *own, is_mean=readout == "mean", **how)
    if root is not None and not own:
        rows = linear(flat.view(*root.weight.shape[:-2], -1, flat.size(-1)), root.weight, root.bias)
        out = out.view(rows.shape) + rows
    return out if is_one else out.view(*x.shape[:-2], -1, weight.size(-1)), winner


def find_layer(
    backend: Any, lin: nn.Module, x: Tensor | SparseRows, weight: Tensor, root: Root
) -> Callable[[Sequences, Convolution], Tensor] | None:
    """A backend's way from features to the output in one step, if nobody looks in between.

    It takes the neighbours of each target and the convolution over them.

    Args:
        backend (module): A backend that has such a step.
        lin (torch.nn.Module): What projects the features.
        x (torch.Tensor): The features.
        weight (torch.Tensor): The taps.
        root (Root): What the own rows are multiplied with, and the bias.
    """
    if not isinstance(x, Tensor) or x.dim() != 2 or x.layout != torch.strided:
        return None
    if x.dtype not in NATIVE_DTYPES:  # backends work on what they make of it
        return None
    if weight.dim() != 3 or lin.bias is not None or not is_plain_linear(lin):
        return None
    projection, bias = lin.weight, root.bias
    if isinstance(projection, UninitializedParameter):
        initialize(lin, x)
        projection = lin.weight
    is_of_one_type = projection.dtype == weight.dtype == root.weight.dtype == x.dtype
    is_of_one_type &= bias is None or bias.dtype == x.dtype
    return partial(backend.layer, x, projection, weight, root) if is_of_one_type else None


def _rank_local(
    backend: Any,
    query: Tensor,
    key: Tensor,
    union: Sequences,
    added: Callable[[], Tensor | None] | None,
    by_edge: EdgeOrder | None,
    then: Convolution | None,
) -> Ranking:
    """The graph's own entries, of all runs.

    Args:
        backend: What holds the ``score``, the ``precedence`` and the ``rank`` to use.
        query (torch.Tensor): The targets' projections, [R * N, D].
        key (torch.Tensor): The sources' projections, [R * M, D].
        union (Sequences): The neighbours of each target.
        added (callable, optional): Gives what the attributes of edges add to each score, where edges carry
            something; parallel edges have an entry each then.
        by_edge (EdgeOrder, optional): The order by the numbers of the edges, for which scores only matter to
            a trace.
        then (Convolution, optional): The convolution over ``key`` that follows.
    """
    if added is None and hasattr(backend, "score_and_rank"):
        return backend.score_and_rank(query, key, union, then)

    def scores() -> Tensor:
        with torch.no_grad():  # asked for now, or later by a trace
            score, more = backend.score(query, key, union), None if added is None else added()
            return score if more is None else score + more

    def ties() -> Tensor:
        return backend.precedence((key * key).sum(-1))

    if by_edge is not None:
        return rank_by_edges(by_edge, ties, scores, union)
    score = scores()
    if added is None:
        order = backend.rank(score, ties(), union)
    else:
        order = rank_parallel(backend, score, ties()[union.index], union)
    ranked = union.reorder(order)
    return Ranking(union, ranked, lambda: Positions(ranked.index, score[order], order))


def _rank_selected(
    backend: Any,
    query: Tensor,
    key: Tensor,
    sequences: Sequences,
    runs: int,
    union: Sequences,
    added: Callable[[], Tensor | None] | None,
    hops: int,
    threshold: float | Tensor,
    joint: bool,
    max_candidates: int | None,
) -> Ranking:
    """What is chosen within several hops; see :func:`rank` and :func:`_rank_local`."""
    is_exported = torch.compiler.is_compiling()
    if is_exported or is_transformed():
        where = "in what is exported, or in a transform of torch.func"
        check_rules(
            (
                max_candidates is None,
                f"max_candidates={max_candidates} {where}",
                "candidates are drawn outside of it",
                "Leave max_candidates out, or use torch.compile instead",
            ),
            (
                added is None,
                f"hops={hops} with edges that carry something, {where}",
                "pairs of nodes are selected there, and parallel edges are neighbours each",
                "Use hops=1, or leave out what the edges carry",
            ),
        )
        # Both without shapes that depend on values, which vmap has no place for.
        choose, rows = _select_traced if is_exported else select_dense, union.rows
        choice = (rows.ptr, rows.target, union.index, hops, threshold, joint)
        positions = Positions(*choose(query, key, *choice))
        return Ranking(union, union.with_sources(positions.node), lambda: positions)
    candidates = candidates_of(sequences, hops, max_candidates).copies(runs)
    chosen = (query, key, union, candidates, threshold, joint)
    if added is None and hasattr(backend, "select"):
        return backend.select(*chosen)
    return select(backend, *chosen, None if added is None else added(), parallel=added is not None)


@torch.library.custom_op("node2seq::select", mutates_args=())
def _select_traced(
    query: Tensor,
    key: Tensor,
    ptr: Tensor,
    target: Tensor,
    index: Tensor,
    hops: int,
    threshold: float,
    joint: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The selection as one opaque step of a traced graph: only its inside depends on values."""
    kept = int(ptr[-1])
    sequences = Sequences(Rows(ptr, target[:kept]), index[:kept], key.size(0))
    node, score, entry = rank(
        query, key, sequences, hops=hops, threshold=threshold, joint=joint, backend=eager
    )
    left_over = index.numel() - kept
    return (
        torch.cat([node, index.new_zeros(left_over)]),
        torch.cat([score, score.new_zeros(left_over)]),
        torch.cat([entry, index.new_zeros(left_over)]),
    )


# For ONNX, which has no place for an opaque step.
register_decomposition(torch.ops.node2seq.select.default)(select_dense)


@_select_traced.register_fake
def _(query: Tensor, _key: Tensor, _ptr: Tensor, _target: Tensor, index: Tensor, *_: object) -> tuple:
    return torch.empty_like(index), query.new_empty(index.shape), torch.empty_like(index)


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

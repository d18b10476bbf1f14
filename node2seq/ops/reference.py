"""The plain twin of every operation: what the fast backends are measured against, and what can be traced.

Written with PyTorch alone, with shapes that depend on shapes only, and no sort that has to be stable:
``torch.export``, ONNX and AOTInductor all take it as it stands. Gradients come from autograd.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq.ops.sequences import Rows, Sequences, multiply

_LONGEST_SUM = 64
# A rank leaves at least so much of each entry to those behind it, so that the logarithm is finite.
LEAST_LEFT = 1e-30


def score(query: Tensor, key: Tensor, sequences: Sequences) -> Tensor:
    """Equation 2 for neighbours only: the inner product of each entry's target and source, :obj:`[E]`."""
    target = sequences.rows.target.clamp(max=max(sequences.rows.num_rows - 1, 0))
    return (query[target] * key[sequences.index]).sum(-1)


def precedence(own_score: Tensor) -> Tensor:
    """Who goes first where scores tie: the larger own score, then the smaller id. Rank of each node, [M]."""
    ids = torch.arange(own_score.numel(), device=own_score.device)
    return _inverse((dense_rank(own_score) * own_score.numel() + ids).argsort())


def rank(scores: Tensor, order_of_ties: Tensor, sequences: Sequences) -> Tensor:
    """Equation 3: the entry that stands at each position, by target, then score descending, then precedence.

    Two sorts of unique integers. The first orders all entries by score and precedence; the second only has to
    bring the entries of a target together.
    """
    by_score = dense_rank(scores) * sequences.num_sources + order_of_ties[sequences.index]
    place = _inverse(by_score.argsort())
    return (sequences.rows.target * place.numel() + place).argsort()


def dense_rank(values: Tensor) -> Tensor:
    """The place of each value in descending order; equal values share theirs."""
    ordered, order = values.sort(descending=True)
    # By index, not by slices: a traced graph would insist on more than two values.
    previous = (torch.arange(values.numel(), device=values.device) - 1).clamp(min=0)
    place = (ordered != ordered[previous]).long().cumsum(0)
    return torch.zeros_like(place).scatter(0, order, place)


def _inverse(permutation: Tensor) -> Tensor:
    ids = torch.arange(permutation.numel(), device=permutation.device)
    return torch.zeros_like(ids).scatter(0, permutation, ids)


def convolve_max(x: Tensor, weight: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Equations 5 and 6 with the largest window per channel; among equals the first window wins.

    The search for the winners is not differentiable and keeps nothing; what autograd sees is only the sum of
    the K projected rows under each winning window.

    Returns:
        The readout [N, D] and the winning window of each channel [N, D].
    """
    taps = range(weight.size(-3))
    with torch.no_grad():
        winner = _first_best_window(x, weight, sequences)
    rows, channels = sequences.rows, torch.arange(weight.size(-1), device=x.device)
    length = rows.length()
    out = x.new_zeros(winner.shape)
    for t in taps:
        projected = multiply(x, weight[..., t, :, :])
        if not rows.num_entries:  # nothing to gather: zeros, with a gradient of zero
            out = out + projected[:0].sum(0)
            continue
        place = winner + t
        entry = (rows.ptr[:-1, None] + place).clamp(max=rows.num_entries - 1)
        out = out + projected[sequences.index[entry], channels].where(place < length[:, None], 0.0)
    return out, winner


def _first_best_window(x: Tensor, weight: Tensor, sequences: Sequences) -> Tensor:
    rows, index = sequences.rows, sequences.index
    kernel_size, channels = weight.size(-3), weight.size(-1)
    # One more row than there are takes the leftovers of traced graphs.
    length = torch.cat([rows.length(), rows.ptr.new_zeros(1)])
    windows = (length - kernel_size + 1).clamp(min=1)
    position, target = rows.position(), rows.target
    value = x.new_zeros(rows.num_entries, channels)
    for t in range(kernel_size):
        inside = position + t < length[target]
        entry = (torch.arange(rows.num_entries, device=x.device) + t).clamp(max=max(rows.num_entries - 1, 0))
        value = value + multiply(x, weight[..., t, :, :])[index[entry]].where(inside[:, None], 0.0)
    value = value.masked_fill((position >= windows[target])[:, None], -torch.inf)

    segment = target[:, None].expand(-1, channels)
    best = value.new_full((rows.num_rows + 1, channels), -torch.inf)
    best = best.scatter_reduce(0, segment, value, "amax", include_self=True)
    # NaN equals nothing: count it as a hit, so that it is read out and seen.
    hit = (value == best[target]) | value.isnan()
    candidate = torch.where(hit, position[:, None], rows.num_entries)
    winner = position.new_full((rows.num_rows + 1, channels), rows.num_entries)
    winner = winner.scatter_reduce(0, segment, candidate, "amin", include_self=True)
    return torch.minimum(winner, windows[:, None] - 1)[:-1]


def convolve_sum(x: Tensor, weight: Tensor, sequences: Sequences, *, is_mean: bool = False) -> Tensor:
    """Equations 5 and 6 with the sum over windows, or their mean, which commute with the convolution.

    Tap t meets the entries at positions t … t + o_i − 1, whatever the window: sum these first, project after.
    """
    rows = sequences.rows
    kernel_size = weight.size(-3)
    windows = torch.cat([(rows.length() - kernel_size + 1).clamp(min=1), rows.ptr.new_zeros(1)])[rows.target]
    position = rows.position()
    out = x.new_zeros(rows.num_rows, weight.size(-1))
    for t in range(kernel_size):
        inside = (position >= t) & (position < t + windows)
        summed = _sum_rows(x[sequences.index].where(inside[:, None], 0.0), rows)
        out = out + multiply(summed, weight[..., t, :, :])
    return out / rows.windows(kernel_size)[:, None] if is_mean else out


def pair_scores(query: Tensor, key: Tensor, sequences: Sequences) -> Tensor:
    """The inner product of each entry's target and source with gradients to both, [E]."""
    return score(query, key, sequences)


def soft_ranks(score: Tensor, sequences: Sequences, count: int) -> Tensor:
    """How much of each entry stands at each of the first ranks, [count, E].

    Rank 0 is the softmax of the scores over each sequence, and each rank takes what those before it left:
    a_{t+1} = a_t + log(1 − p_t). A rank that a sequence is too short for holds nothing.

    Of a share above one half 1 − p is the sum of the others: subtracted, all its digits could be lost.
    """
    rows = sequences.rows
    # One more row than there are takes the leftovers of traced graphs.
    length = torch.cat([rows.length(), rows.ptr.new_zeros(1)])[rows.target]
    value, weights = score, []
    for t in range(count):
        top = value.detach().new_full((rows.num_rows + 1,), -torch.inf)
        top = top.scatter_reduce(0, rows.target, value.detach(), "amax")
        share = (value - top[rows.target]).exp()
        share = share / _sum_of_row(share, rows)
        share = share.where(length > t, 0.0)
        weights.append(share)
        is_large = share > 0.5
        left = torch.where(is_large, _sum_of_row(share.masked_fill(is_large, 0.0), rows), 1 - share)
        value = value + left.clamp(min=LEAST_LEFT).log()
    return torch.stack(weights)


def _sum_of_row(values: Tensor, rows: Rows) -> Tensor:
    """For each entry the sum of the values of its row, [E]."""
    return _sum_rows(values[:, None], rows, leftovers=True).view(-1)[rows.target]


def convolve_ranks(x: Tensor, weight: Tensor, ranks: Tensor, sequences: Sequences) -> Tensor:
    """A matrix for each rank and one for the mean of all: Σ_t Θ_t Σ_j p_t(i, j) x_j + Θ_all mean_j x_j.

    Args:
        x (torch.Tensor): The sources' rows, [M, C].
        weight (torch.Tensor): Θ, the last one that of the mean, [K + 1, C, D], or those of R runs.
        ranks (torch.Tensor): p, how much of each entry stands at each rank, [K, E].
        sequences (Sequences): The entries of each target.
    """
    rows = sequences.rows
    share = torch.cat([1 / rows.length().clamp(min=1).to(x.dtype), x.new_zeros(1)])[rows.target]
    gathered = x[sequences.index]
    out = x.new_zeros(rows.num_rows, weight.size(-1))
    for t, part in enumerate((*ranks.unbind(), share)):
        out = out + multiply(_sum_rows(gathered * part[:, None], rows), weight[..., t, :, :])
    return out


def aggregate(x: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
    """The weighted sum of each target's source rows, [N, D]."""
    return _sum_rows(x[sequences.index] * weight[:, None], sequences.rows)


def attention(source: Tensor, target: Tensor, sequences: Sequences, slope: float) -> Tensor:
    """The softmax over each target's entries of ``leaky_relu(source[j] + target[i])``, [E]."""
    rows = sequences.rows
    # One more row than there are takes the leftovers of traced graphs.
    target = torch.cat([target, target.new_zeros(1)])
    value = F.leaky_relu(source[sequences.index] + target[rows.target], slope)
    top = value.detach().new_full((rows.num_rows + 1,), -torch.inf)
    top = top.scatter_reduce(0, rows.target, value.detach(), "amax")
    value = (value - top[rows.target]).exp()
    return value / value.new_zeros(rows.num_rows + 1).index_add(0, rows.target, value)[rows.target]


def largest(x: Tensor, sequences: Sequences, weight: Tensor, count: int) -> Tensor:
    """Each target's ``count`` largest weighted source values per channel, descending, [N, count, C].

    What is not above zero counts as zero, and zeros fill up what is missing.
    """
    rows = sequences.rows
    value = (x[sequences.index] * weight[:, None]).clamp(min=0)
    left = value.detach()
    segment = rows.target[:, None].expand_as(left)
    entry = torch.arange(rows.num_entries, device=x.device)[:, None]
    padded = torch.cat([value, value.new_zeros(1, value.size(-1))])
    found = []
    for _ in range(count):
        best = left.new_zeros(rows.num_rows + 1, left.size(-1)).scatter_reduce(0, segment, left, "amax")
        hit = (left == best[rows.target]) & (left > 0)
        first = entry.new_full(best.shape, rows.num_entries)
        first = first.scatter_reduce(0, segment, torch.where(hit, entry, rows.num_entries), "amin")
        found.append(padded.gather(0, first[:-1]))
        left = left.masked_fill(entry == first[rows.target], 0.0)
    return torch.stack(found, dim=1)


def _sum_rows(values: Tensor, rows: Rows, *, leftovers: bool = False) -> Tensor:
    """The sum of each row's entries, in parts first: one long sum would cost a hub its last digits.

    Row i's parts start at place ``ptr[i] // 64 + i``, which leaves each row enough of them. If asked for, the
    sum of what is left over in traced graphs comes behind those of the rows.
    """
    place = rows.ptr // _LONGEST_SUM + torch.arange(rows.num_rows + 1, device=values.device)
    part = place[rows.target] + rows.position() // _LONGEST_SUM
    parts = rows.num_entries // _LONGEST_SUM + rows.num_rows + 1
    sums = values.new_zeros(parts, values.size(-1)).index_add(0, part, values)
    owner = place.new_zeros(parts).scatter(0, place[1:], torch.ones_like(place[1:])).cumsum(0)
    sums = values.new_zeros(rows.num_rows + 1, values.size(-1)).index_add(0, owner, sums)
    return sums if leftovers else sums[:-1]

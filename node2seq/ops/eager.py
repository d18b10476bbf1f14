"""The fast twin in plain PyTorch: gathers by ``embedding_bag``, grouped sorts, hand-written backwards.

Deterministic on CPU and GPU: sums run over each bag in order, and what has to be scattered goes through
``index_put_(accumulate=True)`` on a GPU, which sorts, instead of ``scatter_add_``, which races.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops import reference
from node2seq.ops.attention import attention as attention
from node2seq.ops.largest import largest as largest
from node2seq.ops.sequences import Rows, Sequences, lasting

# Window sums of one block are read right after they are written: 2^14 rows of 64 floats stay in a CPU's L2.
_WINDOWS_PER_BLOCK = 2**14
# Sums run one after the other within a bag. Cut into parts of 64, a hub's loses no more digits than a
# pairwise sum would, and keeps more than one thread busy.
_LONGEST_SUM = 64
# On a GPU launches rule instead; 2^20 rows of 64 floats are 256 MiB.
_WINDOWS_PER_BLOCK_GPU = 2**20


def score(query: Tensor, key: Tensor, sequences: Sequences) -> Tensor:
    """Equation 2 as a sampled product: no [E, D] tensor, 10 × faster than gather-multiply-sum on a CPU."""
    if not sequences.index.numel():
        return query.new_zeros(0)
    pattern = sequences.pattern.to(query.dtype)
    return torch.sparse.sampled_addmm(pattern, query, key.t(), beta=0.0).values()


def precedence(own_score: Tensor) -> Tensor:
    """Who goes first where scores tie: the larger own score, then the smaller id. Rank of each node, [M]."""
    order = own_score.argsort(descending=True, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel(), device=order.device)
    return place


def rank(scores: Tensor, order_of_ties: Tensor, sequences: Sequences) -> Tensor:
    """Equation 3 for float32: score and precedence packed into one integer, rows sorted in groups of a width.

    Float bits keep their order as integers once the negative ones are mirrored; the complement sorts
    descending. Adding zero first turns −0.0 into +0.0, which it equals.
    """
    if scores.dtype != torch.float32:
        return reference.rank(scores, order_of_ties, sequences)
    bits = (scores + 0.0).view(torch.int32)
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    packed = (~ascending).long() << 32 | order_of_ties[sequences.index]
    order = torch.empty_like(sequences.index)
    ptr = sequences.rows.ptr
    for rows, _, width in sequences.rows.groups:
        start, end = ptr[rows, None], ptr[rows + 1, None]
        entry = start + torch.arange(width, device=ptr.device)
        real = entry < end
        key = torch.where(real, packed[entry.clamp_(max=packed.numel() - 1)], torch.iinfo(torch.int64).max)
        sorted_entry = start + key.argsort(dim=1)
        # Padding sorts behind every real entry, so position p of a row holds the row's p-th entry.
        order[entry[real]] = sorted_entry[real]
    return order


def convolve_max(x: Tensor, weight: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Equations 5 and 6 with the largest window per channel; see :func:`reference.convolve_max`."""
    kernel_size, channels = weight.size(-3), weight.size(-1)
    taps = weight.transpose(-3, -2).flatten(-2)  # [C, K * D]: one product projects for every tap
    projected = reference.project(x, taps).view(-1, kernel_size, channels)
    return _WindowMax.apply(projected, sequences)  # pyright: ignore[reportReturnType]


class _WindowMax(torch.autograd.Function):
    """The largest window sum per channel. Keeps the winners, never the projected rows or the windows."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
        kernel_size, channels = projected.shape[1:]
        rows, device = sequences.rows, projected.device
        table = projected.reshape(-1, channels)  # row j * K + t: node j under tap t
        out = projected.new_zeros(rows.num_rows, channels)
        winner = torch.zeros(rows.num_rows, channels, dtype=torch.int64, device=device)
        taps = torch.arange(kernel_size, device=device)
        budget = _WINDOWS_PER_BLOCK_GPU if projected.is_cuda else _WINDOWS_PER_BLOCK
        for members, shortest, width in rows.groups:
            # A sequence shorter than the kernel is one window over what there is.
            count, seen = max(width - kernel_size + 1, 1), min(width, kernel_size)
            for block in members.split(max(budget // count, 1)):
                start, length = rows.ptr[block], rows.ptr[block + 1] - rows.ptr[block]
                windows = (length - kernel_size + 1).clamp_(min=1)
                # Rows with fewer windows than the group's count repeat their last: the winner stays.
                first = torch.minimum(torch.arange(count, device=device), windows[:, None] - 1)
                place = first[:, :, None] + taps[:seen]
                entry, inside = start[:, None, None] + place, None
                if shortest < kernel_size:
                    # Some window may reach past its sequence's end. Its own last entry counts zero times
                    # there: zero times another sequence's NaN would be NaN.
                    inside = (place < length[:, None, None]).to(table.dtype).view(-1, seen)
                    entry = torch.minimum(entry, (start + length - 1)[:, None, None])
                bag = sequences.index[entry] * kernel_size + taps[:seen]
                value = F.embedding_bag(bag.view(-1, seen), table, mode="sum", per_sample_weights=inside)
                best = value.view(block.numel(), count, channels).max(dim=1)
                out[block], winner[block] = best.values, best.indices
        ctx.save_for_backward(winner)
        ctx.sequences, ctx.shape = sequences, projected.shape
        ctx.mark_non_differentiable(winner)
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _grad_winner: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (winner,) = ctx.saved_tensors
        (_, kernel_size, channels), sequences = ctx.shape, ctx.sequences
        ptr, length = sequences.rows.ptr, sequences.rows.length()
        flat = grad.new_zeros(ctx.shape).view(-1)
        channel = torch.arange(channels, device=grad.device)
        budget = _WINDOWS_PER_BLOCK_GPU if grad.is_cuda else _WINDOWS_PER_BLOCK
        for block in torch.arange(winner.size(0), device=grad.device).split(budget // 4):
            for t in range(kernel_size):
                place = winner[block] + t
                inside = place < length[block, None]
                entry = (ptr[block, None] + place).clamp_(max=max(sequences.index.numel() - 1, 0))
                if not sequences.index.numel():
                    continue
                at = (sequences.index[entry] * kernel_size + t) * channels + channel
                value = grad[block].where(inside, 0.0)
                if grad.is_cuda:
                    flat.index_put_((at.view(-1),), value.view(-1), accumulate=True)
                else:
                    flat.scatter_add_(0, at.view(-1), value.view(-1))
        return flat.view(ctx.shape), None


def convolve_sum(x: Tensor, weight: Tensor, sequences: Sequences) -> Tensor:
    """Equations 5 and 6 with the sum over windows; see :func:`reference.convolve_sum`."""
    kernel_size, channels = weight.size(-3), weight.size(-1)
    summed = _WindowSum.apply(x, sequences, kernel_size)
    taps = weight.reshape(*weight.shape[:-3], kernel_size * x.size(-1), channels)
    return reference.project(summed.flatten(1), taps)  # pyright: ignore[reportAttributeAccessIssue]


class _WindowSum(torch.autograd.Function):
    """What each tap meets over all windows, [N, K, C]: P_t = Σ x[q] over t ≤ q < t + o_i.

    The core of a long sequence, q from K − 1 to o_i − 1, lies under every tap and is summed once; the K − 1
    entries before and behind it are added: P_t = core + (x_t + … + x_{K−2}) + (x_o + … + x_{o+t−1}).
    Only additions, so no digits are lost. A sequence too short for a core is summed tap by tap.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, sequences: Sequences, kernel_size: int) -> Tensor:
        ctx.sequences, ctx.kernel_size = sequences, kernel_size
        rows = sequences.rows
        out = x.new_zeros(rows.num_rows, kernel_size, x.size(-1))
        windows = (rows.length() - kernel_size + 1).clamp_(min=1)
        long = ((windows >= kernel_size) & (rows.length() >= kernel_size)).nonzero().view(-1)
        short = ((windows < kernel_size) | (rows.length() < kernel_size)).nonzero().view(-1)
        if long.numel():
            start, count = rows.ptr[long], windows[long]
            core = _range_sum(x, sequences.index, start + kernel_size - 1, start + count)
            head = _suffix_sums(x, sequences.index, start, kernel_size - 1)
            tail = _prefix_sums(x, sequences.index, start + count, kernel_size - 1)
            for t in range(kernel_size):
                out[long, t] = core + head[t] + tail[t]
        if short.numel():
            start, end = rows.ptr[short], rows.ptr[short + 1]
            for t in range(kernel_size):
                first = torch.minimum(start + t, end)
                out[short, t] = _range_sum(
                    x, sequences.index, first, torch.minimum(first + windows[short], end)
                )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # Position q lies under taps max(0, q − o + 1) … min(q, K − 1): a difference of two prefix sums.
        sequences, kernel_size = ctx.sequences, ctx.kernel_size
        rows = sequences.rows
        prefix = grad.cumsum(1).view(-1, grad.size(-1))
        source_ptr, entries = sequences.transposed
        target = rows.target[entries]
        position = entries - rows.ptr[target]
        windows = (rows.length() - kernel_size + 1).clamp_(min=1)[target]
        upper = target * kernel_size + position.clamp(max=kernel_size - 1)
        out = _bag_sum(prefix, upper, _cut_once(sequences, "sources", source_ptr))
        tail = position >= windows
        lower = (target * kernel_size + position - windows)[tail]
        before = torch.cat([tail.new_zeros(1, dtype=torch.int64), tail.cumsum(0)])
        return out.sub_(_bag_sum(prefix, lower, _cut(before[source_ptr]))), None, None


def _bag_sum(table: Tensor, index: Tensor, cut: list[Tensor], weight: Tensor | None = None) -> Tensor:
    """The sum of ``table[index[ptr[i]:ptr[i + 1]]]`` for every i, each in the same order every time.

    Args:
        table (torch.Tensor): The rows to sum, [M, C].
        index (torch.Tensor): Which row each entry is, [E].
        cut (list): How ``ptr`` is cut; see :func:`_cut`.
        weight (torch.Tensor, optional): The weight of each entry, [E].
    """
    if not index.numel():
        return table.new_zeros(cut[0].numel() - 1, table.size(-1))
    *coarser, finest = cut
    sums = F.embedding_bag(
        index, table, finest, mode="sum", per_sample_weights=weight, include_last_offset=True
    )
    for part_ptr in reversed(coarser):
        parts = torch.arange(sums.size(0), device=index.device)
        sums = F.embedding_bag(parts, sums, part_ptr, mode="sum", include_last_offset=True)
    return sums


def _cut(ptr: Tensor) -> list[Tensor]:
    """Bags as sums of parts, which are sums of parts again: where each begins, the finest last."""
    parts = (ptr[1:] - ptr[:-1] + _LONGEST_SUM - 1) // _LONGEST_SUM
    if not bool((parts > 1).any()):
        return [ptr]
    part = Rows.from_lengths(parts)
    return [*_cut(part.ptr), torch.cat([ptr[part.target] + part.position() * _LONGEST_SUM, ptr[-1:]])]


def _cut_once(sequences: Sequences, side: str, ptr: Tensor) -> list[Tensor]:
    """The cut of a graph's own rows, or of its sources; found once, as it makes the host wait for a GPU."""
    graph = sequences if sequences.origin is None else sequences.origin[0]  # no order changes it
    plan = f"eager cut of {side}"
    if plan not in graph.plans:
        with lasting():
            graph.plans[plan] = _cut(ptr)
    return graph.plans[plan]


def _range_sum(x: Tensor, index: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """The sum of ``x[index[first:last]]`` for every pair of bounds."""
    length = (last - first).clamp(min=0)
    ptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(length.numel(), device=x.device), length)
    entry = torch.arange(owner.numel(), device=x.device) - ptr[owner] + first[owner]
    return _bag_sum(x, index[entry], _cut(ptr))


def _suffix_sums(x: Tensor, index: Tensor, start: Tensor, count: int) -> list[Tensor]:
    """For t = 0 … count: the sum of the entries at ``start + t … start + count − 1``."""
    sums = [x.new_zeros(start.numel(), x.size(-1))]
    for t in reversed(range(count)):
        sums.append(sums[-1] + x[index[start + t]])
    return sums[::-1]


def _prefix_sums(x: Tensor, index: Tensor, start: Tensor, count: int) -> list[Tensor]:
    """For t = 0 … count: the sum of the entries at ``start … start + t − 1``."""
    sums = [x.new_zeros(start.numel(), x.size(-1))]
    for t in range(count):
        sums.append(sums[-1] + x[index[start + t]])
    return sums


def aggregate(x: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
    """The weighted sum of each target's source rows, [N, D]; its backward is the same sum transposed."""
    return _Aggregate.apply(x, sequences, weight)  # pyright: ignore[reportReturnType]


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sequences: Sequences, weight: Tensor) -> Tensor:
        ctx.sequences = sequences
        ctx.save_for_backward(weight, x if weight.requires_grad else None)
        return _bag_sum(x, sequences.index, _cut_once(sequences, "rows", sequences.rows.ptr), weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, x = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            sequences = ctx.sequences
            source_ptr, entries = sequences.transposed
            cut = _cut_once(sequences, "sources", source_ptr)
            grad_x = _bag_sum(grad, sequences.rows.target[entries], cut, weight[entries])
        if ctx.needs_input_grad[2]:
            grad_weight = score(grad.contiguous(), x, ctx.sequences)
        return grad_x, None, grad_weight

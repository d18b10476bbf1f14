"""Equations 5 and 6 with the largest window: winners are kept instead of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.eager.aggregate import bag_sum, split_bags_once
from node2seq.ops.sequences import Rows, Sequences, multiply, stable_order

# Window sums of one block are read right after they are written: 2^14 rows of 64 floats stay in a CPU's L2.
_WINDOWS_PER_BLOCK = 2**14
# On a GPU launches rule instead; 2^20 rows of 64 floats are 256 MiB.
_WINDOWS_PER_BLOCK_GPU = 2**20
# Up to so many windows a row, they are compared one after the other: PyTorch's maximum over rows that lie
# apart is slow on a CPU, and rows with few windows need no more than they have.
_FEW_WINDOWS = 16
# Where sequences have so many entries on average, and the graph so many in all, sources ask for gradients.
_SHORT_SEQUENCES, _FEW_ENTRIES = 4, 2**15


def convolve_max(
    x: Tensor, weight: Tensor, sequences: Sequences, *, with_winner: bool = True
) -> tuple[Tensor, Any]:
    """Equations 5 and 6 with the largest window per channel; see :func:`reference.convolve_max`.

    Winners that nobody asks for, and no gradient depends on, are not looked for where that is quicker.
    """
    kernel_size, channels = weight.size(-3), weight.size(-1)
    taps = weight.transpose(-3, -2).flatten(-2)  # [C, K * D]: one product projects for every tap
    projected = multiply(x, taps).view(-1, kernel_size, channels)
    if is_recorded(projected):
        return _WindowMax.apply(projected, sequences)  # pyright: ignore[reportReturnType]
    return _largest_windows(projected, sequences, with_winner)


def _largest_windows(projected: Tensor, sequences: Sequences, with_winner: bool = True) -> tuple[Tensor, Any]:
    """The largest window sum of each channel, and the first window that reaches it."""
    kernel_size, channels = projected.shape[1:]
    rows, table = sequences.rows, projected.reshape(-1, channels)  # row j * K + t: node j under tap t
    budget = _WINDOWS_PER_BLOCK_GPU if projected.is_cuda else _WINDOWS_PER_BLOCK
    out = winner = None
    for members, shortest, width in rows.groups:
        # A sequence shorter than the kernel is one window over what there is.
        count = max(width - kernel_size + 1, 1)
        is_few = not projected.is_cuda and count <= _FEW_WINDOWS and members.numel() * count <= budget
        if is_few and members.numel() == rows.num_rows:
            return _compare_windows(table, sequences, (members, shortest, width), kernel_size, with_winner)
        if out is None or winner is None:
            out, winner = _zeros(projected, rows)
        for block in [members] if is_few else members.split(max(budget // count, 1)):
            find = _compare_windows if is_few else _all_windows
            out[block], winner[block] = find(table, sequences, (block, shortest, width), kernel_size)
    return _zeros(projected, rows) if out is None or winner is None else (out, winner)


def _zeros(projected: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """What rows without any entries read out, and their winners."""
    out = projected.new_zeros(rows.num_rows, projected.size(-1))
    return out, torch.zeros(out.shape, dtype=torch.int64, device=out.device)


class _WindowMax(torch.autograd.Function):
    """The largest window sum per channel. Keeps the winners, never the projected rows or the windows."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
        out, winner = _largest_windows(projected, sequences)
        ctx.save_for_backward(winner)
        ctx.sequences, ctx.shape = sequences, projected.shape
        ctx.mark_non_differentiable(winner)
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _grad_winner: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (winner,) = ctx.saved_tensors
        sequences, (_, kernel_size, _) = ctx.sequences, ctx.shape
        grad, rows = grad.contiguous(), sequences.rows
        if not sequences.index.numel():
            return grad.new_zeros(ctx.shape), None
        is_short = rows.num_entries <= min(_SHORT_SEQUENCES * rows.num_rows, _FEW_ENTRIES)
        if not grad.is_cuda and is_short and bool(grad.sum().isfinite()):
            return _under_winners(grad, winner, sequences, kernel_size), None
        return _scatter_to_winners(grad, winner, sequences, ctx.shape), None


def _under_winners(grad: Tensor, winner: Tensor, sequences: Sequences, kernel_size: int) -> Tensor:
    """The gradient of the projected rows, [M, K, D]: each source asks the rows that it stands in.

    An entry at position q stood under tap t of the window that began at q − t. No branches, and no row is
    written to twice: for short sequences this takes half the time of a scatter.
    """
    source_ptr, entries = sequences.transposed
    target = sequences.rows.target.index_select(0, entries)
    begin = entries - sequences.rows.ptr.index_select(0, target)
    bags = split_bags_once(sequences, "sources", source_ptr)
    value, at = grad.index_select(0, target), winner.to(grad.dtype).index_select(0, target)
    begin, number = begin.to(grad.dtype)[:, None], torch.arange(target.numel(), device=grad.device)
    out, is_under = grad.new_empty(source_ptr.numel() - 1, kernel_size, grad.size(1)), torch.empty_like(at)
    for t in range(kernel_size):
        torch.eq(at, begin - t, out=is_under)
        out[:, t] = bag_sum(is_under.mul_(value), number, bags)
    return out


def _scatter_to_winners(grad: Tensor, winner: Tensor, sequences: Sequences, shape: torch.Size) -> Tensor:
    """The same by target: each row's gradient goes to those that stand under its winners."""
    _, kernel_size, channels = shape
    flat, ptr, length = grad.new_zeros(shape).view(-1), sequences.rows.ptr, sequences.rows.length()
    # Where the gradient of each entry's row begins. A window that reaches past its sequence's end, or
    # behind the last of all, hands zeros to whoever stands there.
    begin = F.pad(sequences.index * (kernel_size * channels), (0, kernel_size))
    channel = torch.arange(channels, device=grad.device)
    budget = _WINDOWS_PER_BLOCK_GPU if grad.is_cuda else _WINDOWS_PER_BLOCK
    for first in range(0, winner.size(0), budget // 4):
        block = slice(first, first + budget // 4)
        entry = (ptr[:-1][block, None] + winner[block]).view(-1)
        for t in range(kernel_size):
            at = begin[t:].index_select(0, entry).view(-1, channels).add_(channel + t * channels).view(-1)
            is_past, value = length[block] <= t, grad[block]  # the same for all windows of a row
            if grad.is_cuda:
                value = value.masked_fill(is_past[:, None], 0.0)
                flat.index_put_((at,), value.view(-1), accumulate=True)
            else:
                value = value.index_fill(0, is_past.nonzero().view(-1), 0.0)
                flat.scatter_add_(0, at, value.view(-1))
    return flat.view(shape)


def _all_windows(
    table: Tensor, sequences: Sequences, group: tuple[Tensor, int, int], kernel_size: int
) -> tuple[Tensor, Tensor]:
    """The largest windows of some rows of a group, each with as many windows as the longest has."""
    ptr, (block, shortest, width) = sequences.rows.ptr, group
    count, taps = max(width - kernel_size + 1, 1), torch.arange(min(width, kernel_size), device=table.device)
    start, length = ptr[block], ptr[block + 1] - ptr[block]
    windows = (length - kernel_size + 1).clamp_(min=1)
    # Rows with fewer windows than the group's count repeat their last: the winner stays.
    first = torch.minimum(torch.arange(count, device=table.device), windows[:, None] - 1)
    place = first[:, :, None] + taps
    entry, inside = start[:, None, None] + place, None
    if shortest < kernel_size:
        # Some window may reach past its sequence's end. Its own last entry counts zero times there: zero
        # times another sequence's NaN would be NaN.
        inside = (place < length[:, None, None]).to(table.dtype).view(-1, taps.numel())
        entry = torch.minimum(entry, (start + length - 1)[:, None, None])
    bag = (sequences.index[entry] * kernel_size + taps).view(-1, taps.numel())
    value = F.embedding_bag(bag, table, mode="sum", per_sample_weights=inside)
    best = value.view(block.numel(), count, -1).max(dim=1)
    return best.values, best.indices


def _compare_windows(
    table: Tensor,
    sequences: Sequences,
    group: tuple[Tensor, int, int],
    kernel_size: int,
    with_winner: bool = True,
) -> tuple[Tensor, Any]:
    """The largest windows of the rows of a group, and the winners; see :attr:`Rows.groups`."""
    ptr, (members, shortest, width) = sequences.rows.ptr, group
    count, taps = max(width - kernel_size + 1, 1), torch.arange(min(width, kernel_size), device=table.device)
    start, end = ptr.index_select(0, members), ptr.index_select(0, members + 1)
    entry, inside = start[:, None] + taps, None
    if shortest < kernel_size:
        # A row's own last entry counts zero times behind its end: zero times another row's NaN would be NaN.
        inside = (entry < end[:, None]).to(table.dtype)
        entry = torch.minimum(entry, end[:, None] - 1)

    def sums(entry: Tensor, weight: Tensor | None = None) -> Tensor:
        bag = sequences.index.index_select(0, entry.view(-1)).mul_(kernel_size).view(entry.shape).add_(taps)
        return F.embedding_bag(bag, table, mode="sum", per_sample_weights=weight)

    best = sums(entry, inside)
    winner = torch.zeros(best.shape, dtype=torch.int64, device=table.device) if with_winner else None
    if count == 1:
        return best, winner
    # Those with most windows first, so that the rows that have a window stand together.
    fewer = count - (end - start - kernel_size + 1).clamp_(min=1)
    counts = (
        torch.bincount(fewer, minlength=count).cumsum(0).tolist()[-2::-1]
    )  # how many have a second window, a third …
    order = stable_order(fewer, count)[: counts[0]]
    start = start.index_select(0, order)
    later = sums(torch.cat([start[:rows] + place for place, rows in enumerate(counts, 1)])[:, None] + taps)
    among = best.index_select(0, order)
    at = None if winner is None else torch.zeros_like(among)
    _keep_larger(among, at, later.split(counts))
    if winner is not None and at is not None:
        winner.index_copy_(0, order, at.long())
    return best.index_copy_(0, order, among), winner


def _keep_larger(best: Tensor, at: Tensor | None, later: Sequence[Tensor]) -> None:
    """Puts the largest of several windows into ``best`` and its place into ``at``; of equal ones the first.

    Without branches: which of two windows is larger cannot be foreseen, and PyTorch's ``where`` and
    ``masked_fill_`` take 70 µs for 18,000 numbers, its ``maximum`` 3.
    """
    if at is None:
        for new in later:
            torch.maximum(new, best[: new.size(0)], out=best[: new.size(0)])
        return
    has_nan = bool(torch.stack([values.sum() for values in (best, *later)]).isnan().any())
    for place, new in enumerate(later, 1):
        old, old_at = best[: new.size(0)], at[: new.size(0)]
        if has_nan:  # beats every number, and the first one stays
            stays = (new <= old) | old.isnan()
            old_at.masked_fill_(stays.logical_not(), place)
            old.copy_(torch.where(stays, old, new))
        else:
            is_larger = torch.gt(new, old, out=torch.empty_like(old))
            torch.maximum(old_at, is_larger.mul_(place), out=old_at)
            torch.maximum(new, old, out=old)

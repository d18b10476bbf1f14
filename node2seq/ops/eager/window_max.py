"""Equations 5 and 6 with the largest window: winners are kept instead of windows."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.eager.few_windows import convolve_few, few_windows_of
from node2seq.ops.sequences import Sequences, multiply

# Window sums of one block are read right after they are written: 2^14 rows of 64 floats stay in a CPU's L2.
_WINDOWS_PER_BLOCK = 2**14
# On a GPU launches rule instead; 2^20 rows of 64 floats are 256 MiB.
_WINDOWS_PER_BLOCK_GPU = 2**20
# Up to so many windows a row, they are compared one after the other: PyTorch's maximum over rows that lie
# apart is slow on a CPU, and rows with few windows need no more than they have.
_FEW_WINDOWS = 16


def convolve_max(
    x: Tensor, weight: Tensor, sequences: Sequences, *, with_winner: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Equations 5 and 6 with the largest window per channel; see :func:`reference.convolve_max`.

    Winners that nobody asks for are left out where that is quicker.
    """
    kernel_size, channels = weight.size(-3), weight.size(-1)
    windows = few_windows_of(sequences, kernel_size)
    if windows is not None:
        return convolve_few(x, weight, sequences, windows, "max", with_winner)
    taps = weight.transpose(-3, -2).flatten(-2)  # [C, K * D]: one product projects for every tap
    projected = multiply(x, taps).view(-1, kernel_size, channels)
    return _WindowMax.apply(projected, sequences)  # pyright: ignore[reportReturnType]


class _WindowMax(torch.autograd.Function):
    """The largest window sum per channel. Keeps the winners, never the projected rows or the windows."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
        kernel_size, channels = projected.shape[1:]
        rows, device = sequences.rows, projected.device
        table = projected.reshape(-1, channels)  # row j * K + t: node j under tap t
        taps = torch.arange(kernel_size, device=device)
        budget = _WINDOWS_PER_BLOCK_GPU if projected.is_cuda else _WINDOWS_PER_BLOCK
        out = projected.new_zeros(rows.num_rows, channels)
        winner = torch.zeros(rows.num_rows, channels, dtype=torch.int64, device=device)
        for members, shortest, width in rows.groups:
            # A sequence shorter than the kernel is one window over what there is.
            count, seen = max(width - kernel_size + 1, 1), min(width, kernel_size)
            if not projected.is_cuda and count <= _FEW_WINDOWS and members.numel() * count <= budget:
                found = _compare_windows(table, sequences, (members, shortest, width), kernel_size)
                if members.numel() == rows.num_rows:
                    out, winner = found
                else:
                    out[members], winner[members] = found
                continue
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
        flat = grad.new_zeros(ctx.shape).view(-1)
        if not sequences.index.numel():
            return flat.view(ctx.shape), None
        ptr, length, grad = sequences.rows.ptr, sequences.rows.length(), grad.contiguous()
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
        return flat.view(ctx.shape), None


def _compare_windows(
    table: Tensor, sequences: Sequences, group: tuple[Tensor, int, int], kernel_size: int
) -> tuple[Tensor, Tensor]:
    """The largest windows of the rows of a group, and the winners; see :attr:`Rows.groups`."""
    ptr, (members, shortest, width) = sequences.rows.ptr, group
    count, taps = max(width - kernel_size + 1, 1), torch.arange(min(width, kernel_size), device=table.device)
    start, end = ptr[members], ptr[members + 1]
    order, counts = members, []
    if count > 1:  # those with most windows first, so that the rows that have a window stand together
        windows, order = (end - start - kernel_size + 1).clamp_(min=1).sort(descending=True, stable=True)
        start, end = start[order], end[order]
        counts = (windows > torch.arange(count, device=ptr.device)[:, None]).sum(1).tolist()
    entry, inside = start[:, None] + taps, None
    if shortest < kernel_size:
        # A row's own last entry counts zero times behind its end: zero times another row's NaN would be NaN.
        inside = (entry < end[:, None]).to(table.dtype)
        entry = torch.minimum(entry, end[:, None] - 1)
    bag = sequences.index[entry] * kernel_size + taps
    best = F.embedding_bag(bag, table, mode="sum", per_sample_weights=inside)
    winner = torch.zeros(best.shape, dtype=torch.int64, device=table.device)
    if count > 1:
        entry = torch.cat([start[:rows] + place for place, rows in enumerate(counts[1:], 1)])
        bag = sequences.index[entry[:, None] + taps] * kernel_size + taps
        later = F.embedding_bag(bag, table, mode="sum").split(counts[1:])
        for place, new in enumerate(later, 1):
            old = best[: new.size(0)]
            stays = (new <= old) | (old != old)  # NaN beats every number, and the first one stays
            winner[: new.size(0)].masked_fill_(stays.logical_not(), place)
            old.copy_(torch.where(stays, old, new))
        back = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=ptr.device))
        best, winner = best.index_select(0, back), winner.index_select(0, back)
    return best, winner

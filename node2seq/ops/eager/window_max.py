"""Equations 5 and 6 with the largest window: winners are kept instead of windows."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.sequences import Sequences, multiply

# Window sums of one block are read right after they are written: 2^14 rows of 64 floats stay in a CPU's L2.
_WINDOWS_PER_BLOCK = 2**14
# On a GPU launches rule instead; 2^20 rows of 64 floats are 256 MiB.
_WINDOWS_PER_BLOCK_GPU = 2**20


def convolve_max(x: Tensor, weight: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Equations 5 and 6 with the largest window per channel; see :func:`reference.convolve_max`."""
    kernel_size, channels = weight.size(-3), weight.size(-1)
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

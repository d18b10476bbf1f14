"""The largest values of each sequence, channel by channel, without a row for every pair of nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.sequences import Sequences

# Rows are sorted in blocks of at most this many padded values.
_VALUES_PER_BLOCK = 2**22


def largest(x: Tensor, sequences: Sequences, weight: Tensor, count: int) -> Tensor:
    """Each target's ``count`` largest weighted source values per channel, descending.

    What is not above zero counts as zero, and zeros fill up what is missing: to a dense matrix product,
    nodes that are no neighbours are zeros.

    Args:
        x (torch.Tensor): The features of the sources, [M, C].
        sequences (Sequences): The neighbours of each target.
        weight (torch.Tensor): The weight of each entry, [E]; no gradient passes to it.
        count (int): How many values to keep.

    Returns:
        torch.Tensor: The values, [N, count, C].
    """
    return _Largest.apply(x, sequences, weight, count)  # pyright: ignore[reportReturnType]


class _Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sequences: Sequences, weight: Tensor, count: int) -> Tensor:
        rows, channels = sequences.rows, x.size(-1)
        out = x.new_zeros(rows.num_rows, channels, count)
        entry = torch.zeros(out.shape, dtype=torch.int64, device=x.device)
        for members, _, width in rows.groups:
            kept = min(width, count)
            for block in members.split(max(_VALUES_PER_BLOCK // (width * channels), 1)):
                place = rows.ptr[block, None] + torch.arange(width, device=x.device)
                real = place < rows.ptr[block + 1, None]
                place = place.clamp_(max=rows.num_entries - 1)
                value = x[sequences.index[place]] * weight[place][:, :, None]  # [B, width, C]
                # Filled, not multiplied: what is lost in another row stays there.
                value.masked_fill_(~real[:, :, None], 0.0)
                # Among equals the smaller id wins, on every device: it is the first of the largest.
                value = value.clamp_(min=0).transpose(1, 2)
                value, order = (
                    value.max(2, keepdim=True) if kept == 1 else value.sort(descending=True, stable=True)
                )
                out[block, :, :kept] = value[:, :, :kept]
                places = place[:, None].expand(-1, channels, -1)
                entry[block, :, :kept] = places.gather(2, order[:, :, :kept])
        ctx.sequences = sequences
        ctx.save_for_backward(weight, entry, out > 0)
        return out.transpose(1, 2).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, entry, positive = ctx.saved_tensors
        channels = grad.size(-1)
        flat = grad.new_zeros(ctx.sequences.num_sources * channels)
        if not ctx.sequences.index.numel():
            return flat.view(-1, channels), None, None, None
        channel = torch.arange(channels, device=grad.device)[:, None]
        at = (ctx.sequences.index[entry] * channels + channel)[positive]
        value = (grad.transpose(1, 2) * weight[entry])[positive]
        if grad.is_cuda:  # sorts first, where scatter_add_ would race
            flat.index_put_((at,), value, accumulate=True)
        else:
            flat.scatter_add_(0, at, value)
        return flat.view(-1, channels), None, None, None

"""Equations 5 and 6 with the sum over windows: each tap's sum first, projected after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.eager.aggregate import bag_sum, split_bags, split_bags_once
from node2seq.ops.eager.few_windows import convolve_few, few_windows_of
from node2seq.ops.sequences import Rows, Sequences, multiply


def convolve_sum(x: Tensor, weight: Tensor, sequences: Sequences, *, is_mean: bool = False) -> Tensor:
    """Equations 5 and 6 with the sum over windows, or their mean; see :func:`reference.convolve_sum`."""
    kernel_size, channels = weight.size(-3), weight.size(-1)
    windows = few_windows_of(sequences, kernel_size)
    if windows is not None:
        return convolve_few(x, weight, sequences, windows, "mean" if is_mean else "sum")[0]
    summed = _WindowSum.apply(x, sequences, kernel_size)
    taps = weight.reshape(*weight.shape[:-3], kernel_size * x.size(-1), channels)
    out = multiply(summed.flatten(1), taps)  # pyright: ignore[reportAttributeAccessIssue]
    return out / sequences.rows.windows(kernel_size)[:, None] if is_mean else out


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
            taps = range(kernel_size - 1)
            head = _running_sums(x, sequences.index, start, reversed(taps))[::-1]
            tail = _running_sums(x, sequences.index, start + count, taps)
            for t in range(kernel_size):
                out[long, t] = core + head[t] + tail[t]
        if short.numel():
            start, end, count = (
                bound[:, None] for bound in (rows.ptr[short], rows.ptr[short + 1], windows[short])
            )
            first = torch.minimum(start + torch.arange(kernel_size, device=x.device), end)
            last = torch.minimum(first + count, end)
            sums = _range_sum(x, sequences.index, first.view(-1), last.view(-1))
            out[short] = sums.view(-1, kernel_size, x.size(-1))
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
        out = bag_sum(prefix, upper, split_bags_once(sequences, "sources", source_ptr))
        tail = position >= windows
        lower = (target * kernel_size + position - windows)[tail]
        before = torch.cat([tail.new_zeros(1, dtype=torch.int64), tail.cumsum(0)])
        return out.sub_(bag_sum(prefix, lower, split_bags(before[source_ptr]))), None, None


def _range_sum(x: Tensor, index: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """The sum of ``x[index[first:last]]`` for every pair of bounds."""
    ranges = Rows.from_lengths((last - first).clamp(min=0))
    return bag_sum(x, index[ranges.position() + first[ranges.target]], split_bags(ranges.ptr))


def _running_sums(x: Tensor, index: Tensor, start: Tensor, places: Iterable[int]) -> list[Tensor]:
    """The sum of no entry, of the first, of the first two … of those at ``start + t`` for t in ``places``."""
    sums = [x.new_zeros(start.numel(), x.size(-1))]
    for t in places:
        sums.append(sums[-1] + x[index[start + t]])
    return sums

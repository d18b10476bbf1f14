"""Equations 5 and 6 for short sequences on a CPU: all windows in one table, those of the same place together.

The longest rows come first, so that the rows which have a window at a place are the first ones, and
reading out is one operation for each place. Small arrays of whole numbers are NumPy's: its calls take half
the time of PyTorch's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.autograd_record import is_recorded
from node2seq.ops.sequences import Sequences, gradient_of_taps, lasting, multiply

# So many windows of 64 floats stay in a CPU's L2; and so many of a row are read out one after the other.
_MOST_WINDOWS = 2**14
_MOST_PLACES = 16
# Whole numbers of 16 bits are sorted by counting: 4,440 in 18 µs, those of 64 bits in 100.
_MOST_ROWS = 2**16


class FewWindows(NamedTuple):
    """The windows of a graph's sequences, whatever their order; kept with the graph."""

    counts: list[int]  # how many rows have a window at each place
    longer: list[int]  # how many rows have more than 0, 1, … entries
    entry: Any  # [K, W] the entry under each tap, an array; any where the sequence is too short
    order: Tensor  # [N] the rows, the longest first
    place: Tensor  # [N] where each row stands among them
    ptr: Tensor  # [W + 1] where the taps of each window begin
    number: Tensor  # [counts[1], 1] how many windows the longest rows have, float32; all others have one


def few_windows_of(sequences: Sequences, kernel_size: int) -> FewWindows | None:
    """The windows of short sequences, or nothing where there are too many for one table; found once."""
    graph, _ = sequences.origin or (sequences, None)  # no order changes them
    plan = f"eager windows of {kernel_size}"
    if plan not in graph.plans:
        with lasting():
            graph.plans[plan] = None if sequences.index.is_cuda else _find(sequences, kernel_size)
    return graph.plans[plan]


def _find(sequences: Sequences, kernel_size: int) -> FewWindows | None:
    rows, entries = sequences.rows.num_rows, sequences.rows.num_entries
    are_few = 0 < entries <= _MOST_WINDOWS + rows * (kernel_size - 1)
    if not are_few or (sequences.num_sources + 1) * kernel_size > _MOST_ROWS:
        return None
    ptr = sequences.rows.ptr.numpy()
    length = ptr[1:] - ptr[:-1]
    longer = (rows - np.bincount(length, minlength=kernel_size).cumsum()).tolist()
    counts = [rows, *longer[kernel_size:-1]]
    if len(counts) > _MOST_PLACES or sum(counts) > _MOST_WINDOWS:
        return None
    order = np.subtract(len(longer), length, dtype=np.uint16, casting="unsafe").argsort(kind="stable")
    start, first, end = ptr.take(order), np.empty(sum(counts), np.int64), 0
    for at, count in enumerate(counts):
        np.add(start[:count], at, out=first[end : end + count])
        end += count
    entry = first + np.arange(kernel_size)[:, None]
    place = np.empty_like(order)
    place[order] = np.arange(rows)
    begin = np.arange(0, entry.size + 1, kernel_size)
    several = counts[1] if len(counts) > 1 else 0
    number = (length.take(order[:several]) - (kernel_size - 1)).astype(np.float32)
    found = (order, place, begin, number.reshape(-1, 1))
    return FewWindows(counts, longer, entry, *map(torch.from_numpy, found))


def convolve_few(
    x: Tensor,
    weight: Tensor,
    sequences: Sequences,
    windows: FewWindows,
    readout: str,
    with_winner: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The readout over windows, [N, D], and of a maximum who won if that is asked for."""
    if is_recorded(x, weight):
        return _ConvolveFew.apply(x, weight, sequences, windows, readout, with_winner)  # pyright: ignore[reportReturnType]
    value, _, _ = _values(x, weight, sequences, windows)
    return _read_out(value, windows, readout, with_winner, with_winner)[:2]


class _ConvolveFew(torch.autograd.Function):
    """Keeps where a window is larger than those before it, in a byte each, and never the windows."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        sequences: Sequences,
        windows: FewWindows,
        readout: str,
        with_winner: bool,
    ) -> tuple[Tensor, Tensor | None]:
        value, taps, bag = _values(x, weight, sequences, windows)
        out, winner, is_larger = _read_out(value, windows, readout, readout == "max", with_winner)
        ctx.save_for_backward(x, taps, bag, *is_larger)
        ctx.windows, ctx.readout, ctx.shape = windows, readout, weight.shape
        if winner is not None:
            ctx.mark_non_differentiable(winner)
        ctx.set_materialize_grads(False)  # no zeros for the winners
        return out, winner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _grad_winner: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, taps, bag, *is_larger = ctx.saved_tensors
        by_window = _to_windows(grad, ctx.windows, is_larger, ctx.readout)
        table = _add_up(by_window, bag, x.size(0) * ctx.shape[-3])
        table = table.view(-1, taps.size(-1))  # the gradient of the projected rows, [M, K * D]
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = multiply(table, taps.mT)
        if ctx.needs_input_grad[1]:
            grad_weight = gradient_of_taps(x, table, ctx.shape)
        return grad_x, grad_weight, None, None, None, None


def _values(
    x: Tensor, weight: Tensor, sequences: Sequences, windows: FewWindows
) -> tuple[Tensor, Tensor, Tensor]:
    """What each window sums up to, [W, D]; the taps as one matrix; and the projected row under each tap."""
    (*runs, _, _, channels), sources = weight.shape, sequences.num_sources
    bag = torch.from_numpy(_rows_of(sequences, windows))
    taps = weight.transpose(-3, -2).flatten(-2)  # [C, K * D]: one product projects for every tap
    projected = x.new_empty(sources + 1, taps.size(-1))
    torch.matmul(x.view(*runs, -1, x.size(-1)), taps, out=projected[:-1].view(*runs, -1, taps.size(-1)))
    projected[-1].zero_()  # what lies behind the end of a sequence
    return _sum_bags(projected.view(-1, channels), bag, windows.ptr), taps, bag


def _rows_of(sequences: Sequences, windows: FewWindows) -> Any:
    """The projected row under each tap of each window, [W * K]; one of zeros behind the end of a sequence."""
    kernel_size = len(windows.entry)
    row = sequences.index.numpy().take(windows.entry, mode="clip")
    for tap in range(kernel_size):
        row[tap, windows.longer[tap] : windows.counts[0]] = sequences.num_sources
    row *= kernel_size
    out = np.empty((row.shape[1], kernel_size), np.int64)
    np.add(row, np.arange(kernel_size)[:, None], out=out.T)
    return out.reshape(-1)


def _sum_bags(table: Tensor, row: Tensor, ptr: Tensor) -> Tensor:
    """The sum over the rows of each bag, without what ``torch.nn.functional`` looks at before."""
    return torch.embedding_bag(table, row, ptr, False, 0, False, None, True, None)[0]


def _read_out(
    value: Tensor, windows: FewWindows, readout: str, compares: bool, with_winner: bool
) -> tuple[Tensor, Tensor | None, list[Tensor]]:
    """The readout; the winners; for each place but the first, where its window is larger than the others."""
    found: list[Tensor] = []
    has_nan = compares and bool(value.sum().isnan())
    combine, table = np.maximum if readout == "max" else np.add, value.numpy()
    end = rows = windows.counts[0]
    for count in windows.counts[1:]:
        old, new = table[:count], table[end : end + count]
        if compares:
            is_larger = new > old
            if has_nan:  # which beats every number, and the first one stays
                is_larger |= (new != new) & (old == old)
            found.append(torch.from_numpy(is_larger))
        combine(old, new, out=old)
        end += count
    best = value[:rows]
    if readout == "mean":
        best[: windows.number.size(0)].div_(windows.number)
    winner = None
    if with_winner:
        winner = torch.zeros(best.shape, dtype=torch.int64)
        for place, is_larger in enumerate(found, 1):
            winner[: is_larger.size(0)].masked_fill_(is_larger, place)
        winner = winner.index_select(0, windows.place)
    return best.index_select(0, windows.place), winner, found


def _to_windows(grad: Tensor, windows: FewWindows, is_larger: list[Tensor], readout: str) -> Tensor:
    """The gradient of each window, [W, D]: that of its row, or of a maximum that of the last larger one."""
    left = grad.index_select(0, windows.order)
    if readout == "mean":
        left[: windows.number.size(0)].div_(windows.number)
    if readout != "max":
        return torch.cat([left[:count] for count in windows.counts])
    parts = [left]
    # By products: 60 µs for 960 rows of 64, by masks 430. An infinite gradient is NaN at other windows.
    for larger in reversed(is_larger):
        own = left[: larger.size(0)]
        parts.insert(1, own * larger)
        own.sub_(parts[1])
    return torch.cat(parts)


def _add_up(windows: Tensor, bag: Tensor, rows: int) -> Tensor:
    """The sum over the windows that each of the projected rows is part of, [rows, D]."""
    row = bag.numpy()
    order, taps = np.argsort(row.astype(np.uint16), kind="stable"), row.size // windows.size(0)
    ptr = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=rows)[:rows], out=ptr[1:])
    window = torch.from_numpy(order[: ptr[-1]] // taps)  # without what is behind the end of a sequence
    return _sum_bags(windows, window, torch.from_numpy(ptr))

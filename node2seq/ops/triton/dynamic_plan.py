"""Rows that keep their lengths while their sources change at every step: no wait for the device."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from node2seq.ops.sequences import Layout, Sequences
from node2seq.ops.triton import plan
from node2seq.ops.triton.counting_sort import sort
from node2seq.ops.triton.launch import Repeated
from node2seq.ops.triton.partition import transpose
from node2seq.ops.triton.plan import GpuPlan, GpuTransposed, plan_of, reordered


class FixedWork:
    """What :class:`node2seq.ops.triton.plan.Work` is, for lengths that only the device knows.

    There are as many places as any lengths could need; those left over have nothing to do.

    Args:
        ptr (torch.Tensor): Where each row starts, and where the last one ends, int32, [N + 1].
        entries (int): Where the last one ends.
    """

    def __init__(self, ptr: Tensor, entries: int) -> None:
        self.ptr = ptr
        self.item = plan.ITEM
        self.launches: dict[Hashable, Repeated] = {}
        length = ptr.diff()
        last_row = max(length.numel() - 1, 0)
        self.hubs = entries // (self.item + 1)  # each is longer than an item
        self.parts = (entries + self.hubs * (self.item - 1)) // self.item
        count = torch.where(length > self.item, (length + self.item - 1) // self.item, 0)
        start = _starts(count)
        hub = torch.searchsorted(_starts(count > 0)[1:], _numbers(1, self.hubs + 2, ptr))  # [H + 1] or N
        self.part_ptr = start[hub]
        self.rows = hub[:-1].clamp_(max=last_row).int()

        part = _numbers(0, self.parts, ptr)
        row = torch.searchsorted(start[1:], part, right=True).clamp_(max=last_row)
        first = torch.where(part < start[-1], ptr[row] + (part - start[row]) * self.item, ptr[row + 1])
        # A hub has an item of its own as well, whose sum the sum of its parts takes the place of.
        self.item_row = torch.cat([row.int(), _numbers(0, length.numel(), ptr)])
        self.item_first = torch.cat([first, ptr[:-1]])
        self.items = self.item_row.numel()


class DynamicPlan(GpuPlan):
    """The plan of a graph's rows with other sources than its own.

    Args:
        base (GpuPlan): The graph's own plan.
        index (torch.Tensor): The source at each position, int32, [E].
    """

    def __init__(self, base: GpuPlan, index: Tensor) -> None:
        self.rows = base.rows
        self.num_sources = base.num_sources
        self.index = index
        self.work = base.work
        self.position = base.position

    @cached_property
    def transposed(self) -> GpuTransposed:
        """The rows by source: one sort per step, of fixed shape."""
        source, order = sort(self.index)
        ptr = torch.searchsorted(source, _numbers(0, self.num_sources + 1, source), out_int32=True)
        # It has all that backward passes ask of work.
        work: Any = FixedWork(ptr, self.index.numel())
        return GpuTransposed(work, *transpose(order, self.rows.target))


def dynamic_layout(base: GpuPlan, index: Tensor) -> Layout:
    """Sequences with the lengths of a graph's, and other sources in the order given."""
    return Layout(DynamicPlan(base, index), index, base.position)


def layout_of(sequences: Sequences | Layout) -> Layout:
    """Sequences of any origin as the kernels read them; those of a graph keep the graph's plan."""
    if isinstance(sequences, Layout):
        return sequences
    graph, order = sequences.origin or (sequences, None)
    base = plan_of(graph)
    if order is not None:
        return reordered(base, order)
    if graph is sequences:
        return Layout(base, base.index, base.position)
    return dynamic_layout(base, sequences.index.int())


def _starts(count: Tensor) -> Tensor:
    return torch.cat([count.new_zeros(1, dtype=torch.int32), count.cumsum(0, dtype=torch.int32)])


def _numbers(first: int, last: int, like: Tensor) -> Tensor:
    return torch.arange(first, last, dtype=torch.int32, device=like.device)

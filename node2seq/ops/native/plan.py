"""What the loops know of a graph: int32 rows, cuts of even work, the transposed graph. Built once."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import run
from node2seq.ops.ranking import Layout
from node2seq.ops.sequences import Sequences, lasting

# Ids and places are stored with 32 bits where they fit: half the memory traffic.
LARGEST_INT32 = 2**31 - 1
# Work is cut so that a part is worth handing over, and that there are enough parts to even out.
_ENTRIES_PER_PART = 2**13
_MOST_PARTS = 64


def cut_evenly(ptr: Tensor) -> list[int]:
    """Rows at which to cut, so that the parts hold about as many entries; a row counts as one more."""
    rows = ptr.numel() - 1
    parts = min((int(ptr[-1]) + rows) // _ENTRIES_PER_PART, _MOST_PARTS)
    if parts <= 1:
        return [0, rows]
    work = ptr + torch.arange(rows + 1)
    cuts = torch.searchsorted(work, work[-1] * torch.arange(1, parts) // parts)
    return [0, *cuts.unique_consecutive().tolist(), rows]


@dataclass
class CpuTransposed:
    """The graph by source: for each source node the sequences that it stands in."""

    ptr: np.ndarray  # [M + 1]
    target: np.ndarray  # [E] the row of each entry
    entry: np.ndarray  # [E] its place among the graph's own entries
    cuts: list[int]


class CpuPlan:
    """Everything static that the loops read of one graph.

    Args:
        sequences (Sequences): The graph's own sequences.
    """

    def __init__(self, sequences: Sequences) -> None:
        self.rows = sequences.rows
        self.num_sources = sequences.num_sources
        entries = self.rows.num_entries
        self.dtype = torch.int32 if max(entries, self.num_sources) <= LARGEST_INT32 else torch.int64
        self.ptr = self.rows.ptr.to(self.dtype).numpy()
        self.index = sequences.index.to(self.dtype)
        self.longest = int(self.rows.length().max()) if self.rows.num_rows else 0
        self.cuts = cut_evenly(self.rows.ptr)
        self.source_cuts = cut_evenly(torch.arange(self.num_sources + 1))

    @cached_property
    def transposed(self) -> CpuTransposed:
        """The graph by source, in the order of the entries; worked out by the first backward pass."""
        with lasting():
            ptr = torch.empty(self.num_sources + 1, dtype=self.dtype)
            target, entry = torch.empty_like(self.index), torch.empty_like(self.index)
            run(kernels.transpose, [0, 1], self.ptr, self.index, ptr, target, entry)
            return CpuTransposed(ptr.numpy(), target.numpy(), entry.numpy(), cut_evenly(ptr))

    def with_sources(self, index: Tensor) -> CpuPlan:
        """The plan of the same rows with other sources."""
        _ = self.position  # shared, so worked out once
        plan = copy.copy(self)
        vars(plan).pop("transposed", None)
        plan.index = index.to(self.dtype)
        return plan

    @cached_property
    def position(self) -> Tensor:
        """The place of each entry in its row as the graph has it, [E]."""
        with lasting():
            return self.rows.position().to(self.dtype)


def plan_of(sequences: Sequences) -> CpuPlan:
    """The plan of a graph, kept with its sequences."""
    if "native" not in sequences.plans:
        with lasting():
            sequences.plans["native"] = CpuPlan(sequences)
    return sequences.plans["native"]


def layout_of(sequences: Sequences | Layout) -> Layout:
    """Sequences of any origin as the loops read them; those of a graph keep the graph's plan."""
    if isinstance(sequences, Layout):
        return sequences
    graph, order = sequences.origin or (sequences, None)
    plan = plan_of(graph)
    if order is None:
        plan = plan if graph is sequences else plan.with_sources(sequences.index)
        return Layout(plan, plan.index, plan.position)
    place = torch.empty_like(plan.position)
    place[order] = plan.position
    return Layout(plan, plan.index[order], place)

"""A graph as the opaque ops of what is compiled take it: its edge index and a few numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq.ops.plan_cache import find_entries, find_sequences
from node2seq.ops.sequences import Sequences


class GraphNumbers(NamedTuple):
    """A graph in numbers, as ops take it next to its edge index."""

    is_forward: int  # whether edges go from the first row to the second
    num_sources: int
    num_targets: int
    add_self_loops: int
    merge_duplicates: int
    copies: int = 1

    def most_entries(self, edge_index: Tensor) -> int:
        """How many entries a copy has if no edge is dropped."""
        # Not the built-in one: traced, it would take note of which is smaller.
        loops: Any = torch.sym_min(self.num_sources, self.num_targets) if self.add_self_loops else 0
        return edge_index.size(1) + loops

    def find(self, edge_index: Tensor, backend: str = "auto") -> Sequences:
        """The sequences of one copy."""
        return find_sequences(edge_index, self._key(), lambda: self._edges(edge_index), backend)

    def find_entries(self, edge_index: Tensor, keep_loops: bool = False) -> Tensor:
        """The entry of each edge within one copy, [edges]."""
        return find_entries(edge_index, self._key(), lambda: self._edges(edge_index), keep_loops)

    def _key(self) -> tuple[str, int, int, bool, bool]:
        flow = "source_to_target" if self.is_forward else "target_to_source"
        choices = (bool(self.add_self_loops), bool(self.merge_duplicates))
        return (flow, self.num_sources, self.num_targets, *choices)

    def _edges(self, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        first, second = edge_index[0].long(), edge_index[1].long()
        return (first, second) if self.is_forward else (second, first)

    def pad(self, values: Tensor, edge_index: Tensor, fill: int = 0) -> Tensor:
        """A value for each entry, [..., E], as long as a traced graph has it; always a tensor of its own."""
        entries = self.most_entries(edge_index)
        padded = values.new_full((*values.shape[:-1], self.copies, entries), fill)
        kept = values.size(-1) // self.copies
        padded[..., :kept] = values.reshape(*values.shape[:-1], self.copies, kept)
        return padded.flatten(-2)

    def pad_starts(self, ptr: Tensor, edge_index: Tensor) -> Tensor:
        """Where rows start in what is padded; behind them, where the last one ends, or all of the copies."""
        if self.copies == 1:
            return ptr.clone()
        kept, entries = ptr[-1] // self.copies, self.most_entries(edge_index)
        copy = torch.arange(self.copies, device=ptr.device).repeat_interleave(self.num_targets)
        end = ptr.new_full((1,), self.copies * entries)
        return torch.cat([ptr[:-1] + copy * (entries - kept), end])

    def cut(self, values: Tensor, sequences: Sequences) -> Tensor:
        """The other way round."""
        entries = sequences.rows.num_entries // self.copies
        return values.unflatten(-1, (self.copies, -1))[..., :entries].flatten(-2)

    def pad_entries(self, entry: Tensor, edge_index: Tensor) -> Tensor:
        """Numbers of entries, or −1, as a traced graph numbers them: with what is left over in each copy."""
        kept = max(entry.numel() // self.copies, 1)
        number = entry // kept * self.most_entries(edge_index) + entry % kept
        return self.pad(torch.where(entry < 0, -1, number), edge_index, fill=-1)

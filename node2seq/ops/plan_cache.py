"""Plans of graphs: built once per edge index, and found again while it is unchanged."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq.ops.build_sequences import build_sequences
from node2seq.ops.edge_values import find_entry_of_edge
from node2seq.ops.sequences import Sequences
from node2seq.ops.tensor_table import TensorTable
from node2seq.ops.tracing import lasting


class _Plans(NamedTuple):
    """The plans of one version of an edge index."""

    version: int
    by_key: dict[Hashable, Any]


class PlanCache:
    """Plans by the identity and the version of the edge index that they were built from.

    A plan lives as long as its edge index. Writing to the edge index in place is noticed through the tensor's
    version counter; writes behind PyTorch's back (through ``.data`` or a NumPy view) cannot be.
    """

    def __init__(self) -> None:
        self._plans: TensorTable[_Plans] = TensorTable()
        self.built = 0

    def get(self, owner: Tensor, key: Hashable, build: Callable[[], Any]) -> Any:
        """The plan of ``owner`` under ``key``; built now if there is none or ``owner`` changed."""
        if owner.is_inference():  # carries no version: a change could not be noticed
            self.built += 1
            return build()
        plans = self._plans.get(owner)
        if plans is None or plans.version != owner._version:
            plans = _Plans(owner._version, {})
            self._plans.set(owner, plans)
        if key not in plans.by_key:
            with lasting():
                plans.by_key[key] = build()
            self.built += 1
        return plans.by_key[key]

    def clear(self) -> None:
        """Forgets every plan, as if all graphs were new."""
        for plans in self._plans.values():
            plans.by_key.clear()


PLANS = PlanCache()


def find_sequences(
    owner: Tensor,
    graph: tuple[str, int, int, bool, bool],
    edges: Callable[[], tuple[Tensor, Tensor]],
    backend: str = "auto",
) -> Sequences:
    """The sequences of a graph; built once and found again.

    Args:
        owner (torch.Tensor): What the graph is known by.
        graph (tuple): The flow, the number of sources and of targets, whether there are self entries and
            whether duplicates are merged.
        edges (callable): Gives the source and the target of each edge.
        backend (str): The user's choice of a backend.
    """
    _, num_sources, num_targets, add_self_loops, merge_duplicates = graph
    expect_backward = torch.is_grad_enabled()

    def build() -> Sequences:
        return build_sequences(
            *edges(),
            num_sources,
            num_targets,
            add_self_loops=add_self_loops,
            merge_duplicates=merge_duplicates,
            expect_backward=expect_backward,
            backend=backend,
        )

    return PLANS.get(owner, graph, build)


def find_entries(
    owner: Tensor, graph: tuple[str, int, int, bool, bool], edges: Callable[[], tuple[Tensor, Tensor]]
) -> Tensor:
    """The entry of each edge in the sequences of a graph with duplicates, [edges]; found once.

    The arguments are those of :func:`find_sequences`.
    """
    _, num_sources, num_targets, add_self_loops, _ = graph

    def find() -> Tensor:
        return find_entry_of_edge(*edges(), num_sources, num_targets, add_self_loops=add_self_loops)

    return PLANS.get(owner, ("entries", *graph), find)

"""The plan of a graph: its sequences, built once per edge index and found again while it is unchanged."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from node2seq.errors import Node2SeqError
from node2seq.ops.candidates import Candidates
from node2seq.ops.late import fused_kernels, loops_for
from node2seq.ops.sequences import Rows, Sequences, lasting

# Kernels number entries with 32 bits.
MOST_ENTRIES = 2**31 - 2**16


def is_tracing() -> bool:
    """Whether values cannot be looked at: while compiling, exporting or capturing a CUDA graph."""
    if torch.compiler.is_compiling():
        return True
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def is_exporting() -> bool:
    """Whether what is traced has to run without this package.

    PyTorch's function of that name is no help: up to 2.11 it says so whenever ``torch.compile`` asks.
    """
    return torch.compiler._is_exporting_flag


def check_ids(source: Tensor, target: Tensor, num_sources: int, num_targets: int) -> None:
    """Raises an error if a node id lies outside of its side's [0, count); waits for the device once."""
    if source.numel() == 0:
        return
    found = torch.stack([*torch.aminmax(source), *torch.aminmax(target)]).tolist()
    for side, count, lowest, highest in (
        ("source", num_sources, *found[:2]),
        ("target", num_targets, *found[2:]),
    ):
        if lowest < 0:
            raise Node2SeqError(
                f"edge_index holds the {side} id {lowest}",
                "node ids cannot be negative",
                f"Number the {count} {side} nodes from 0 to {count - 1}",
            )
        if highest >= count:
            raise Node2SeqError(
                f"edge_index holds the {side} id {highest}",
                f"there are only {count} {side} nodes, numbered from 0",
                "Remove that edge, or pass a feature row for every node (bipartite graphs: a tuple of two)",
            )


def build_sequences(
    source: Tensor,
    target: Tensor,
    num_sources: int,
    num_targets: int,
    *,
    add_self_loops: bool,
    merge_duplicates: bool,
    expect_backward: bool = False,
    backend: str = "auto",
) -> Sequences:
    """Sorts edges into sequences, sources ascending; a self entry counts once.

    Node ids are checked. While tracing they are not, and no shape depends on values: dropped edges go to a
    row behind the last and stay there.

    Args:
        source (torch.Tensor): The source of each edge, [E].
        target (torch.Tensor): Its target, [E].
        num_sources (int): The number of source nodes M.
        num_targets (int): The number of target nodes N.
        add_self_loops (bool): Whether each node is its own source.
        merge_duplicates (bool): Whether an edge that is listed twice counts once.
        expect_backward (bool): Whether what a backward pass reads is built at once, where that is cheaper.
        backend (str): The user's choice; kernels are left alone by those who chose to do without.
    """
    source, target = source.long(), target.long()
    fuses = source.is_cuda and backend in ("auto", "triton") and not is_tracing()
    kernels = fused_kernels() if fuses else None
    if kernels is not None and source.numel() + num_targets < MOST_ENTRIES:
        built = kernels.build(
            source,
            target,
            num_sources,
            num_targets,
            add_self_loops=add_self_loops,
            merge_duplicates=merge_duplicates,
            expect_backward=expect_backward,
        )
        if built is not None:
            return built
    if not is_tracing():
        check_ids(source, target, num_sources, num_targets)
    span = max(num_sources, 1)
    dropped = num_targets * span
    key = target * span + source
    if add_self_loops:
        if not merge_duplicates:
            key = torch.where(source == target, dropped, key)
        loops = torch.arange(min(num_sources, num_targets), device=source.device)
        key = torch.cat([key, loops * span + loops])
    key = _ascending(key, dropped + 1)
    if is_tracing():
        if merge_duplicates:
            place = torch.arange(key.numel(), device=key.device)
            repeated = (key == key[(place - 1).clamp(min=0)]) & (place > 0)
            key = torch.where(repeated, dropped, key).sort().values
        target = key // span
        length = key.new_zeros(num_targets + 1).scatter_add(0, target, torch.ones_like(target))
        ptr = torch.cat([key.new_zeros(1), length[:num_targets].cumsum(0)])
    else:
        if merge_duplicates:
            key = key.unique_consecutive()
        elif add_self_loops:
            key = key[: int(torch.searchsorted(key, dropped))]
        target = key // span
        ptr = torch.searchsorted(key, torch.arange(0, dropped + span, span, device=key.device))
    index = key - target * span  # ONNX has no remainder by a size
    return Sequences(Rows(ptr, target), index, num_sources)


def _ascending(key: Tensor, end: int) -> Tensor:
    """Whole numbers from 0 to ``end - 1`` in their order."""
    on_cpu = key.device.type == "cpu" and not is_tracing()
    loops = loops_for(key.numel()) if on_cpu else None
    return key.sort().values if loops is None else loops.sort_numbers(key, end)


class PlanCache:
    """Plans by the identity and the version of the edge index that they were built from.

    A plan lives as long as its edge index. Writing to the edge index in place is noticed through the tensor's
    version counter; writes behind PyTorch's back (through ``.data`` or a NumPy view) cannot be.
    """

    def __init__(self) -> None:
        self._plans: dict[int, tuple[int, dict[Hashable, Any]]] = {}
        self.built = 0

    def get(self, owner: Tensor, key: Hashable, build: Callable[[], Any]) -> Any:
        """The plan of ``owner`` under ``key``; built now if there is none or ``owner`` changed."""
        if owner.is_inference():  # carries no version: a change could not be noticed
            self.built += 1
            return build()
        version, plans = self._plans.get(id(owner), (None, {}))
        if version != owner._version:
            if version is None:
                weakref.finalize(owner, self._plans.pop, id(owner), None)
            plans = {}
            self._plans[id(owner)] = (owner._version, plans)
        if key not in plans:
            with lasting():
                plans[key] = build()
            self.built += 1
        return plans[key]

    def clear(self) -> None:
        """Forgets every plan, as if all graphs were new."""
        for version_and_plans in self._plans.values():
            version_and_plans[1].clear()


PLANS = PlanCache()


def find_sequences(
    owner: Tensor,
    graph: tuple[str, int, int, bool, bool],
    edges: Callable[[], tuple[Tensor, Tensor]],
    hops: int = 1,
    backend: str = "auto",
) -> tuple[Sequences, Candidates | None]:
    """The sequences of a graph, and who lies within several hops; both built once and found again.

    Args:
        owner (torch.Tensor): What the graph is known by.
        graph (tuple): The flow, the number of sources and of targets, whether there are self entries and
            whether duplicates are merged.
        edges (callable): Gives the source and the target of each edge.
        hops (int): How far away neighbours may be.
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

    sequences = PLANS.get(owner, graph, build)
    if hops == 1:
        return sequences, None
    return sequences, PLANS.get(owner, (*graph, hops), lambda: Candidates(sequences, hops))

"""Edges → the sequences of a graph: each target's sources, ascending."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from node2seq.errors import Node2SeqError
from node2seq.ops.dispatch import compiled_loops, fused_kernels, is_tracing
from node2seq.ops.sequences import MOST_ENTRIES, Rows, Sequences


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
        backend (str): The user's choice; loops and kernels are left alone by those who chose others.
    """
    source, target = source.long(), target.long()
    choices = {"add_self_loops": add_self_loops, "merge_duplicates": merge_duplicates}
    builder = None if is_tracing() else _builder(source, num_targets, backend)
    if builder is not None:
        built = builder.build(
            source, target, num_sources, num_targets, **choices, expect_backward=expect_backward
        )
        if built is not None:  # otherwise an id does not exist, which is reported below
            return built
    if not is_tracing():
        check_ids(source, target, num_sources, num_targets)
    # Numbers that sort by target, then source; those of dropped edges come last.
    span = max(num_sources, 1)
    dropped = num_targets * span
    key = target * span + source
    if add_self_loops:
        if not merge_duplicates:
            key = torch.where(source == target, dropped, key)
        loops = torch.arange(min(num_sources, num_targets), device=source.device)
        key = torch.cat([key, loops * span + loops])
    key = key.sort().values
    if is_tracing():
        key, ptr = _rows_of_fixed_size(key, span, num_targets, merge_duplicates)
    else:
        if merge_duplicates:
            key = key.unique_consecutive()
        elif add_self_loops:
            key = key[: int(torch.searchsorted(key, dropped))]
        ptr = torch.searchsorted(key, torch.arange(0, dropped + span, span, device=key.device))
    target = key // span
    index = key - target * span  # ONNX has no remainder by a size
    return Sequences(Rows(ptr, target), index, num_sources)


def _rows_of_fixed_size(
    key: Tensor, span: int, num_targets: int, merge_duplicates: bool
) -> tuple[Tensor, Tensor]:
    """The numbers with duplicates behind all others, and where each row starts, while tracing."""
    if merge_duplicates:
        place = torch.arange(key.numel(), device=key.device)
        repeated = (key == key[(place - 1).clamp(min=0)]) & (place > 0)
        key = torch.where(repeated, num_targets * span, key).sort().values
    target = key // span
    length = key.new_zeros(num_targets + 1).scatter_add(0, target, torch.ones_like(target))
    return key, torch.cat([key.new_zeros(1), length[:num_targets].cumsum(0)])


def _builder(source: Tensor, num_targets: int, backend: str) -> ModuleType | None:
    """The backend that sorts such edges in a pass of its own, if there is one."""
    if source.is_cuda and backend in ("auto", "triton"):
        return fused_kernels() if source.numel() + num_targets < MOST_ENTRIES else None
    return compiled_loops() if source.device.type == "cpu" and backend in ("auto", "native") else None

"""Edges → the sequences of a graph, built once per edge index and found again while it is unchanged."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]

from node2seq.errors import Node2SeqError
from node2seq.ops import eager
from node2seq.ops.dispatch import compiled_loops, fused_kernels, is_tracing
from node2seq.ops.edge_values import find_entry_of_edge
from node2seq.ops.sequences import MOST_ENTRIES, Rows, Sequences, lasting

Value = TypeVar("Value")
# Where a tensor's values lie: its memory, the place in there, and its form.
Place = tuple[int, int | torch.SymInt, torch.Size, tuple[int, ...]]


class _Kept(NamedTuple):
    value: Any
    place: Place | None  # of a tensor that is watched by its memory


class TensorTable(Generic[Value]):
    """Values by the identity of tensors.

    A tensor with memory of its own is watched by that memory: :func:`torch.utils.swap_tensors` refuses a
    tensor that anyone holds a weak reference to. What it swaps counts as new. Views, tensors that share
    their memory and sparse tensors are watched by a weak reference.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, owner: Tensor) -> Value | None:
        """What is kept for ``owner``, if anything is."""
        kept = self._kept.get(id(owner))
        if kept is None or (kept.place is not None and kept.place != _place(owner)):
            return None
        return kept.value

    def set(self, owner: Tensor, value: Value) -> None:
        """Keeps a value for ``owner``, in the place of what was kept for it."""
        kept = self._kept.get(id(owner))
        if kept is not None and (kept.place is None or kept.place == _place(owner)):  # watched already
            self._kept[id(owner)] = kept._replace(value=value)
            return
        place = _place(owner) if _has_own_memory(owner) else None
        watched = owner if place is None else owner.untyped_storage()
        self._kept[id(owner)] = _Kept(value, place)
        weakref.finalize(watched, self._forget, id(owner), place)

    def values(self) -> list[Value]:
        """Everything that is kept."""
        return [kept.value for kept in self._kept.values()]

    def _forget(self, number: int, place: Place | None) -> None:
        kept = self._kept.get(number)
        if kept is not None and kept.place == place:  # not what another tensor of that number has kept since
            del self._kept[number]


def _place(owner: Tensor) -> Place:
    return owner.untyped_storage()._cdata, owner.storage_offset(), owner.shape, owner.stride()


def _uses(owner: Tensor) -> int:
    """How many tensors use the same memory, and a number that is the same for all."""
    return torch._C._storage_Use_Count(owner.untyped_storage()._cdata)  # pyright: ignore[reportAttributeAccessIssue]


_USES_OF_ONE = _uses(torch.empty(1))


def _has_own_memory(owner: Tensor) -> bool:
    is_dense = owner.layout == torch.strided and not owner._is_view()
    return is_dense and _uses(owner) == _USES_OF_ONE


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
    if _functorch.is_functorch_wrapped_tensor(owner):
        raise Node2SeqError(
            "edge_index within torch.func",
            "a graph is neither differentiated nor batched",
            "Close over it, or pass it with in_dims=None or outside of argnums",
        )
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
    owner: Tensor,
    graph: tuple[str, int, int, bool, bool],
    edges: Callable[[], tuple[Tensor, Tensor]],
    keep_loops: bool = False,
) -> Tensor:
    """The entry of each edge in the sequences of a graph with duplicates, [edges]; found once.

    The arguments are those of :func:`find_sequences` and
    :func:`node2seq.ops.edge_values.find_entry_of_edge`.
    """
    _, num_sources, num_targets, add_self_loops, _ = graph
    choices = {"add_self_loops": add_self_loops, "keep_loops": keep_loops}

    def find() -> Tensor:
        return find_entry_of_edge(*edges(), num_sources, num_targets, **choices)

    return PLANS.get(owner, ("entries", keep_loops, *graph), find)


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
        if built is not None:  # otherwise an id does not exist, or the graph is none for this builder
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
        target = key // span
    else:
        if merge_duplicates:
            key = key.unique_consecutive()
        elif add_self_loops:
            key = key[: int(torch.searchsorted(key, dropped))]
        target = key // span
        ptr = torch._convert_indices_from_coo_to_csr(target, num_targets)  # pyright: ignore[reportPrivateImportUsage]
    index = key - target * span  # ONNX has no remainder by a size
    return Sequences(Rows(ptr, target, has_leftovers=is_tracing()), index, num_sources)


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
    if source.device.type != "cpu" or backend == "reference":
        return None
    return (compiled_loops() if backend in ("auto", "native") else None) or eager

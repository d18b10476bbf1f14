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
    watch: weakref.ref  # forgets the value as soon as what is watched is gone


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
        watched, number = owner if place is None else owner.untyped_storage(), id(owner)
        watch = weakref.ref(watched, lambda _: self._forget(number, place))
        self._kept[number] = _Kept(value, place, watch)

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


Edges = Callable[[], tuple[Tensor, Tensor]]


class GraphNumbers(NamedTuple):
    """A graph in a few numbers next to its edge index: what its plan is kept by, and what opaque ops take."""

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

    def find(self, edge_index: Tensor, backend: str = "auto", edges: Edges | None = None) -> Sequences:
        """The sequences of one copy; built once and found again.

        Args:
            edge_index (torch.Tensor): What the graph is known by.
            backend (str): The user's choice of a backend.
            edges (callable, optional): Gives the source and the target of each edge, where these are not the
                rows of ``edge_index``.
        """
        if _functorch.is_functorch_wrapped_tensor(edge_index):
            raise Node2SeqError(
                "edge_index within torch.func",
                "a graph is neither differentiated nor batched",
                "Close over it, or pass it with in_dims=None or outside of argnums",
            )
        expect_backward = torch.is_grad_enabled()

        def build() -> Sequences:
            return self.build(*(edges or self._edges(edge_index))(), expect_backward, backend)

        return PLANS.get(edge_index, self[:-1], build)

    def build(
        self, source: Tensor, target: Tensor, expect_backward: bool = False, backend: str = "auto"
    ) -> Sequences:
        """The sequences of one copy, built now."""
        return build_sequences(
            source,
            target,
            self.num_sources,
            self.num_targets,
            add_self_loops=bool(self.add_self_loops),
            merge_duplicates=bool(self.merge_duplicates),
            expect_backward=expect_backward,
            backend=backend,
        )

    def find_entries(
        self, edge_index: Tensor, keep_loops: bool = False, edges: Edges | None = None
    ) -> Tensor:
        """The entry of each edge within one copy with duplicates, [edges]; found once.

        See :func:`node2seq.ops.edge_values.find_entry_of_edge`.
        """

        def find() -> Tensor:
            source, target = (edges or self._edges(edge_index))()
            choices = {"add_self_loops": bool(self.add_self_loops), "keep_loops": keep_loops}
            return find_entry_of_edge(source, target, self.num_sources, self.num_targets, **choices)

        return PLANS.get(edge_index, ("entries", keep_loops, *self[:-1]), find)

    def _edges(self, edge_index: Tensor) -> Edges:
        first, second = (0, 1) if self.is_forward else (1, 0)
        return lambda: (edge_index[first].long(), edge_index[second].long())

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

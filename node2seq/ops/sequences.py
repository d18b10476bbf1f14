"""Ragged sequences: each target's neighbours one after the other, as ``ptr`` + ``index``, and their order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

# Kernels number entries with 32 bits.
MOST_ENTRIES = 2**31 - 2**16
# Rows are sorted and searched in groups of similar length, each padded to the group's width. Two widths per
# power of two keep the padding under a fifth of the entries on a power-law graph; one width costs a third.
_WIDTH_STEPS = (1.0, 1.5)
# A graph of so few entries, padding included, is one group: each group costs the time of some twenty calls.
_FEW_ENTRIES = 2**15


class Rows:
    """The shape of ragged sequences, whatever they hold.

    Args:
        ptr (torch.Tensor): Where each row starts, and where the last one ends, :obj:`[N + 1]`.
        target (torch.Tensor): The row of each entry, :obj:`[E]`. Entries behind the last row's end are left
            over from duplicate edges in traced graphs, where no shape depends on values; their target is N.
        has_leftovers (bool): Whether there may be such. (default: :obj:`False`)
    """

    def __init__(self, ptr: Tensor, target: Tensor, has_leftovers: bool = False) -> None:
        self.ptr = ptr
        self.target = target
        self.has_leftovers = has_leftovers
        self.num_rows = ptr.numel() - 1
        self.num_entries = target.numel()
        self._windows: dict[int, Tensor] = {}

    @classmethod
    def from_lengths(cls, length: Tensor) -> Rows:
        """Rows of the given lengths."""
        ptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
        target = torch.repeat_interleave(torch.arange(length.numel(), device=length.device), length)
        return cls(ptr, target)

    def length(self) -> Tensor:
        """The number of entries of each row, :obj:`[N]`."""
        return self.ptr[1:] - self.ptr[:-1]

    def windows(self, kernel_size: int) -> Tensor:
        """The number of windows of each row, :obj:`[N]`; worked out once per kernel size."""
        if kernel_size not in self._windows:
            with lasting():
                self._windows[kernel_size] = (self.length() - kernel_size + 1).clamp(min=1)
        return self._windows[kernel_size]

    def position(self) -> Tensor:
        """The place of each entry within its row, :obj:`[E]`."""
        return torch.arange(self.num_entries, device=self.ptr.device) - self.ptr[self.target]

    @cached_property
    def groups(self) -> list[tuple[Tensor, int, int]]:
        """Rows of similar length: ``(rows, shortest, width)`` with every length from shortest to width."""
        length = self.length()
        longest = int(length.max()) if length.numel() else 0
        if longest and length.numel() * longest <= _FEW_ENTRIES:
            rows = length.nonzero().view(-1)
            return [(rows, int(length[rows].min()), longest)]
        widths = [1, 2]
        while widths[-1] < longest:
            power = 2 ** (len(widths) // 2)
            widths.append(int(power * _WIDTH_STEPS[1]) if len(widths) % 2 == 0 else 2 * power)
        group = torch.bucketize(length, torch.tensor(widths, device=length.device))
        group = torch.where(length == 0, len(widths), group)
        order = group.argsort(stable=True)
        sizes = torch.bincount(group, minlength=len(widths) + 1).tolist()
        shortest = [1] + [width + 1 for width in widths[:-1]]
        by_group = zip(order.split(sizes)[:-1], shortest, widths, strict=True)
        return [group for group in by_group if group[0].numel()]


class Sequences:
    """Ragged sequences of source nodes, one for each target node.

    Args:
        rows (Rows): Their shape.
        index (torch.Tensor): The source node of each entry, :obj:`[E]`.
        num_sources (int): The number of source nodes M.
        origin (tuple, optional): The graph's own sequences, and the order in which these have their entries;
            no order if they have the lengths alone in common.
    """

    def __init__(
        self,
        rows: Rows,
        index: Tensor,
        num_sources: int,
        origin: tuple[Sequences, Tensor | None] | None = None,
    ) -> None:
        self.rows = rows
        self.index = index
        self.num_sources = num_sources
        self.origin = origin
        self.plans: dict[str, Any] = {}  # what a backend keeps with the graph, by its name
        # Who lies within several hops, by their number and how many are drawn.
        self.candidates: dict[tuple[int, int | None], Any] = {}
        self._gcn_weights: dict[torch.dtype, Tensor] = {}
        self._copies: dict[int, Sequences] = {}
        self._positions: Sequences | None = None

    def reorder(self, order: Tensor) -> Sequences:
        """The same entries in another order within their rows: position e holds the entry ``order[e]``."""
        return Sequences(self.rows, self.index.index_select(0, order), self.num_sources, origin=(self, order))

    def with_sources(self, index: Tensor) -> Sequences:
        """Sequences of the same lengths with other sources."""
        return Sequences(self.rows, index, self.num_sources, origin=(self, None))

    @property
    def positions(self) -> Sequences:
        """Sequences of the same lengths in which each position is a source of its own; built once."""
        if self._positions is None:
            with lasting():
                numbers = torch.arange(self.index.numel(), device=self.index.device)
            self._positions = Sequences(self.rows, numbers, numbers.numel())
        return self._positions

    def copies(self, count: int) -> Sequences:
        """The disjoint union of that many copies of the graph, one behind the other; built once."""
        if count == 1:
            return self
        rows = self.rows
        if rows.has_leftovers:
            return self._copies_with_leftovers(count)
        if count not in self._copies:
            with lasting():
                number = torch.arange(count, device=self.index.device)[:, None]
                starts = (rows.ptr[:-1] + number * rows.num_entries).view(-1)
                ptr = torch.cat([starts, rows.ptr[-1:] * count])
                target = (rows.target + number * rows.num_rows).view(-1)
                index = (self.index + number * self.num_sources).view(-1)
            self._copies[count] = Sequences(Rows(ptr, target), index, self.num_sources * count)
        return self._copies[count]

    def _copies_with_leftovers(self, count: int) -> Sequences:
        """The same with entries that are left over, which lie behind those of all copies."""
        rows = self.rows
        number = torch.arange(count, device=self.index.device)[:, None]
        entry, kept = torch.arange(rows.num_entries, device=self.index.device), rows.ptr[-1]
        behind = count * kept + number * (rows.num_entries - kept) - kept
        is_kept = rows.target < rows.num_rows
        at = (torch.where(is_kept, number * kept, behind) + entry).view(-1)
        target = torch.where(is_kept, rows.target + number * rows.num_rows, count * rows.num_rows).view(-1)
        index = (self.index + number * self.num_sources).view(-1)
        target, index = (torch.zeros_like(at).scatter(0, at, values) for values in (target, index))
        ptr = torch.cat([(rows.ptr[:-1] + number * kept).view(-1), count * rows.ptr[-1:]])
        return Sequences(Rows(ptr, target, has_leftovers=True), index, self.num_sources * count)

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor]:
        """The entries of each source node: ``(ptr [M + 1], entries [E])``.

        Reordering moves entries but leaves each with its source, so the sort is done once per graph.
        """
        original, order = self.origin or (self, None)
        if order is not None:
            source_ptr, entries = original.transposed
            return source_ptr, inverse(order)[entries]
        entries = self.index.argsort(stable=True)
        length = torch.bincount(self.index, minlength=self.num_sources)
        return torch.cat([length.new_zeros(1), length.cumsum(0)]), entries

    def gcn_weights(self, dtype: torch.dtype) -> Tensor:
        """The weight 1 / sqrt(k_i k_j) of each entry of a square graph, [E]; worked out once."""
        if dtype not in self._gcn_weights:
            with lasting():
                scale = self.rows.length().to(dtype).pow(-0.5)
                # Behind the last node: the row of traced leftovers, which count for nothing.
                scale = torch.cat([scale.masked_fill(scale.isinf(), 0.0), scale.new_zeros(1)])
                self._gcn_weights[dtype] = scale[self.rows.target] * scale[self.index]
        return self._gcn_weights[dtype]

    def has_as_gcn_weights(self, weight: Tensor) -> bool:
        """Whether these are the entries' own, which do not change."""
        return self._gcn_weights.get(weight.dtype) is weight

    @cached_property
    def pattern(self) -> Tensor:
        """The entries as the pattern of a sparse matrix, [N, M], for sampled products."""
        zeros = torch.zeros(self.index.numel(), device=self.index.device)
        _warn_of_sparse_rows()
        size = (self.rows.num_rows, self.num_sources)
        return torch.sparse_csr_tensor(self.rows.ptr, self.index, zeros, size, check_invariants=False)


@cache
def _warn_of_sparse_rows() -> None:
    """Makes PyTorch emit its warnings about them, which it does once per process, and drops them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _ = torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """Rows times one weight matrix, or, for R runs as one disjoint union, each run's rows times its own."""
    if weight.dim() == 2:
        return x.mm(weight)
    runs = weight.size(0)
    return (x.view(runs, -1, x.size(-1)) @ weight).view(-1, weight.size(-1))


def product_of_runs(first: Tensor, second: Tensor, runs: Sequence[int]) -> Tensor:
    """The first transposed times the second; with runs, as one disjoint union, each run's times its own."""
    if not runs:
        return first.t().mm(second)
    return first.reshape(*runs, -1, first.size(-1)).mT @ second.reshape(*runs, -1, second.size(-1))


def gradient_of_taps(x: Tensor, grad: Tensor, shape: torch.Size) -> Tensor:
    """The gradient of taps, [K, C, D] or [R, K, C, D], by those of the rows times all taps, [M, K * D]."""
    *runs, taps, _, _ = shape
    own = x.view(*runs, -1, x.size(-1)).mT
    return (own @ grad.view(*runs, -1, grad.size(-1))).unflatten(-1, (taps, -1)).transpose(-3, -2)


def inverse(permutation: Tensor) -> Tensor:
    """Where each number stands in a permutation of 0, 1, …"""
    place = torch.empty_like(permutation)
    place[permutation] = torch.arange(permutation.numel(), device=permutation.device)
    return place


def lasting() -> AbstractContextManager[object]:
    """For what is kept with a graph, or in a module.

    Worked out in inference mode, it has to serve backward passes later; worked out within a transform of
    ``torch.func``, it has to outlive the transform.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    is_transformed = _functorch.peek_interpreter_stack() is not None
    return _outside_transforms() if is_transformed else torch.inference_mode(False)


@contextmanager
def _outside_transforms() -> Iterator[None]:
    with torch.inference_mode(False), temporarily_clear_interpreter_stack():
        yield


class Positions(NamedTuple):
    """What stands at each position of the ranked sequences, all [E]."""

    node: Tensor
    """The source node."""
    score: Tensor
    """Its score."""
    entry: Tensor
    """Its entry among the graph's own, or −1 for a non-local node."""

    def reorder(self, order: Tensor) -> Positions:
        """The same in another order within the rows: position e holds what stands at ``order[e]``."""
        return Positions(*(values[order] for values in self))


@dataclass
class Layout:
    """Sequences as compiled loops and kernels read them."""

    plan: Any  # what the backend keeps with the graph; it has ``rows``
    index: Tensor  # [E] the source at each position
    place: Tensor  # [E] the position of each of the graph's own entries in its sequence

    @property
    def rows(self) -> Rows:
        """The shape of the sequences."""
        return self.plan.rows

    def order(self) -> Tensor:
        """The entry at each position, [E], int64."""
        rows = self.rows
        order = torch.empty(rows.num_entries, dtype=torch.int64, device=self.place.device)
        order[rows.ptr[rows.target] + self.place] = torch.arange(rows.num_entries, device=order.device)
        return order


class Root(NamedTuple):
    """What is added for each node's own features: equation 7."""

    weight: Tensor  # [D, C], or those of R runs, [R, D, C]
    bias: Tensor | None  # [D] or [R, D]


class Convolution(NamedTuple):
    """What follows a ranking. A backend may do a part of it while it has the neighbours' rows at hand."""

    kernel_size: int
    readout: str
    with_root: bool = False  # whether the own features are added in the same step
    dtype: torch.dtype = torch.float32  # of what is multiplied and gathered, where a backend can choose


@dataclass
class Ranking:
    """The order of each target's sources.

    It holds what the convolutions of its backend read. What stands at each position is worked out when a
    trace or an explainer asks for it.
    """

    sequences: (
        Sequences  # the graph's own, whose lengths these have; the disjoint union of R copies for R runs
    )
    layout: Any  # the sources in their order, in the form that the backend's convolutions read
    find: Callable[[], Positions]
    backend: Any = None
    _positions: Positions | None = None

    @classmethod
    def given(cls, sequences: Sequences, backend: Any) -> Ranking:
        """Sequences that stand in their order already."""

        def unknown() -> Positions:
            raise AssertionError("an order that is given has no scores")

        return cls(sequences, sequences, unknown, backend)

    @property
    def positions(self) -> Positions:
        """The node, the score and the entry at each position."""
        if self._positions is None:
            self._positions = self.find()
        return self._positions

    @property
    def node(self) -> Tensor:
        """The source node at each position, [E]."""
        return self.positions.node

    @property
    def score(self) -> Tensor:
        """Its score, [E]."""
        return self.positions.score

    @property
    def entry(self) -> Tensor:
        """Its entry among the graph's own, or −1 for a non-local node, [E]."""
        return self.positions.entry

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.positions)


def rank_parallel(backend: Any, score: Tensor, precedence: Tensor, sequences: Sequences) -> Tensor:
    """The order of entries among which are parallel edges: where these tie, they stay as they stand.

    Args:
        backend: What holds the ``rank`` to use, which sorts what is distinct.
        score (torch.Tensor): The score of each entry, [E].
        precedence (torch.Tensor): Who goes first where scores tie, for each entry, [E].
        sequences (Sequences): Their rows.
    """
    return backend.rank(score, inverse(precedence.argsort(stable=True)), sequences.positions)

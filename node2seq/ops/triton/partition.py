"""How rows become work: by length, long ones cut into parts; few launches, and no wait before the end."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.triton.launch import cdiv, launch

# Rows are grouped by length: so many groups, whose sizes are those asked for and then powers of two.
GROUPS = 16
_ROWS = 256  # that a program groups
_BLOCK = 1024


@triton.jit
def grouped(ptr, sizes, N, ITEM: tl.constexpr, CHUNK: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr):
    """Some rows: where each starts, the group that it is in, [B, G], its parts and its chunks."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.load(ptr + row, mask=row < N, other=0)
    length = tl.load(ptr + row + 1, mask=row < N, other=0) - start
    size = tl.load(sizes + tl.arange(0, GROUPS))
    # Longest first: group 0 is longer than all sizes but the last, which none is longer than.
    group = GROUPS - 1 - tl.sum((length[:, None] > size[None, :]).to(tl.int32), axis=1)
    member = (group[:, None] == tl.arange(0, GROUPS)[None, :]) & (row < N)[:, None]
    parts = tl.where(length > ITEM, (length + ITEM - 1) // ITEM, 0)
    chunks = tl.where(length > CHUNK, (length + CHUNK - 1) // CHUNK, 0)
    return row, start, member.to(tl.int32), parts, chunks


@triton.jit(do_not_specialize=["N", "programs"])
def count_rows_kernel(
    ptr,  # [N + 1]
    sizes,  # [G]
    counts,  # [3, G, programs] rows, parts and chunks
    N,
    programs,
    ITEM: tl.constexpr,
    CHUNK: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Some rows: how many there are of each group, and how many parts and chunks they have."""
    _, _, member, parts, chunks = grouped(ptr, sizes, N, ITEM, CHUNK, GROUPS, ROWS)
    at = counts + tl.arange(0, GROUPS) * programs + tl.program_id(0)
    tl.store(at, tl.sum(member, axis=0))
    tl.store(at + GROUPS * programs, tl.sum(member * parts[:, None], axis=0))
    tl.store(at + 2 * GROUPS * programs, tl.sum(member * chunks[:, None], axis=0))


@triton.jit
def places_among(ends, first, member, count, programs, GROUPS: tl.constexpr):
    """Where what each row counts for starts, by group, then by row; ``first``: where the counts start."""
    at = first + tl.arange(0, GROUPS) * programs + tl.program_id(0)
    before = tl.load(ends + at - 1, mask=at > 0, other=0)
    if first > 0:  # the ends go on from one count to the next
        before -= tl.load(ends + first - 1)
    counted = member * count[:, None]
    return tl.sum(member * (before[None, :] + tl.cumsum(counted, axis=0) - counted), axis=1)


@triton.jit(do_not_specialize=["N", "programs"])
def place_rows_kernel(
    ptr,  # [N + 1]
    sizes,  # [G]
    ends,  # [3 * G * programs] the counts, added up
    rows,  # [N]
    item_row,  # [I] or more
    item_first,  # [I] or more
    part_ptr,  # [H + 1] or more
    chunk_ptr,
    N,
    programs,
    ITEM: tl.constexpr,
    CHUNK: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Some rows: their places, their items if they are not cut, and where their parts end if they are."""
    row, start, member, parts, chunks = grouped(ptr, sizes, N, ITEM, CHUNK, GROUPS, ROWS)
    span = GROUPS * programs
    place = places_among(ends, 0, member, tl.full([ROWS], 1, tl.int32), programs, GROUPS)
    tl.store(rows + place, row, mask=row < N)
    part = places_among(ends, span, member, parts, programs, GROUPS)
    tl.store(part_ptr + place + 1, part + parts, mask=parts > 0)
    chunk = places_among(ends, 2 * span, member, chunks, programs, GROUPS)
    tl.store(chunk_ptr + place + 1, chunk + chunks, mask=chunks > 0)
    if tl.program_id(0) == 0:
        tl.store(part_ptr, 0)
        tl.store(chunk_ptr, 0)
    # An item stands behind the parts of all hubs; the rows before it that are no hubs have an item each.
    hub_groups = tl.sum((tl.load(sizes + tl.arange(0, GROUPS)) > ITEM).to(tl.int32), axis=0)
    hubs = tl.load(ends + hub_groups * programs - 1)
    num_parts = tl.load(ends + 2 * span - 1) - tl.load(ends + span - 1)
    item = place - hubs + num_parts
    is_whole = (row < N) & (parts == 0)
    tl.store(item_row + item, row, mask=is_whole)
    tl.store(item_first + item, start, mask=is_whole)


@triton.jit
def parts_kernel(
    rows,  # [N] longest first
    ptr,  # [N + 1]
    part_ptr,  # [H + 1]
    part_row,  # [P]
    part_first,  # [P]
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One hub: the row and the first entry of each of its parts."""
    hub = tl.program_id(0)
    row = tl.load(rows + hub)
    start = tl.load(ptr + row)
    first_part = tl.load(part_ptr + hub)
    last_part = tl.load(part_ptr + hub + 1)
    for p0 in range(first_part, last_part, BLOCK):
        part = p0 + tl.arange(0, BLOCK)
        tl.store(part_row + part, tl.zeros([BLOCK], dtype=tl.int32) + row, mask=part < last_part)
        tl.store(part_first + part, start + (part - first_part) * SIZE, mask=part < last_part)


@triton.jit(do_not_specialize=["E"])
def transpose_kernel(
    order,  # [E] the entries by source
    target,  # [E] int64
    entry,  # [E]
    entry_target,  # [E]
    E,
    BLOCK: tl.constexpr,
):
    """Some entries by source: which they are, and their rows."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(order + place, mask=place < E, other=0)
    tl.store(entry + place, found.to(tl.int32), mask=place < E)
    row = tl.load(target + found, mask=place < E, other=0)
    tl.store(entry_target + place, row.to(tl.int32), mask=place < E)


@cache
def sizes_on(device: torch.device, sizes: tuple[int, ...]) -> Tensor:
    """Sizes as the device reads them; behind them powers of two and, last, one that no row reaches."""
    powers = [2 * sizes[-1] << place for place in range(GROUPS - 1 - len(sizes))]
    with torch.inference_mode(False):
        return torch.tensor([*sizes, *powers, 2**31 - 1], dtype=torch.int32, device=device)


class Totals:
    """Counts that the device has added up and the host has not read yet.

    Args:
        ends (torch.Tensor): The counts of rows, parts and chunks by group and program, added up.
    """

    def __init__(self, ends: Tensor) -> None:
        self.on_device = ends.view(3, GROUPS, -1)[..., -1].reshape(-1)


def read_totals(unread: Sequence[Totals | Tensor]) -> list[list[int]]:
    """The numbers of each, read together: one wait for the device."""
    parts = [part.on_device if isinstance(part, Totals) else part for part in unread]
    numbers = iter(torch.cat(parts).tolist())
    return [list(islice(numbers, part.numel())) for part in parts]


class Order:
    """Rows by length, the longest group first, and all that is cut; complete after :meth:`finish`.

    Args:
        ptr (torch.Tensor): Where each row starts, and where the last one ends, int32, [N + 1].
        sizes: Sizes to count longer rows by, ascending, among them the next two.
        item (int): What rows are cut at for work.
        chunk (int): What rows are cut at for sorting.
        rows (torch.Tensor): The rows by length, [N].
        item_row (torch.Tensor): The row of each item, [I] or more; rows that are not cut have one each.
        item_first (torch.Tensor): The first entry of each item.
        part_ptr (torch.Tensor): Where the parts of each row that is cut for work end, [H + 1] or more.
        chunk_ptr (torch.Tensor): The same for sorting.
    """

    def __init__(
        self,
        ptr: Tensor,
        sizes: tuple[int, ...],
        item: int,
        chunk: int,
        rows: Tensor,
        item_row: Tensor,
        item_first: Tensor,
        part_ptr: Tensor,
        chunk_ptr: Tensor,
    ) -> None:
        self.ptr, self.sizes, self.item, self.chunk = ptr, sizes, item, chunk
        self.rows, self.item_row, self.item_first = rows, item_row, item_first
        self.part_ptr, self.chunk_ptr = part_ptr, chunk_ptr

    @classmethod
    def of(
        cls, ptr: Tensor, entries: int, sizes: tuple[int, ...], item: int, chunk: int
    ) -> tuple[Order, Totals]:
        """The order of rows with so many entries at most, and what to finish it with; waits for nothing."""
        count = ptr.numel() - 1
        programs = max(cdiv(count, _ROWS), 1)
        # Room for the most that there can be.
        most = count + entries // item
        room = (count, most, most, min(count, entries // item) + 1, min(count, entries // chunk) + 1)
        written = [torch.empty(size, dtype=torch.int32, device=ptr.device) for size in room]
        counts = ptr.new_empty(3 * GROUPS * programs)
        on_device = sizes_on(ptr.device, sizes)
        meta = {"ITEM": item, "CHUNK": chunk, "GROUPS": GROUPS, "ROWS": _ROWS, "num_warps": 4}
        launch(count_rows_kernel, (programs,), ptr, on_device, counts, count, programs, **meta)
        ends = counts.cumsum(0, dtype=torch.int32)
        launch(place_rows_kernel, (programs,), ptr, on_device, ends, *written, count, programs, **meta)
        return cls(ptr, sizes, item, chunk, *written), Totals(ends)

    def finish(self, totals: list[int]) -> None:
        """Leaves out the room that was not needed, and cuts."""
        rows, parts, chunks = (totals[first : first + GROUPS] for first in range(0, 3 * GROUPS, GROUPS))
        # How many rows are longer than each size.
        self.longer = {size: rows[GROUPS - 2 - place] for place, size in enumerate(self.sizes)}
        self.parts, self.chunks = parts[-1] - rows[-1], chunks[-1] - parts[-1]
        hubs, cut_rows = self.longer[self.item], self.longer[self.chunk]
        self.part_ptr = self.part_ptr.narrow(0, 0, hubs + 1)
        self.chunk_ptr = self.chunk_ptr.narrow(0, 0, cut_rows + 1)
        items = self.parts + self.rows.numel() - hubs
        self.item_row, self.item_first = (
            self.item_row.narrow(0, 0, items),
            self.item_first.narrow(0, 0, items),
        )
        self.chunk_row, self.chunk_first = self.ptr.new_empty(self.chunks), self.ptr.new_empty(self.chunks)
        cut(self.rows, self.ptr, self.part_ptr, self.item, self.item_row, self.item_first)
        cut(self.rows, self.ptr, self.chunk_ptr, self.chunk, self.chunk_row, self.chunk_first)


def cut(rows: Tensor, ptr: Tensor, part_ptr: Tensor, size: int, part_row: Tensor, part_first: Tensor) -> None:
    """Writes the row and the first entry of each part of the rows that ``part_ptr`` knows."""
    hubs = part_ptr.numel() - 1
    launch(parts_kernel, (hubs,), rows, ptr, part_ptr, part_row, part_first, SIZE=size, BLOCK=64, num_warps=1)


def transpose(order: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of entries in a given order, and the order itself, both [E] and int32."""
    entry, entry_target = (torch.empty(order.shape, dtype=torch.int32, device=order.device) for _ in range(2))
    grid = (cdiv(order.numel(), _BLOCK),)
    launch(
        transpose_kernel, grid, order, target, entry, entry_target, order.numel(), BLOCK=_BLOCK, num_warps=4
    )
    return entry_target, entry

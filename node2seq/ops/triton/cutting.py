"""How a plan is made: rows by length, long ones cut into parts; few launches and one wait for the device."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.triton.launch import cdiv, launch

# Lengths that rows can be counted by at once.
_SIZES = 16
_BLOCK = 1024


@triton.jit
def part_ptr_of(length, ptr, count, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Where the parts of each of the first rows start; returns how many there are."""
    total = tl.cast(0, tl.int32)
    tl.store(ptr, total)
    for first in range(0, count, BLOCK):
        place = first + tl.arange(0, BLOCK)
        parts = (tl.load(length + place, mask=place < count, other=0) + SIZE - 1) // SIZE
        tl.store(ptr + place + 1, total + tl.cumsum(parts, axis=0), mask=place < count)
        total += tl.sum(parts, axis=0)
    return total


@triton.jit(do_not_specialize=["N"])
def summary_kernel(
    length,  # [N] descending
    sizes,  # [S]
    part_ptr,
    chunk_ptr,
    summary,  # [S + 2]
    N,
    ITEM: tl.constexpr,
    CHUNK: tl.constexpr,
    SIZES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: how many rows are longer than each size, and how many parts and chunks long rows have."""
    lane = tl.arange(0, SIZES)
    size = tl.load(sizes + lane)
    low = tl.zeros([SIZES], dtype=tl.int32)
    high = low + N
    for _ in range(32):
        middle = (low + high) // 2
        is_open = low < high
        is_longer = tl.load(length + middle, mask=is_open, other=0) > size
        low = tl.where(is_open & is_longer, middle + 1, low)
        high = tl.where(is_longer, high, tl.where(is_open, middle, high))
    tl.store(summary + lane, low)
    hubs = tl.max(tl.where(size == ITEM, low, 0), axis=0)
    tl.store(summary + SIZES, part_ptr_of(length, part_ptr, hubs, ITEM, BLOCK))
    hubs = tl.max(tl.where(size == CHUNK, low, 0), axis=0)
    tl.store(summary + SIZES + 1, part_ptr_of(length, chunk_ptr, hubs, CHUNK, BLOCK))


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


@triton.jit(do_not_specialize=["hubs", "num_parts", "N"])
def whole_rows_kernel(
    rows,  # [N] longest first
    ptr,  # [N + 1]
    item_row,  # [I]
    item_first,  # [I]
    hubs,
    num_parts,
    N,
    BLOCK: tl.constexpr,
):
    """Some rows that are no hubs: an item each, behind the parts of hubs."""
    place = hubs + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + place, mask=place < N, other=0)
    item = place - hubs + num_parts
    tl.store(item_row + item, row, mask=place < N)
    tl.store(item_first + item, tl.load(ptr + row, mask=place < N, other=0), mask=place < N)


@triton.jit(do_not_specialize=["E"])
def transpose_kernel(
    order,  # [E] int64: the entries by source
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
def _sizes_on(device: torch.device, sizes: tuple[int, ...]) -> Tensor:
    """Sizes as the device reads them, filled up with one that no row reaches."""
    padded = [*sizes, *[2**31 - 1] * (_SIZES - len(sizes))]
    with torch.inference_mode(False):
        return torch.tensor(padded, dtype=torch.int32, device=device)


class Summary:
    """What the host has to know of rows to start kernels on them.

    Args:
        length (torch.Tensor): The rows' lengths, descending, [N].
        entries (int): Their sum, or more.
        sizes: Sizes to count longer rows by, among them the next two.
        item (int): What rows are cut at for work.
        chunk (int): What rows are cut at for sorting.
    """

    def __init__(self, length: Tensor, entries: int, sizes: tuple[int, ...], item: int, chunk: int) -> None:
        part_ptr, chunk_ptr = (
            torch.empty(min(length.numel(), entries // size) + 1, dtype=torch.int32, device=length.device)
            for size in (item, chunk)
        )
        found = torch.empty(_SIZES + 2, dtype=torch.int32, device=length.device)
        launch(
            summary_kernel,
            (1,),
            length,
            _sizes_on(length.device, sizes),
            part_ptr,
            chunk_ptr,
            found,
            length.numel(),
            ITEM=item,
            CHUNK=chunk,
            SIZES=_SIZES,
            BLOCK=_BLOCK,
            num_warps=4,
        )
        *longer, self.parts, self.chunks = found.tolist()  # the one wait for the device
        self.longer = dict(zip(sizes, longer, strict=False))
        self.part_ptr = part_ptr[: self.longer[item] + 1]
        self.chunk_ptr = chunk_ptr[: self.longer[chunk] + 1]


def cut(rows: Tensor, ptr: Tensor, part_ptr: Tensor, size: int, part_row: Tensor, part_first: Tensor) -> None:
    """Writes the row and the first entry of each part of the rows that ``part_ptr`` knows."""
    hubs = part_ptr.numel() - 1
    launch(parts_kernel, (hubs,), rows, ptr, part_ptr, part_row, part_first, SIZE=size, BLOCK=64, num_warps=1)


def whole_rows(
    rows: Tensor, ptr: Tensor, hubs: int, parts: int, item_row: Tensor, item_first: Tensor
) -> None:
    """Writes the items of the rows that are not cut, behind those of the parts."""
    count = rows.numel()
    launch(
        whole_rows_kernel,
        (cdiv(count - hubs, _BLOCK),),
        rows,
        ptr,
        item_row,
        item_first,
        hubs,
        parts,
        count,
        BLOCK=_BLOCK,
        num_warps=4,
    )


def transpose(order: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of entries in a given order, and the order itself, both [E] and int32."""
    entry, entry_target = (torch.empty(order.shape, dtype=torch.int32, device=order.device) for _ in range(2))
    grid = (cdiv(order.numel(), _BLOCK),)
    launch(
        transpose_kernel, grid, order, target, entry, entry_target, order.numel(), BLOCK=_BLOCK, num_warps=4
    )
    return entry_target, entry

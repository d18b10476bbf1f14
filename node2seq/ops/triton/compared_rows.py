"""Equations 2 and 3 for small graphs, rows of any length, in two launches: entries count those before them.

Sorting starts a kernel for each width and four for the longest rows and for ties, which small graphs wait for
longer than for all comparisons.
"""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.sequences import Layout
from node2seq.ops.triton.launch import TILES, Prepared, Repeated, Tile, channel_blocks, given
from node2seq.ops.triton.plan import GpuPlan
from node2seq.ops.triton.short_rows import order_key, tie_of
from node2seq.ops.triton.work_items import item, rows_at

# So many entries are compared with so many at once.
_BLOCK, _OTHERS = 64, 32


@triton.jit
def row_key_kernel(
    query,  # [N, C]
    key,  # [M, C]
    index,  # [E]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    out,  # [E]
    C,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item: what some entries of one row are sorted by, from their features."""
    row, _, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.arange(0, BLOCK_C)
    for e0 in range(first, last, BLOCK_E):
        entry = e0 + tl.arange(0, BLOCK_E)
        real = entry < last
        source = tl.load(index + entry, mask=real, other=0)
        total = tl.zeros([BLOCK_E], dtype=tl.float32)
        own = tl.zeros([BLOCK_E], dtype=tl.float32)
        for c0 in range(0, C, BLOCK_C):
            inside = c0 + channel < C
            mine = tl.load(query + row.to(tl.int64) * C + c0 + channel, mask=inside, other=0.0)
            theirs = rows_at(key, source, c0 + channel, real, inside, C)
            total += tl.sum(theirs * mine[None, :], axis=1)
            own += tl.sum(theirs * theirs, axis=1)
        tl.store(out + entry, order_key(total, tie_of(own), real), mask=real)


@triton.jit
def place_by_key_kernel(
    keys,  # [E]
    index,  # [E]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    ranked,  # [E]
    place,  # [E]
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """One item: where some entries of one row stand; of equal keys the smaller entry goes first."""
    _, start, end, first, last = item(item_row, item_first, ptr, ITEM)
    for e0 in range(first, last, BLOCK_E):
        entry = e0 + tl.arange(0, BLOCK_E)
        real = entry < last
        mine = tl.load(keys + entry, mask=real, other=0)
        before = tl.zeros([BLOCK_E, OTHERS], dtype=tl.int32)
        for o0 in range(start, end, OTHERS):
            other = o0 + tl.arange(0, OTHERS)
            # What is no entry goes before none.
            theirs = tl.load(keys + other, mask=other < end, other=0x7FFFFFFFFFFFFFFF)
            is_equal = theirs[None, :] == mine[:, None]
            is_earlier = is_equal & (other[None, :] < entry[:, None])
            before += ((theirs[None, :] < mine[:, None]) | is_earlier).to(tl.int32)
        position = tl.sum(before, axis=1)
        tl.store(ranked + start + position, tl.load(index + entry, mask=real, other=0), mask=real)
        tl.store(place + entry, position, mask=real)


def compare_rows(query: Tensor, key: Tensor, plan: GpuPlan) -> Layout:
    """Every row in the order of its scores, ties by the own scores, then by the place in the row."""
    keys = torch.empty(plan.index.numel(), dtype=torch.int64, device=key.device)
    ranked, place = torch.empty_like(plan.index), torch.empty_like(plan.index)
    launches, channels = plan.work.launches, key.size(-1)
    about = "compared", channels, TILES["score"]
    if about not in launches:
        launches[about] = _prepare(plan, *about[1:])
    launches[about](query, key, keys, ranked, place)
    return Layout(plan, ranked, place)


def _prepare(plan: GpuPlan, channels: int, tile: Tile) -> Repeated:
    work, (_, width) = plan.work, channel_blocks(channels)
    query, key, keys, ranked, place = given(5)
    grid, cut = (work.items,), (plan.index, work.item_row, work.item_first, work.ptr)
    meta = {"ITEM": work.item, "BLOCK_E": tile.block, "BLOCK_C": width, "num_warps": tile.warps}
    first = Prepared(row_key_kernel, grid, query, key, *cut, keys, channels, **meta)
    meta = {"ITEM": work.item, "BLOCK_E": min(_BLOCK, work.item), "OTHERS": _OTHERS, "num_warps": 4}
    return Repeated(first, Prepared(place_by_key_kernel, grid, keys, *cut, ranked, place, **meta))

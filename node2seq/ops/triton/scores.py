"""Equation 2: inner products along the entries, without an [E, C] tensor."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.sequences import Sequences
from node2seq.ops.triton.launch import TILES, cdiv, channel_blocks, launch, plain
from node2seq.ops.triton.plan import GpuPlan, plan_of
from node2seq.ops.triton.work_items import item, rows_at


@triton.jit
def score_kernel(
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
    """One item: the scores of some entries of one row."""
    row, _, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.arange(0, BLOCK_C)
    for e0 in range(first, last, BLOCK_E):
        entry = e0 + tl.arange(0, BLOCK_E)
        real = entry < last
        source = tl.load(index + entry, mask=real, other=0)
        total = tl.zeros([BLOCK_E], dtype=tl.float32)
        for c0 in range(0, C, BLOCK_C):
            inside = c0 + channel < C
            mine = tl.load(query + row.to(tl.int64) * C + c0 + channel, mask=inside, other=0.0)
            total += tl.sum(rows_at(key, source, c0 + channel, real, inside, C) * mine[None, :], axis=1)
        tl.store(out + entry, total, mask=real)


@triton.jit(do_not_specialize=["M"])
def own_score_kernel(
    key,  # [M, C]
    out,  # [M]
    M,
    C,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Some nodes with themselves."""
    node = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = tl.arange(0, BLOCK_C)
    real = node < M
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    for c0 in range(0, C, BLOCK_C):
        x = rows_at(key, node, c0 + channel, real, c0 + channel < C, C)
        total += tl.sum(x * x, axis=1)
    tl.store(out + node, total, mask=real)


def score(query: Tensor, key: Tensor, sequences: Sequences) -> Tensor:
    """The inner product of each entry's target and source, [E]."""
    plan = plan_of(sequences)
    return score_items(plain(query), plain(key), plan, plan.work.items)


def score_items(query: Tensor, key: Tensor, plan: GpuPlan, items: int, index: Tensor | None = None) -> Tensor:
    """The scores of the entries of the first so many items, [E]; those of the others are not written.

    The entries are the graph's own, or those with the sources given.
    """
    out = torch.empty(plan.index.numel(), dtype=torch.float32, device=key.device)
    work, tile, (_, width) = plan.work, TILES["score"], channel_blocks(key.size(-1))
    launch(
        score_kernel,
        (items,),
        query,
        key,
        plan.index if index is None else index,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        key.size(-1),
        ITEM=work.item,
        BLOCK_E=tile.block,
        BLOCK_C=width,
        num_warps=tile.warps,
    )
    return out


def own_score(key: Tensor) -> Tensor:
    """The inner product of each node with itself, [M]."""
    key = plain(key)
    out = torch.empty(key.size(0), dtype=torch.float32, device=key.device)
    _, width = channel_blocks(key.size(-1))
    grid = (cdiv(key.size(0), 32),)
    launch(own_score_kernel, grid, key, out, *key.shape, BLOCK_M=32, BLOCK_C=width, num_warps=4)
    return out

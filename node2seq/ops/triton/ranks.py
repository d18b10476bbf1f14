"""The convolution over ranks: each neighbour's row is gathered once for all ranks and the mean.

The ranks of an entry lie next to each other in memory, [E, K]: by source, they are read from one place.
"""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from node2seq.ops.sequences import Layout, Sequences, multiply
from node2seq.ops.triton.aggregate import segment_sum, sum_parts
from node2seq.ops.triton.dynamic_plan import layout_of
from node2seq.ops.triton.launch import MOST_TAPS, TILES, channel_blocks, launch, next_power_of_2, plain
from node2seq.ops.triton.plan import GpuPlan, plan_of
from node2seq.ops.triton.scores import score_items
from node2seq.ops.triton.work_items import item, rows_at


@triton.jit(do_not_specialize=["num_parts"])
def rank_sum_kernel(
    x,  # [M, C]
    index,  # [E] the row of x that each entry takes
    ranks,  # [E, K] by the sequences' entries
    entry_of,  # [E] the sequences' entry behind each one here
    target_ptr,  # [N + 1]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1], or by source
    out,  # [N, K + 1, C]
    parts,  # [P, K + 1, C]
    num_parts,
    C,
    K: tl.constexpr,
    FIRST_TAP: tl.constexpr,
    TAPS: tl.constexpr,
    IS_TRANSPOSED: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item and a block of channels: its sums weighted by each rank, and its part of the mean."""
    row, start, end, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    tap = tl.arange(0, BLOCK_T)
    inside = channel < C
    total = tl.zeros([BLOCK_T, BLOCK_C], dtype=tl.float32)
    for e0 in range(first, last, BLOCK_E):
        entry = e0 + tl.arange(0, BLOCK_E)
        real = entry < last
        node = tl.load(index + entry, mask=real, other=0)
        value = rows_at(x, node, channel, real, inside, C).to(tl.float32)
        if IS_TRANSPOSED:
            entry = tl.load(entry_of + entry, mask=real, other=0)
            length = tl.load(target_ptr + node + 1, mask=real, other=1)
            length -= tl.load(target_ptr + node, mask=real, other=0)
        else:
            length = tl.where(real, end - start, 1)
        at = ranks + entry.to(tl.int64) * K + FIRST_TAP
        for number in tl.static_range(TAPS):
            if FIRST_TAP + number < K:
                share = tl.load(at + number, mask=real, other=0.0)
            else:
                share = 1.0 / length.to(tl.float32)
            # What is not real is zero in `value`.
            found = tl.sum(value * share[:, None], axis=0)
            total += tl.where((tap == number)[:, None], found[None, :], 0.0)

    at = (FIRST_TAP + tap)[:, None] * C + channel[None, :]
    use = (tap < TAPS)[:, None] & inside[None, :]
    number_of_item = tl.program_id(0)
    if number_of_item < num_parts:
        tl.store(parts + number_of_item.to(tl.int64) * ((K + 1) * C) + at, total, mask=use)
    else:
        tl.store(out + row.to(tl.int64) * ((K + 1) * C) + at, total, mask=use)


@triton.jit
def rank_grad_kernel(
    grad,  # [N, K, C] of the sums weighted by each rank
    x,  # [M, C]
    index,  # [E]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    out,  # [E, K]
    C,
    K: tl.constexpr,
    IS_ONE_BLOCK: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item: the product of each entry's source with the gradient of each rank."""
    row, _, _, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.arange(0, BLOCK_C)
    grad += row.to(tl.int64) * (K * C)
    for e0 in range(first, last, BLOCK_E):
        entry = e0 + tl.arange(0, BLOCK_E)
        real = entry < last
        node = tl.load(index + entry, mask=real, other=0)
        at = out + entry.to(tl.int64) * K
        if IS_ONE_BLOCK:
            inside = channel < C
            value = rows_at(x, node, channel, real, inside, C).to(tl.float32)
            for t in tl.static_range(K):
                mine = tl.load(grad + t * C + channel, mask=inside, other=0.0).to(tl.float32)
                tl.store(at + t, tl.sum(value * mine[None, :], axis=1), mask=real)
        else:
            for t in range(K):
                total = tl.zeros([BLOCK_E], dtype=tl.float32)
                for c0 in range(0, C, BLOCK_C):
                    inside = c0 + channel < C
                    mine = tl.load(grad + t * C + c0 + channel, mask=inside, other=0.0).to(tl.float32)
                    value = rows_at(x, node, c0 + channel, real, inside, C).to(tl.float32)
                    total += tl.sum(value * mine[None, :], axis=1)
                tl.store(at + t, total, mask=real)


@dataclass(frozen=True)
class Entries:
    """Sequences as the kernels of ranks read them."""

    plan: GpuPlan
    index: Tensor  # [E] the source of each entry
    place: Tensor | None  # where each of the graph's own entries stands, if they stand in another order

    def by_source(self) -> Tensor:
        """The entry behind each one of the transposed graph, [E]."""
        transposed = self.plan.transposed
        if self.place is None:
            return transposed.entry
        return self.plan.work.ptr[transposed.target] + self.place[transposed.entry]


def entries_of(sequences: Sequences | Layout) -> Entries:
    """The entries of sequences; found once, as those whose sources change have to be sorted by source."""
    if isinstance(sequences, Layout):
        plan, index, place = sequences.plan, sequences.index, sequences.place
        return Entries(plan, index, None if index is plan.index else place)
    if sequences.origin is None:
        plan = plan_of(sequences)
        return Entries(plan, plan.index, None)
    if "triton ranks" not in sequences.plans:
        sequences.plans["triton ranks"] = entries_of(layout_of(sequences))
    return sequences.plans["triton ranks"]


def pair_scores(query: Tensor, key: Tensor, sequences: Sequences | Layout) -> Tensor:
    """The inner product of each entry's target and source with gradients to both, [E]."""
    return _PairScores.apply(query, key, entries_of(sequences))  # pyright: ignore[reportReturnType]


def convolve_ranks(
    x: Tensor,
    weight: Tensor,
    ranks: Tensor,
    sequences: Sequences | Layout,
    *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """A matrix for each rank and one for the mean of all, [N, D]; see :func:`reference.convolve_ranks`.

    What is multiplied and gathered is of the type asked for; shares and all sums while they are added up are
    of 32 bits.
    """
    return _ConvolveRanks.apply(x, weight, ranks, entries_of(sequences), dtype)  # pyright: ignore[reportReturnType]


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, entries: Entries) -> Tensor:
        query, key = plain(query), plain(key)
        ctx.entries = entries
        ctx.save_for_backward(query, key)
        return score_items(query, key, entries.plan, entries.plan.work.items, entries.index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key = ctx.saved_tensors
        entries, grad = ctx.entries, plain(grad)
        plan, grad_query, grad_key = entries.plan, None, None
        if ctx.needs_input_grad[0]:
            grad_query = segment_sum(key, entries.index, grad, plan.work, None)
        if ctx.needs_input_grad[1]:
            transposed = plan.transposed
            grad_key = segment_sum(query, transposed.target, grad, transposed.work, entries.by_source())
        return grad_query, grad_key, None


class _ConvolveRanks(torch.autograd.Function):
    """Keeps what it was given: the gradients of the weights come from those of the sources."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, ranks: Tensor, entries: Entries, dtype: torch.dtype
    ) -> Tensor:
        rows, weight, ranks = plain(x.to(dtype)), weight.to(dtype), plain(ranks.t())
        ctx.entries = entries
        ctx.save_for_backward(rows, weight, ranks)
        summed = rank_sums(rows, ranks, entries, is_transposed=False)
        return multiply(summed.flatten(1), weight.flatten(-3, -2)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, ranks = ctx.saved_tensors
        needs_x, needs_weight, needs_ranks, *_ = ctx.needs_input_grad
        entries, given, grad = ctx.entries, grad.dtype, plain(grad.to(x.dtype))
        (*runs, sums, _, channels) = weight.shape
        grad_x = grad_weight = grad_ranks = None
        if needs_ranks:
            taps = weight[..., :-1, :, :].flatten(-3, -2).transpose(-2, -1)  # [D, K * C]
            by_rank = multiply(grad, taps).view(-1, sums - 1, x.size(-1))
            grad_ranks = rank_grad(by_rank, x, entries).t()
            del by_rank
        if needs_x or needs_weight:
            # What each source gets back under each rank, before it is multiplied: [M, K + 1, D].
            back = rank_sums(grad, ranks, entries, is_transposed=True).flatten(1)
            if needs_x:
                grad_x = multiply(back, weight.transpose(-2, -1).flatten(-3, -2)).to(given)
            if needs_weight:
                found = x.view(*runs, -1, x.size(-1)).transpose(-2, -1) @ back.view(*runs, -1, back.size(-1))
                grad_weight = found.unflatten(-1, (sums, channels)).transpose(-3, -2).to(given)
        return grad_x, grad_weight, grad_ranks, None, None


def rank_sums(x: Tensor, ranks: Tensor, entries: Entries, *, is_transposed: bool) -> Tensor:
    """The sums of each target's sources weighted by each rank, and their mean, [N, K + 1, C].

    Transposed, the same of each source's targets, [M, K + 1, C]: the mean is that of the target's sequence.
    """
    plan, count, channels = entries.plan, ranks.size(1), x.size(-1)
    work, index, entry_of, tile = plan.work, entries.index, entries.index, TILES["rank_sum"]
    if is_transposed:
        work, index, entry_of = plan.transposed.work, plan.transposed.target, entries.by_source()
        tile = TILES["rank_sum_by_source"]
    out = x.new_empty(work.ptr.numel() - 1, count + 1, channels)
    parts = torch.empty(work.parts, count + 1, channels, device=x.device)
    blocks, width = channel_blocks(max(channels, 1))
    for first in range(0, count + 1, MOST_TAPS):
        taps = min(count + 1 - first, MOST_TAPS)
        launch(
            rank_sum_kernel,
            (work.items, blocks),
            x,
            index,
            ranks,
            entry_of,
            plan.work.ptr,
            work.item_row,
            work.item_first,
            work.ptr,
            out,
            parts,
            work.parts,
            channels,
            K=count,
            FIRST_TAP=first,
            TAPS=taps,
            IS_TRANSPOSED=is_transposed,
            ITEM=work.item,
            BLOCK_E=tile.block,
            BLOCK_T=next_power_of_2(taps),
            BLOCK_C=width,
            num_warps=tile.warps,
        )
    sum_parts(parts, work, out)
    return out


def rank_grad(by_rank: Tensor, x: Tensor, entries: Entries) -> Tensor:
    """The gradient of the ranks, [E, K], from that of the sums that they weigh, [N, K, C]."""
    work, channels = entries.plan.work, x.size(-1)
    out = torch.empty(entries.index.numel(), by_rank.size(1), device=x.device)
    tile, (blocks, width) = TILES["rank_grad"], channel_blocks(max(channels, 1))
    launch(
        rank_grad_kernel,
        (work.items,),
        by_rank,
        x,
        entries.index,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        channels,
        K=by_rank.size(1),
        IS_ONE_BLOCK=blocks == 1,
        ITEM=work.item,
        BLOCK_E=tile.block,
        BLOCK_C=width,
        num_warps=tile.warps,
    )
    return out

"""Equations 2 to 5 for sums over windows: every row is gathered once, for its scores and its sums.

Only the first and the last K − 1 positions of a sequence lie under some taps and not under others, so nobody
else's position is worked out. Of each entry it is kept which taps it lies under: ``first · K + last``.
"""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.triton.launch import (
    TILES,
    WIDEST,
    Prepared,
    Repeated,
    Tile,
    channel_blocks,
    given,
    next_power_of_2,
)
from node2seq.ops.triton.plan import Bucket, GpuPlan, Work
from node2seq.ops.triton.short_rows import order_key, places, tie_of, warps
from node2seq.ops.triton.work_items import item, rows_at

# first · K + last has to fit into 8 bits.
_MOST_TAPS = 16


class Sums(NamedTuple):
    """What is wanted of the taps' sums."""

    is_mean: bool  # divided by the number of windows
    with_own: bool  # with the targets' own rows behind the taps, [N, K + 1, C]: sources are the targets then
    dtype: torch.dtype = torch.float32  # of the sums as they are stored; they are added up in 32 bits

    def empty(self, x: Tensor, rows: int, kernel_size: int) -> Tensor:
        """Where they go."""
        return x.new_empty(rows, kernel_size + self.with_own, x.size(-1), dtype=self.dtype)


class TapSums(NamedTuple):
    """What a ranking has done of the convolution that follows it: the taps' sums over all windows."""

    plan: GpuPlan
    x: Tensor  # what they are the sums of
    sums: Sums
    summed: Tensor  # [N, K, C], or [N, K + 1, C] with the own rows behind
    under: Tensor  # [E] the taps that each entry lies under

    def serves(self, x: Tensor, kernel_size: int, sums: Sums) -> bool:
        """Whether a convolution over these rows asks for these sums."""
        is_same = (
            x.data_ptr() == self.x.data_ptr() and x.shape == self.x.shape and x.stride() == self.x.stride()
        )
        return is_same and sums == self.sums and self.summed.size(1) == kernel_size + sums.with_own


@triton.jit(do_not_specialize=["first_row"])
def sum_short_kernel(
    query,  # [N, C]
    x,  # [M, C]
    index,  # [E]
    rows,  # [N]
    ptr,  # [N + 1]
    out,  # [N, K, C], or [N, K + 1, C] with the targets' own rows behind
    under,  # [E]
    first_row,
    C,
    K: tl.constexpr,
    WITH_OWN: tl.constexpr,
    IS_MEAN: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One short row: scored, ranked and summed in registers."""
    row = tl.load(rows + first_row + tl.program_id(0))
    start = tl.load(ptr + row)
    length = tl.load(ptr + row + 1) - start
    slot = tl.arange(0, WIDTH)
    real = slot < length
    channel = tl.arange(0, BLOCK_C)
    inside = channel < C
    source = tl.load(index + start + slot, mask=real, other=0)
    value = rows_at(x, source, channel, real, inside, C)
    mine = tl.load(query + row.to(tl.int64) * C + channel, mask=inside, other=0.0)
    key = order_key(tl.sum(value * mine[None, :], axis=1), tie_of(tl.sum(value * value, axis=1)), real)
    position = places(key, slot)
    windows = tl.maximum(length - K + 1, 1)
    low = tl.maximum(position - windows + 1, 0)
    high = tl.minimum(position, K - 1)
    tl.store(under + start + slot, (low * K + high).to(tl.uint8), mask=real)
    at = out + row.to(tl.int64) * ((K + WITH_OWN) * C) + channel
    for tap in tl.static_range(K):
        use = real & (low <= tap) & (tap <= high)
        total = tl.sum(tl.where(use[:, None], value, 0.0), axis=0)
        if IS_MEAN:
            total = tl.div_rn(total, windows.to(tl.float32))
        tl.store(at + tap * C, total, mask=inside)
    if WITH_OWN:
        tl.store(at + K * C, mine, mask=inside)


@triton.jit
def store_taps(
    out,
    row,
    length,
    total,
    x,
    head,
    tail,
    channel,
    inside,
    C,
    K: tl.constexpr,
    WITH_OWN: tl.constexpr,
    IS_MEAN: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Each tap's sum: the whole row without those at its start and its end that the tap does not reach."""
    number = tl.arange(0, BLOCK_T)
    first = rows_at(x, head, channel, number < K - 1, inside, C)
    last = rows_at(x, tail, channel, number < K - 1, inside, C)
    at = out + row.to(tl.int64) * ((K + WITH_OWN) * C) + channel
    for tap in tl.static_range(K):
        missed = tl.where((number < tap)[:, None], first, 0.0)
        missed += tl.where((number < K - 1 - tap)[:, None], last, 0.0)
        reached = total - tl.sum(missed, axis=0)
        if IS_MEAN:
            reached = tl.div_rn(reached, (length - K + 1).to(tl.float32))
        tl.store(at + tap * C, reached, mask=inside)
    if WITH_OWN:
        tl.store(at + K * C, tl.load(x + row.to(tl.int64) * C + channel, mask=inside, other=0.0), mask=inside)


@triton.jit(do_not_specialize=["num_parts"])
def sum_long_kernel(
    query,  # [N, C]
    x,  # [M, C]
    index,  # [E]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [N + 1]
    out,  # [N, K, C], or [N, K + 1, C] with the targets' own rows behind
    under,  # [E]
    part_sum,  # [P, C]
    end_key,  # [2, P, T] of each part the first and the last, best and worst first
    end_entry,  # [2, P, T]
    num_parts,
    C,
    K: tl.constexpr,
    WITH_OWN: tl.constexpr,
    IS_MEAN: tl.constexpr,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item of a long row: its sum, its first and its last K − 1 entries."""
    row, start, end, first, last = item(item_row, item_first, ptr, ITEM)
    channel = tl.arange(0, BLOCK_C)
    inside = channel < C
    mine = tl.load(query + row.to(tl.int64) * C + channel, mask=inside, other=0.0)
    total = tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32)
    score = tl.zeros([ITEM // BLOCK_E, BLOCK_E], dtype=tl.float32)
    own = tl.zeros([ITEM // BLOCK_E, BLOCK_E], dtype=tl.float32)
    block = tl.arange(0, ITEM // BLOCK_E)[:, None]
    for e0 in range(first, last, BLOCK_E):
        entry = e0 + tl.arange(0, BLOCK_E)
        real = entry < last
        source = tl.load(index + entry, mask=real, other=0)
        value = rows_at(x, source, channel, real, inside, C)
        total += value
        is_here = block == (e0 - first) // BLOCK_E
        score = tl.where(is_here, tl.sum(value * mine[None, :], axis=1)[None, :], score)
        own = tl.where(is_here, tl.sum(value * value, axis=1)[None, :], own)

    # Taken out one after the other; of equal keys the smaller slot goes first.
    slot = tl.arange(0, ITEM)
    real = first + slot < last
    key = order_key(tl.reshape(score, [ITEM]), tie_of(tl.reshape(own, [ITEM])), real)
    rising = key
    falling = tl.where(real, key, -9223372036854775808)
    number = tl.arange(0, BLOCK_T)
    head = tl.zeros([BLOCK_T], dtype=tl.int32)
    tail = tl.zeros([BLOCK_T], dtype=tl.int32)
    head_key = tl.full([BLOCK_T], 0x7FFFFFFFFFFFFFFF, dtype=tl.int64)
    tail_key = tl.full([BLOCK_T], -9223372036854775808, dtype=tl.int64)
    code = tl.full([ITEM], K - 1, dtype=tl.int32)
    number_of_item = tl.program_id(0)
    for taken in range(K - 1):
        best = tl.min(rising, axis=0)
        worst = tl.max(falling, axis=0)
        best_slot = tl.min(tl.where(rising == best, slot, ITEM - 1), axis=0)
        worst_slot = tl.max(tl.where(falling == worst, slot, 0), axis=0)
        rising = tl.where(slot == best_slot, 0x7FFFFFFFFFFFFFFF, rising)
        falling = tl.where(slot == worst_slot, -9223372036854775808, falling)
        head = tl.where(number == taken, best_slot, head)
        tail = tl.where(number == taken, worst_slot, tail)
        head_key = tl.where(number == taken, best, head_key)
        tail_key = tl.where(number == taken, worst, tail_key)
        # In a hub, only all parts together know who is first.
        code = tl.where((slot == best_slot) & (number_of_item >= num_parts), taken, code)
        code = tl.where(
            (slot == worst_slot) & (number_of_item >= num_parts), (K - 1 - taken) * K + K - 1, code
        )
    tl.store(under + first + slot, code.to(tl.uint8), mask=real)
    whole = tl.sum(total, axis=0)
    if number_of_item < num_parts:
        part = number_of_item.to(tl.int64)
        tl.store(part_sum + part * C + channel, whole, mask=inside)
        at = part * BLOCK_T + number
        tl.store(end_key + at, head_key)
        tl.store(end_entry + at, first + head)
        at += num_parts * BLOCK_T
        tl.store(end_key + at, tail_key)
        tl.store(end_entry + at, first + tail)
    else:
        head = tl.load(index + first + head)
        tail = tl.load(index + first + tail)
        length = end - start
        store_taps(out, row, length, whole, x, head, tail, channel, inside, C, K, WITH_OWN, IS_MEAN, BLOCK_T)


@triton.jit(do_not_specialize=["num_parts"])
def sum_hub_kernel(
    x,  # [M, C]
    index,  # [E]
    rows,  # [N] hubs first
    ptr,  # [N + 1]
    part_ptr,  # [H + 1]
    out,  # [N, K, C], or [N, K + 1, C] with the targets' own rows behind
    under,  # [E]
    part_sum,  # [P, C]
    end_key,  # [2, P, T]
    end_entry,  # [2, P, T]
    num_parts,
    C,
    K: tl.constexpr,
    WITH_OWN: tl.constexpr,
    IS_MEAN: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One hub: its sum and its ends from those of its parts."""
    hub = tl.program_id(0)
    row = tl.load(rows + hub)
    first_part = tl.load(part_ptr + hub)
    last_part = tl.load(part_ptr + hub + 1)
    channel = tl.arange(0, BLOCK_C)
    inside = channel < C
    total = tl.zeros([8, BLOCK_C], dtype=tl.float32)
    for p0 in range(first_part, last_part, 8):
        part = p0 + tl.arange(0, 8)
        total += rows_at(part_sum, part, channel, part < last_part, inside, C)

    number = tl.arange(0, BLOCK_T)
    head = tl.zeros([BLOCK_T], dtype=tl.int32)
    tail = tl.zeros([BLOCK_T], dtype=tl.int32)
    # Who was taken last: those before it are told by its key, so that nothing has to be crossed out.
    low_key = tl.cast(-9223372036854775808, tl.int64)
    high_key = tl.cast(0x7FFFFFFFFFFFFFFF, tl.int64)
    low_entry = tl.cast(-1, tl.int32)
    high_entry = tl.cast(0x7FFFFFFF, tl.int32)
    behind = num_parts * BLOCK_T  # where the parts' last entries lie
    for taken in range(K - 1):
        best = tl.cast(0x7FFFFFFFFFFFFFFF, tl.int64)
        worst = tl.cast(-9223372036854775808, tl.int64)
        best_entry = tl.cast(0x7FFFFFFF, tl.int32)
        worst_entry = tl.cast(-1, tl.int32)
        for e0 in range(first_part * BLOCK_T, last_part * BLOCK_T, BLOCK_P):
            end = e0 + tl.arange(0, BLOCK_P)
            real = end < last_part * BLOCK_T
            key = tl.load(end_key + end, mask=real, other=0x7FFFFFFFFFFFFFFF)
            entry = tl.load(end_entry + end, mask=real, other=0x7FFFFFFF)
            key = tl.where(
                (key > low_key) | ((key == low_key) & (entry > low_entry)), key, 0x7FFFFFFFFFFFFFFF
            )
            found = tl.min(key, axis=0)
            found_entry = tl.min(tl.where(key == found, entry, 0x7FFFFFFF), axis=0)
            is_first = (found < best) | ((found == best) & (found_entry < best_entry))
            best = tl.where(is_first, found, best)
            best_entry = tl.where(is_first, found_entry, best_entry)

            key = tl.load(end_key + behind + end, mask=real, other=-9223372036854775808)
            entry = tl.load(end_entry + behind + end, mask=real, other=-1)
            is_left = (key < high_key) | ((key == high_key) & (entry < high_entry))
            key = tl.where(is_left, key, -9223372036854775808)
            found = tl.max(key, axis=0)
            found_entry = tl.max(tl.where(key == found, entry, -1), axis=0)
            is_last = (found > worst) | ((found == worst) & (found_entry > worst_entry))
            worst = tl.where(is_last, found, worst)
            worst_entry = tl.where(is_last, found_entry, worst_entry)
        low_key = best
        low_entry = best_entry
        high_key = worst
        high_entry = worst_entry
        tl.store(under + best_entry, tl.cast(taken, tl.int32).to(tl.uint8))
        tl.store(under + worst_entry, tl.cast((K - 1 - taken) * K + K - 1, tl.int32).to(tl.uint8))
        head = tl.where(number == taken, best_entry, head)
        tail = tl.where(number == taken, worst_entry, tail)
    head = tl.load(index + head)
    tail = tl.load(index + tail)
    length = tl.load(ptr + row + 1) - tl.load(ptr + row)
    whole = tl.sum(total, axis=0)
    store_taps(out, row, length, whole, x, head, tail, channel, inside, C, K, WITH_OWN, IS_MEAN, BLOCK_T)


def fits(work: Work, kernel_size: int, channels: int) -> bool:
    """Whether the kernels here can take it: few channels, and the ends of long rows lie apart."""
    return kernel_size <= _MOST_TAPS and channels <= WIDEST and 2 * (kernel_size - 1) <= work.short


def scored_window_sum(
    query: Tensor, x: Tensor, plan: GpuPlan, kernel_size: int, sums: Sums
) -> tuple[Tensor, Tensor]:
    """What each tap meets over all windows, and the taps that each entry lies under, [E]."""
    out = sums.empty(x, plan.rows.num_rows, kernel_size)
    under = torch.empty(plan.index.numel(), dtype=torch.uint8, device=x.device)
    _sum_long_rows(query, x, plan, kernel_size, sums, out, under)
    for bucket in plan.work.short_buckets:
        sum_short_rows(query, x, plan, bucket, kernel_size, sums, out, under)
    return out, under


def sum_short_rows(
    query: Tensor,
    x: Tensor,
    plan: GpuPlan,
    bucket: Bucket,
    kernel_size: int,
    sums: Sums,
    out: Tensor,
    under: Tensor,
) -> None:
    """The rows of one width."""
    launches, channels = plan.work.launches, x.size(-1)
    about = "sum_short", kernel_size, channels, sums, bucket.width, bucket.first, bucket.count
    if about not in launches:
        _, width = channel_blocks(channels)
        of_query, of_x, of_out, of_under = given(4)
        short = Prepared(
            sum_short_kernel,
            (bucket.count,),
            of_query,
            of_x,
            plan.index,
            plan.work.rows,
            plan.work.ptr,
            of_out,
            of_under,
            bucket.first,
            channels,
            K=kernel_size,
            WITH_OWN=sums.with_own,
            IS_MEAN=sums.is_mean,
            WIDTH=bucket.width,
            BLOCK_C=width,
            num_warps=warps(bucket.width, width),
        )
        launches[about] = Repeated(short)
    launches[about](query, x, out, under)


def _sum_long_rows(
    query: Tensor, x: Tensor, plan: GpuPlan, kernel_size: int, sums: Sums, out: Tensor, under: Tensor
) -> None:
    work, channels = plan.work, x.size(-1)
    if not work.long_items:
        return
    tile, ends = TILES["scored_window_sum"], next_power_of_2(kernel_size)
    part_sum = x.new_empty(work.parts, channels)
    end_key = torch.empty(2, work.parts, ends, dtype=torch.int64, device=x.device)
    end_entry = torch.empty(2, work.parts, ends, dtype=torch.int32, device=x.device)
    about = "sum_long", kernel_size, channels, sums, tile
    if about not in work.launches:
        work.launches[about] = _prepare_long(plan, *about[1:])
    work.launches[about](query, x, out, under, part_sum, end_key, end_entry)


def _prepare_long(plan: GpuPlan, kernel_size: int, channels: int, sums: Sums, tile: Tile) -> Repeated:
    """The launches over the items and over the hubs."""
    work, ends, (_, width) = plan.work, next_power_of_2(kernel_size), channel_blocks(channels)
    flags = {"K": kernel_size, "WITH_OWN": sums.with_own, "IS_MEAN": sums.is_mean}
    query, x, out, under, part_sum, end_key, end_entry = given(7)
    items = Prepared(
        sum_long_kernel,
        (work.long_items,),
        query,
        x,
        plan.index,
        work.item_row,
        work.item_first,
        work.ptr,
        out,
        under,
        part_sum,
        end_key,
        end_entry,
        work.parts,
        channels,
        **flags,
        ITEM=work.item,
        BLOCK_E=min(tile.block, work.item),
        BLOCK_T=ends,
        BLOCK_C=width,
        num_warps=tile.warps,
    )
    hubs = Prepared(
        sum_hub_kernel,
        (work.hubs,),
        x,
        plan.index,
        work.rows,
        work.ptr,
        work.part_ptr,
        out,
        under,
        part_sum,
        end_key,
        end_entry,
        work.parts,
        channels,
        **flags,
        BLOCK_P=64 * ends,
        BLOCK_T=ends,
        BLOCK_C=width,
        num_warps=max(1, ends // 4),
    )
    return Repeated(items, hubs)

"""Sorts of few numbers in one launch: each counts those that go before it.

PyTorch's sort takes ten launches or more, which small graphs wait for longer than for all else.
"""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops.triton.launch import cdiv, launch, plain
from node2seq.ops.triton.work_items import descending

# Every number is compared with every other: 2^28 comparisons take about as long as one launch.
FEW = 2**14
_ROWS = 32  # that a program places
_META = {"ROWS": _ROWS, "BLOCK": 128, "num_warps": 4}


@triton.jit
def sort_key(number, FALLING: tl.constexpr):
    """Integers that grow as the numbers grow or, for floats, fall; NaN is larger than every other."""
    key = number
    if FALLING:
        key = tl.where(number != number, -2147483648, descending(number))
    return key


@triton.jit
def count_before(numbers, count, FALLING: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Some numbers, where they stand, and how many go before each; of equal ones the first does."""
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    number = tl.load(numbers + at, mask=at < count, other=0)
    mine = sort_key(number, FALLING)
    before = tl.zeros([ROWS, BLOCK], dtype=tl.int32)
    for first in range(0, count, BLOCK):
        other = first + tl.arange(0, BLOCK)
        theirs = sort_key(tl.load(numbers + other, mask=other < count, other=0), FALLING)
        is_smaller = theirs[None, :] < mine[:, None]
        is_earlier = (theirs[None, :] == mine[:, None]) & (other[None, :] < at[:, None])
        before += ((is_smaller | is_earlier) & (other < count)[None, :]).to(tl.int32)
    return at, number, tl.sum(before, axis=1)


@triton.jit(do_not_specialize=["count"])
def sort_few_kernel(
    numbers,  # [T]
    ordered,  # [T]
    order,  # [T]
    count,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some numbers: each goes to its place in ascending order."""
    at, number, place = count_before(numbers, count, False, ROWS, BLOCK)
    tl.store(ordered + place, number, mask=at < count)
    tl.store(order + place, at, mask=at < count)


@triton.jit(do_not_specialize=["count"])
def place_few_kernel(
    numbers,  # [T] floats
    place,  # [T]
    count,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some floats: the place of each in descending order."""
    at, _, found = count_before(numbers, count, True, ROWS, BLOCK)
    tl.store(place + at, found, mask=at < count)


def sort(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Integers in ascending order, and where each stood; equal ones stay in their order."""
    count = numbers.numel()
    if count > FEW:
        ordered, order = numbers.sort(stable=True)
        return ordered, order
    ordered = torch.empty_like(numbers)
    order = torch.empty(count, dtype=torch.int32, device=numbers.device)
    launch(sort_few_kernel, (cdiv(count, _ROWS),), plain(numbers), ordered, order, count, **_META)
    return ordered, order


def place_few(numbers: Tensor) -> Tensor:
    """The place of each float in descending order, equal ones in theirs, int32, [T]."""
    count = numbers.numel()
    place = torch.empty(count, dtype=torch.int32, device=numbers.device)
    launch(place_few_kernel, (cdiv(count, _ROWS),), plain(numbers), place, count, **_META)
    return place

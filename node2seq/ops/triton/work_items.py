"""What kernels share: the item that a program works on, rows of tables, floats in order."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def item(item_row, item_first, ptr, ITEM: tl.constexpr):
    """This program's row, where the row starts and ends, and the entries of it to work on."""
    number = tl.program_id(0)
    row = tl.load(item_row + number)
    first = tl.load(item_first + number)
    start = tl.load(ptr + row)
    end = tl.load(ptr + row + 1)
    return row, start, end, first, tl.minimum(first + ITEM, end)


@triton.jit
def rows_at(table, row, column, real, inside, width):
    """Some rows of a table, [B, C]; offsets need 64 bits from 2^31 elements on."""
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    return tl.load(table + at, mask=real[:, None] & inside[None, :], other=0)


@triton.jit
def descending(value):
    """Integers that grow as the values fall."""
    bits = value.to(tl.int32, bitcast=True)
    bits = tl.where(bits == -2147483648, 0, bits)  # −0.0 equals +0.0
    return ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))

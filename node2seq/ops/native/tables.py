"""Memory for large tables that a pass works out and then throws away.

Fresh memory comes in pages that the system has to clear, one by one: for a table that is written and read
once this takes longer than the product that fills it. So a few tables are kept for the next pass.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from node2seq.ops.sequences import lasting

# So many bytes are kept in all, for as long as the process lives.
_MOST_BYTES = 2**28

_kept: dict[int, Tensor] = {}  # bytes, by the id of their tensor; threads may take and leave at once


class Table:
    """A tensor of any content, whose memory goes to the next table when this object is gone.

    Args:
        shape (sequence): Its shape.
        dtype (torch.dtype): Its type.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        size = math.prod(shape) * dtype.itemsize
        memory = _take(size)
        self.tensor = memory[:size].view(dtype).view(tuple(shape))
        weakref.finalize(self, _leave, memory).atexit = False


def _take(size: int) -> Tensor:
    for memory in sorted(_kept.values(), key=Tensor.numel):
        # Another thread may have taken it.
        if memory.numel() >= size and _kept.pop(id(memory), None) is not None:
            return memory
    with lasting():
        return torch.empty(size, dtype=torch.uint8)


def _leave(memory: Tensor) -> None:
    _kept[id(memory)] = memory
    total = sum(other.numel() for other in list(_kept.values()))
    for oldest in list(_kept):
        if total <= _MOST_BYTES:
            break
        dropped = _kept.pop(oldest, None)
        total -= 0 if dropped is None else dropped.numel()

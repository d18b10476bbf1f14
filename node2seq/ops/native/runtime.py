"""What the loops run on: the calling thread and as many others as PyTorch would use, and scratch memory.

Numba has thread pools of its own; one of them ends a process that was forked after it was used, the other one
ends a process in which two threads use it at once. These threads are plain ones: a forked process starts its
own, and callers share them.
"""

from __future__ import annotations

import math
import os
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from node2seq.ops.sequences import lasting

# How often each kernel was run: which path was taken cannot be seen in the results.
RUNS: Counter[str] = Counter()

# So many bytes are kept in all, for as long as the process lives.
_MOST_BYTES = 2**28

_kept: dict[int, Tensor] = {}  # bytes, by the id of their tensor; threads may take and leave at once

_helpers: ThreadPoolExecutor | None = None
_size = 0


def run(kernel: Any, cuts: Sequence[int], *arguments: Any) -> None:
    """Calls ``kernel(first, last, *arguments)`` for all neighbours in ``cuts``, on several threads.

    What a kernel writes for a row may depend on that row alone: then neither the number of threads nor who
    takes which cut can be seen in the results.

    Args:
        kernel: A compiled loop over the rows ``first`` to ``last - 1``.
        cuts: Where the work is cut: rows, ascending, from the first to the end of the last.
        *arguments: What it works on; tensors are handed over as arrays on the same memory.
    """
    RUNS[kernel.__name__] += 1
    arrays = [value.numpy(force=True) if isinstance(value, Tensor) else value for value in arguments]
    threads = min(torch.get_num_threads(), len(cuts) - 1)
    if threads <= 1:
        kernel(cuts[0], cuts[-1], *arrays)
        return
    parts = iter(list(pairwise(cuts)))
    others = [_pool(threads - 1).submit(_work, kernel, parts, arrays) for _ in range(threads - 1)]
    try:
        _work(kernel, parts, arrays)
    finally:
        _wait(others)


def _work(kernel: Any, parts: Iterator[tuple[int, int]], arrays: list[Any]) -> None:
    # The threads share the iterator: each takes the next part when it is done with one.
    for first, last in parts:
        kernel(first, last, *arrays)


def _wait(others: list[Future[None]]) -> None:
    for other in others:
        # One that has not begun has nothing left to do.
        if not other.cancel():
            other.result()


def _pool(size: int) -> ThreadPoolExecutor:
    global _helpers, _size
    if _helpers is None or _size < size:
        _helpers, _size = ThreadPoolExecutor(size, thread_name_prefix="node2seq"), size
    return _helpers


def _forget() -> None:
    """In a forked process: the threads of the pool stayed behind."""
    global _helpers
    _helpers = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Scratch:
    """A table that a pass works out and then throws away: a tensor of any content.

    Fresh memory comes in pages that the system has to clear, one by one: for a table that is written and read
    once this takes longer than the product that fills it. So a few are kept: the memory goes to the next one
    when this object is gone.

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

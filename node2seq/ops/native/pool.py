"""Who runs the loops: the calling thread, and as many others as PyTorch would use.

Numba has thread pools of its own; one of them ends a process that was forked after it was used, the other one
ends a process in which two threads use it at once. These threads are plain ones: a forked process starts its
own, and callers share them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

# How often each kernel was run: which path was taken cannot be seen in the results.
RUNS: Counter[str] = Counter()

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
    arrays = [value.detach().numpy() if isinstance(value, Tensor) else value for value in arguments]
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

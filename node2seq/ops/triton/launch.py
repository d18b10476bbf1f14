"""How kernels are started: counted, with the block sizes that measured best.

Numbers that differ from graph to graph are ``do_not_specialize``: a new graph must not compile a kernel anew.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

# How often each kernel ran, by name: tests ask it which path was taken.
LAUNCHES: Counter[str] = Counter()


class Tile(NamedTuple):
    """How much of a sequence a program holds at once, and how many warps work on it."""

    block: int
    warps: int


# Threads that hold the same sum have to hold the same bits of it, or entries disagree about who stands first.
# Fused with the first addition of a sum over threads, each thread's own product would stay unrounded.
OPTIONS = {"enable_fp_fusion": False}

# By kernel; `benchmarks/bench_ops.py` measures the neighbours of each.
TILES: dict[str, Tile] = {
    "score": Tile(8, 1),
    "scored_window_sum": Tile(16, 2),
    "segment_sum": Tile(8, 2),
    "window_max": Tile(4, 1),
    "window_max_grad": Tile(4, 1),
    "window_sum": Tile(4, 1),
    "window_sum_grad": Tile(8, 1),
}
# A program's channels: 128 floats are a full line of four sectors for every lane.
WIDEST = 128
# A program's taps: more would spill; a longer kernel takes several programs per sequence.
MOST_TAPS = 16


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
    """Starts a kernel on the device of its first argument, unless there is nothing to do."""
    if 0 in grid:
        return
    LAUNCHES[kernel.fn.__name__] += 1
    with torch.cuda.device_of(args[0]):
        kernel[grid](*args, **meta, **OPTIONS)


def channel_blocks(channels: int) -> tuple[int, int]:
    """The number of blocks that channels are cut into, and their width, a power of two."""
    width = min(triton.next_power_of_2(channels), WIDEST)
    return triton.cdiv(channels, width), width


def tap_blocks(kernel_size: int) -> tuple[int, int]:
    """The number of blocks that taps are cut into, and their width, a power of two."""
    width = min(triton.next_power_of_2(kernel_size), MOST_TAPS)
    return triton.cdiv(kernel_size, width), width


def plain(x: Tensor) -> Tensor:
    """The tensor as kernels read it."""
    return x.detach().contiguous()

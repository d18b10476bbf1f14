"""The CPU backend: loops that numba compiles on the user's machine, on all cores. Loaded when first used.

Deterministic whatever the number of threads: what is written for a row depends on that row alone.
"""

from node2seq.ops.eager import aggregate, attention, largest, precedence, rank, score
from node2seq.ops.native.build_sequences import build
from node2seq.ops.native.candidates import find_lists
from node2seq.ops.native.convolve_with_root import convolve_with_root
from node2seq.ops.native.dropout import drop
from node2seq.ops.native.ranking import score_and_rank
from node2seq.ops.native.selection import select
from node2seq.ops.native.window_max import convolve_max
from node2seq.ops.native.window_sum import convolve_sum

__all__ = [
    "aggregate",
    "attention",
    "build",
    "convolve_max",
    "convolve_sum",
    "convolve_with_root",
    "drop",
    "find_lists",
    "largest",
    "precedence",
    "rank",
    "score",
    "score_and_rank",
    "select",
]

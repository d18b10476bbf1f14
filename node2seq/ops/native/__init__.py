"""The CPU backend: loops that numba compiles on the user's machine, on all cores. Loaded when first used.

Deterministic whatever the number of threads: what is written for a row depends on that row alone.
"""

from node2seq.ops.eager import aggregate, attention, largest, precedence, rank, score
from node2seq.ops.native.candidates import find_lists
from node2seq.ops.native.ranks import convolve_ranks, pair_scores, soft_ranks
from node2seq.ops.native.runtime import build, drop, linear, score_and_rank
from node2seq.ops.native.sampling import sample_hop
from node2seq.ops.native.selection import select
from node2seq.ops.native.window_max import convolve_max
from node2seq.ops.native.window_sum import convolve_sum

# The own rows go through the same product as the taps: many small products take longer than one.
ADDS_ROOT = True

__all__ = [
    "ADDS_ROOT",
    "aggregate",
    "attention",
    "build",
    "convolve_max",
    "convolve_ranks",
    "convolve_sum",
    "drop",
    "find_lists",
    "largest",
    "linear",
    "pair_scores",
    "precedence",
    "rank",
    "sample_hop",
    "score",
    "score_and_rank",
    "select",
    "soft_ranks",
]

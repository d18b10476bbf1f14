"""The GPU backend: fused kernels in Triton, deterministic, float32. Loaded when first used.

A plan per graph says who works on what; hubs are cut into items and their parts reduced in order, so that no
kernel needs an atomic. Backward passes walk over the transposed graph instead of scattering.
"""

from node2seq.ops.triton.aggregate import aggregate
from node2seq.ops.triton.attention import attention
from node2seq.ops.triton.build_sequences import build
from node2seq.ops.triton.dropout import drop
from node2seq.ops.triton.largest import largest
from node2seq.ops.triton.ranking import rank, score_and_rank
from node2seq.ops.triton.ranks import convolve_ranks, pair_scores
from node2seq.ops.triton.scores import score
from node2seq.ops.triton.selection import select
from node2seq.ops.triton.soft_ranks import soft_ranks
from node2seq.ops.triton.sorting import precedence
from node2seq.ops.triton.whole_layer import layer
from node2seq.ops.triton.window_max import convolve_max
from node2seq.ops.triton.window_sum import convolve_sum

# The own rows go through the same product as the taps.
ADDS_ROOT = True
# The rows that convolutions multiply and gather may be of 16 bits; sums are of 32.
CHOOSES_DTYPE = True

__all__ = [
    "ADDS_ROOT",
    "CHOOSES_DTYPE",
    "aggregate",
    "attention",
    "build",
    "convolve_max",
    "convolve_ranks",
    "convolve_sum",
    "drop",
    "largest",
    "layer",
    "pair_scores",
    "precedence",
    "rank",
    "score",
    "score_and_rank",
    "select",
    "soft_ranks",
]

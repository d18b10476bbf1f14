"""The fast twin in plain PyTorch: gathers by ``embedding_bag``, grouped sorts, hand-written backwards.

Deterministic on CPU and GPU: sums run over each bag in order, and what has to be scattered goes through
``index_put_(accumulate=True)`` on a GPU, which sorts, instead of ``scatter_add_``, which races.
"""

from node2seq.ops.eager.aggregate import aggregate
from node2seq.ops.eager.attention import attention
from node2seq.ops.eager.build import build
from node2seq.ops.eager.largest import largest
from node2seq.ops.eager.ranking import precedence, rank, score, score_and_rank
from node2seq.ops.eager.ranks import convolve_ranks, pair_scores, soft_ranks
from node2seq.ops.eager.whole_layer import layer
from node2seq.ops.eager.window_max import convolve_max
from node2seq.ops.eager.window_sum import convolve_sum

# A maximum over the windows of short sequences is found without them.
CHOOSES_WINNERS = True

__all__ = [
    "CHOOSES_WINNERS",
    "aggregate",
    "attention",
    "build",
    "convolve_max",
    "convolve_ranks",
    "convolve_sum",
    "largest",
    "layer",
    "pair_scores",
    "precedence",
    "rank",
    "score",
    "score_and_rank",
    "soft_ranks",
]

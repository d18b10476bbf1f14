"""Operations on ragged sequences of neighbours. Their contract and the choice of a backend: ``dispatch``."""

from node2seq.ops import eager, reference
from node2seq.ops.candidates import Candidates
from node2seq.ops.compiled import TracedSequences
from node2seq.ops.dispatch import (
    BACKEND_NAMES,
    BACKENDS,
    check_backend,
    choose_backend,
    is_exporting,
    is_tracing,
)
from node2seq.ops.dropout import counter_dropout, pair_word
from node2seq.ops.edge_values import EdgeValues, per_entry
from node2seq.ops.layer import Ranks, convolve, convolve_ranks, find_layer, hard_ranks, rank, soft_ranks
from node2seq.ops.linear import (
    SparseRows,
    add_bias,
    apply,
    dense,
    full_precision,
    initialize,
    is_plain_linear,
    linear,
    product_dtype,
    project,
    root_of,
    runs_of,
    sparse_rows,
    storage_dtype,
)
from node2seq.ops.plan_cache import PLANS, GraphNumbers, build_sequences
from node2seq.ops.sequences import Convolution, Positions, Ranking, Root, Rows, Sequences

__all__ = [
    "BACKENDS",
    "BACKEND_NAMES",
    "PLANS",
    "Candidates",
    "Convolution",
    "EdgeValues",
    "GraphNumbers",
    "Positions",
    "Ranking",
    "Ranks",
    "Root",
    "Rows",
    "Sequences",
    "SparseRows",
    "TracedSequences",
    "add_bias",
    "apply",
    "build_sequences",
    "check_backend",
    "choose_backend",
    "convolve",
    "convolve_ranks",
    "counter_dropout",
    "dense",
    "eager",
    "find_layer",
    "full_precision",
    "hard_ranks",
    "initialize",
    "is_exporting",
    "is_plain_linear",
    "is_tracing",
    "linear",
    "pair_word",
    "per_entry",
    "product_dtype",
    "project",
    "rank",
    "reference",
    "root_of",
    "runs_of",
    "soft_ranks",
    "sparse_rows",
    "storage_dtype",
]

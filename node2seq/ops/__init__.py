"""Operations on ragged sequences of neighbours: their contract, and the one place that chooses a backend.

Each backend is a module with the same functions and the same results:

=================  =======================================================================================
``score``          the inner product of each entry's target and source, [E]
``precedence``     who goes first where scores tie, [M]
``rank``           the entry at each position, by target, score descending, precedence, [E]; exact integers
``convolve_max``   the 1D convolution over each sequence and its largest window per channel, [N, D]
``convolve_sum``   the same with the sum over windows
``aggregate``      the weighted sum of each target's sources, [N, D]; differentiable in the weights too
``attention``      the softmax over each sequence of an activated sum of two terms, [E]
``largest``        the largest weighted source values of each sequence, channel by channel, [N, k, D]
=================  =======================================================================================

and may have ``arrange``, which scores and ranks in one step, ``select``, the whole non-local selection, and
``layer``, which convolves, reads out and adds the own features and the bias in one step.

``reference`` can be traced and differentiated by autograd; ``eager`` is fast and has backwards of its own;
``native`` holds loops for CPUs that numba compiles, ``triton`` fused kernels for GPUs and float32. Both are
imported when first used. Under ``torch.compile`` they run within the opaque ops of ``compiled``; what is
exported takes ``reference``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from node2seq.errors import Node2SeqError
from node2seq.ops import eager, fixed_order, reference
from node2seq.ops.backends import (
    BACKEND_NAMES,
    BACKENDS,
    arrange,
    check_backend,
    convolve,
    layer,
    running_backend,
)
from node2seq.ops.candidates import Candidates
from node2seq.ops.compiled import CompiledBackend, Graph, TracedRanking, TracedSequences
from node2seq.ops.dropout import counter_dropout, pair_word
from node2seq.ops.linear import add_bias, apply, dense, linear, runs_of
from node2seq.ops.plan import PLANS, build_sequences, find_sequences, is_exporting, is_tracing
from node2seq.ops.selection import Ranking
from node2seq.ops.sequences import Rows, Sequences
from node2seq.ops.sparse import SparseRows, sparse_rows

__all__ = [
    "BACKENDS",
    "BACKEND_NAMES",
    "PLANS",
    "Candidates",
    "Graph",
    "Ranking",
    "Rows",
    "Sequences",
    "SparseRows",
    "TracedSequences",
    "add_bias",
    "apply",
    "arrange",
    "build_sequences",
    "check_backend",
    "choose_backend",
    "convolve",
    "counter_dropout",
    "dense",
    "eager",
    "find_sequences",
    "is_exporting",
    "is_tracing",
    "layer",
    "linear",
    "pair_word",
    "rearrange",
    "reference",
    "runs_of",
    "sparse_rows",
]

_CANNOT_EXPORT = {
    "eager": "its grouped sorts depend on values",
    "native": "its loops are compiled by numba, which PyTorch cannot look into",
    "triton": "the sizes of its work depend on values",
}


def choose_backend(name: str, x: Tensor, entries: int = 0) -> Any:
    """The backend to run now: the fastest that can, or the one asked for, or an error if it cannot.

    Args:
        name (str): The user's choice.
        x (torch.Tensor): The features that it is to work on.
        entries (int): The number of entries of all sequences together; few are not worth loading numba.
    """
    if is_exporting():
        if name in _CANNOT_EXPORT:
            raise Node2SeqError(
                f"backend={name!r}",
                f"{_CANNOT_EXPORT[name]} and cannot be exported",
                "Use backend='auto' or 'reference' here",
            )
        return reference
    if torch.compiler.is_compiling():
        return CompiledBackend(name)
    return running_backend(name, x, entries)


def rearrange(ranking: Any, sequences: Sequences, seed: Tensor | None) -> Any:
    """Sorts what was chosen by a fixed order; see :func:`node2seq.ops.fixed_order.rearrange`."""
    if isinstance(ranking, TracedRanking):
        return ranking.rearrange(seed)
    return fixed_order.rearrange(ranking, sequences, seed)

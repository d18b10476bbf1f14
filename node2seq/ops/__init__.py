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

``reference`` can be traced and differentiated by autograd; ``eager`` is fast and has backwards of its own.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from node2seq.errors import Node2SeqError, check_choice
from node2seq.ops import eager, reference
from node2seq.ops.dropout import Dropout, counter_dropout, pair_word
from node2seq.ops.order import rearrange
from node2seq.ops.plan import PLANS, build_sequences, check_ids, is_tracing
from node2seq.ops.reach import Reach
from node2seq.ops.selection import Ranking, select
from node2seq.ops.sequences import Rows, Sequences

__all__ = [
    "BACKENDS",
    "PLANS",
    "Dropout",
    "Ranking",
    "Reach",
    "Rows",
    "Sequences",
    "arrange",
    "build_sequences",
    "check_backend",
    "check_ids",
    "choose_backend",
    "counter_dropout",
    "is_tracing",
    "pair_word",
    "rearrange",
]

BACKENDS: dict[str, ModuleType] = {"reference": reference, "eager": eager}


def check_backend(name: str) -> None:
    """Raises an error if there is no backend of that name."""
    check_choice("backend", name, ["auto", *BACKENDS])


def choose_backend(name: str) -> ModuleType:
    """The backend to run now: the fastest that can, or the one asked for, or an error if it cannot."""
    if torch.compiler.is_compiling():
        if name == "eager":
            raise Node2SeqError(
                "backend='eager'",
                "its grouped sorts depend on values and cannot be compiled or exported",
                "Use backend='auto' or 'reference' here",
            )
        return reference
    return BACKENDS["eager" if name == "auto" else name]


def arrange(
    query: Tensor,
    key: Tensor,
    sequences: Sequences,
    *,
    reach: Reach | None = None,
    hops: int = 1,
    threshold: float = 0.0,
    joint: bool = True,
    backend: ModuleType,
) -> Ranking:
    """Equations 2 to 4: score each target's neighbours, select, and rank. No gradient passes through.

    Args:
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [M, D].
        sequences (Sequences): The neighbours of each target.
        reach (Reach, optional): Who lies within several hops; looked up anew if not given.
        hops (int): ℓ; with one hop nothing is selected.
        threshold (float): β.
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
        backend: The module that :func:`choose_backend` chose.
    """
    with torch.no_grad():
        score = backend.score(query, key, sequences)
        order_of_ties = backend.precedence((key * key).sum(-1))
        if hops == 1:
            order = backend.rank(score, order_of_ties, sequences)
            return Ranking(sequences.index[order], score[order], order)
        if torch.compiler.is_compiling():
            rows = sequences.rows
            return Ranking(
                *_select_traced(query, key, rows.ptr, rows.target, sequences.index, hops, threshold, joint)
            )
        reach = reach or Reach(sequences, hops)
        return select(backend, query, key, score, order_of_ties, sequences, reach, threshold, joint)


@torch.library.custom_op("node2seq::select", mutates_args=())
def _select_traced(
    query: Tensor,
    key: Tensor,
    ptr: Tensor,
    target: Tensor,
    index: Tensor,
    hops: int,
    threshold: float,
    joint: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The selection as one opaque step of a traced graph: only its inside depends on values."""
    kept = int(ptr[-1])
    sequences = Sequences(Rows(ptr, target[:kept]), index[:kept], key.size(0))
    ranking = arrange(query, key, sequences, hops=hops, threshold=threshold, joint=joint, backend=eager)
    left_over = index.numel() - kept
    return (
        torch.cat([ranking.node, index.new_zeros(left_over)]),
        torch.cat([ranking.score, ranking.score.new_zeros(left_over)]),
        torch.cat([ranking.entry, index.new_zeros(left_over)]),
    )


@_select_traced.register_fake
def _(query: Tensor, _key: Tensor, _ptr: Tensor, _target: Tensor, index: Tensor, *_: object) -> tuple:
    return torch.empty_like(index), query.new_empty(index.shape), torch.empty_like(index)

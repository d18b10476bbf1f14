"""Which backend runs: the fastest that can, or the one asked for; and ranking with whatever it has."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from node2seq.errors import Node2SeqError, check_choice
from node2seq.ops import eager, reference
from node2seq.ops.candidates import Candidates
from node2seq.ops.late import NATIVE_DTYPES, fastest_for, fused_kernels, native_loops
from node2seq.ops.linear import add_bias, linear
from node2seq.ops.selection import Ranking, select
from node2seq.ops.sequences import Rows, Sequences

# Those that run everywhere.
BACKENDS: dict[str, ModuleType] = {"reference": reference, "eager": eager}
BACKEND_NAMES = ("auto", *BACKENDS, "native", "triton")


def check_backend(name: str) -> None:
    """Raises an error if there is no backend of that name."""
    check_choice("backend", name, BACKEND_NAMES)


def running_backend(name: str, x: Tensor, entries: int) -> ModuleType:
    """The backend to run now where nothing is traced; see :func:`node2seq.ops.choose_backend`."""
    if name == "auto":
        return fastest_for(x, entries) or eager
    if name == "native":
        return _native_for(x)
    if name == "triton":
        return _triton_for(x)
    return BACKENDS[name]


def _native_for(x: Tensor) -> ModuleType:
    """The compiled loops, or an error if they cannot work on ``x``."""
    loops = native_loops()
    if loops is None:
        raise Node2SeqError(
            "backend='native'",
            "numba is not installed",
            "Use backend='auto', or pip install 'node2seq[native]'",
        )
    if x.device.type != "cpu" or x.dtype not in NATIVE_DTYPES:
        raise Node2SeqError(
            f"backend='native' with {x.dtype} features on {x.device}",
            "its loops work in float32 and float64 on a CPU",
            "Use backend='auto', which takes another backend where it has to",
        )
    return loops


def _triton_for(x: Tensor) -> ModuleType:
    """The fused kernels, or an error if they cannot work on ``x``."""
    fused = fused_kernels()
    if fused is None:
        raise Node2SeqError(
            "backend='triton'", "Triton is not installed", "Use backend='auto', or pip install triton"
        )
    # Triton's interpreter runs the kernels on a CPU, for tests.
    runs_there = x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
    if not runs_there or x.dtype != torch.float32:
        raise Node2SeqError(
            f"backend='triton' with {x.dtype} features on {x.device}",
            "its kernels work in float32 on an NVIDIA GPU",
            "Use backend='auto', which takes another backend where it has to",
        )
    return fused


def arrange(
    query: Tensor,
    key: Tensor,
    sequences: Sequences,
    *,
    candidates: Candidates | None = None,
    hops: int = 1,
    threshold: float | Tensor = 0.0,
    joint: bool = True,
    backend: ModuleType,
) -> Ranking:
    """Equations 2 to 4: score each target's neighbours, select, and rank. No gradient passes through.

    Args:
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [M, D].
        sequences (Sequences): The neighbours of each target.
        candidates (Candidates, optional): Who lies within several hops; looked up anew if not given.
        hops (int): ℓ; with one hop nothing is selected.
        threshold (float or torch.Tensor): β; one for all, or one for each target, [N].
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
        backend: The module that :func:`choose_backend` chose.
    """
    with torch.no_grad():
        if hops == 1 and hasattr(backend, "arrange"):  # fused; gives the rest when asked
            return backend.arrange(query, key, sequences)
        if hops > 1 and hasattr(backend, "select"):
            return backend.select(
                query, key, sequences, candidates or Candidates(sequences, hops), threshold, joint
            )
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
        candidates = candidates or Candidates(sequences, hops)
        return select(backend, query, key, score, order_of_ties, sequences, candidates, threshold, joint)


def convolve(
    x: Tensor, weight: Tensor, ranked: Any, readout: str, backend: Any
) -> tuple[Tensor, Tensor | None]:
    """Equations 5 and 6: the readout [N, D] and, of a maximum, the winning window of each channel.

    Args:
        x (torch.Tensor): The sources' projections, [M, C].
        weight (torch.Tensor): The taps, [K, C, D].
        ranked: The sequences in their order, as the backend has them.
        readout (str): ``max``, ``mean`` or ``sum``.
        backend: The module that :func:`choose_backend` chose.
    """
    if readout == "max":
        return backend.convolve_max(x, weight, ranked)
    out = backend.convolve_sum(x, weight, ranked)
    if readout == "mean":
        out = out / ranked.rows.windows(weight.size(-3))[:, None]
    return out, None


def layer(
    x: Tensor, weight: Tensor, root: Tensor, bias: Tensor | None, ranked: Any, readout: str, backend: Any
) -> tuple[Tensor, Tensor | None]:
    """Equations 5 to 7 where sources are targets: the same, and the own rows with their bias."""
    if hasattr(backend, "layer"):
        return backend.layer(x, weight, root, bias, ranked, readout)
    out, winner = convolve(x, weight, ranked, readout, backend)
    runs = root.shape[:-2]  # none, or R
    own = linear(x.view(*runs, -1, x.size(-1)), root)
    return add_bias(out.view(own.shape) + own, bias).view(out.shape), winner


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

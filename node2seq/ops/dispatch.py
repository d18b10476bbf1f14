"""The contract of the backends, and the one place that chooses among them.

Each backend is a module with the same functions and the same results:

=================  =======================================================================================
``score``          the inner product of each entry's target and source, [E]
``precedence``     who goes first where scores tie, [M]
``rank``           the entry at each position, by target, score descending, precedence, [E]; exact integers
``convolve_max``   the 1D convolution over each sequence and its largest window per channel, [N, D]
``convolve_sum``   the same with the sum over windows, or with their mean
``aggregate``      the weighted sum of each target's sources, [N, D]; differentiable in the weights too
``attention``      the softmax over each sequence of an activated sum of two terms, [E]
``largest``        the largest weighted source values of each sequence, channel by channel, [N, k, D]
``pair_scores``    ``score`` with gradients to both sides
``soft_ranks``     how much of each entry stands at each of the first ranks, [K, E]; differentiable
``convolve_ranks`` a matrix for each rank and one for the mean of all, [N, D]; differentiable in the ranks too
=================  =======================================================================================

and may have functions that take several of these steps at once:

======================  ==================================================================================
``score_and_rank``      from features to a :class:`node2seq.ops.sequences.Ranking`
``layer``               from features to the output, local neighbours sorted by attention
``select``              the whole non-local selection, to a :class:`node2seq.ops.sequences.Ranking` too
``build``               from edges to sequences, or nothing if the backend has no way of its own for them
``drop``                counter-based dropout
``linear``              rows times a weight, or nothing where PyTorch is as quick
======================  ==================================================================================

The convolutions of a backend with ``ADDS_ROOT`` take the weights of the own features and the bias: equations
5 to 7 in one step, for graphs whose sources are their targets. A backend with ``CHOOSES_DTYPE`` takes the
``dtype`` of what its convolutions multiply and gather; the ``convolve_max`` of one with ``CHOOSES_WINNERS``
takes whether the winners are asked for.

``reference`` can be traced and differentiated by autograd; ``eager`` is fast and has backwards of its own;
``native`` holds loops for CPUs that numba compiles, ``triton`` fused kernels for GPUs and float32. Both are
imported when first used. Under ``torch.compile`` they run within the opaque ops of
:mod:`node2seq.ops.compiled`; what is exported, and what ``torch.func`` transforms, takes ``reference``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]

from node2seq.errors import Node2SeqError
from node2seq.ops import eager, reference
from node2seq.options import check_choice

# Those that run everywhere.
BACKENDS: dict[str, ModuleType] = {"reference": reference, "eager": eager}
BACKEND_NAMES = ("auto", *BACKENDS, "native", "triton")

NATIVE_DTYPES = (torch.float32, torch.float64)

_CANNOT_EXPORT = {
    "eager": "its grouped sorts depend on values",
    "native": "its loops are compiled by numba, which PyTorch cannot look into",
    "triton": "the sizes of its work depend on values",
}

# What wraps a backend while a graph is compiled. `compiled` is built on this module and enters itself here.
WRAPPERS: list[Callable[[str], Any]] = []


def check_backend(name: str) -> None:
    """Raises an error if there is no backend of that name."""
    check_choice("backend", name, BACKEND_NAMES)


def choose_backend(name: str, x: Tensor, dtype: torch.dtype | None = None) -> Any:
    """The backend to run now: the fastest that can, or the one asked for, or an error if it cannot.

    The choice depends on what is installed and on the features' type and device, not on the graph: so it is
    the same in every process, and with it every bit of the results.

    Args:
        name (str): The user's choice.
        x (torch.Tensor): The features that it is to work on.
        dtype (torch.dtype, optional): The type in which it is to work on them, if it is not theirs.
    """
    dtype = dtype or x.dtype
    if torch.compiler.is_compiling():
        if not is_exporting():
            return WRAPPERS[0](name)
        if name in _CANNOT_EXPORT:
            raise Node2SeqError(
                f"backend={name!r}",
                f"{_CANNOT_EXPORT[name]} and cannot be exported",
                "Use backend='auto' or 'reference' here",
            )
        return reference
    if is_transformed():
        if name not in ("auto", "reference"):
            raise Node2SeqError(
                f"backend={name!r} within torch.func",
                "transforms need operations that PyTorch can see into",
                "Use backend='auto' or 'reference' here",
            )
        return reference
    if name == "auto":
        return _fastest_for(x, dtype) or eager
    if name == "native":
        return _native_for(x, dtype)
    if name == "triton":
        return _triton_for(x, dtype)
    return BACKENDS[name]


def fastest_for(x: Tensor) -> ModuleType | None:
    """The loops or the kernels if they can work on such values."""
    return None if is_transformed() else _fastest_for(x, x.dtype)


def _fastest_for(x: Tensor, dtype: torch.dtype) -> ModuleType | None:
    if x.is_cuda:
        return fused_kernels() if dtype == torch.float32 else None
    return compiled_loops() if x.device.type == "cpu" and dtype in NATIVE_DTYPES else None


def compiled_loops() -> ModuleType | None:
    """The backend of loops that numba compiles, or nothing without numba."""
    return _load("native", "numba", "llvmlite")


def fused_kernels() -> ModuleType | None:
    """The backend of Triton's fused kernels, or nothing without Triton."""
    return _load("triton", "triton")


@cache
def _load(name: str, *needed: str) -> ModuleType | None:
    """A backend, or nothing where a package that it needs is not installed."""
    try:
        return import_module(f"node2seq.ops.{name}")
    except ModuleNotFoundError as error:
        if error.name not in needed:
            raise
        return None


def _native_for(x: Tensor, dtype: torch.dtype) -> ModuleType:
    """The compiled loops, or an error if they cannot work on ``x``."""
    loops = compiled_loops()
    if loops is None:
        raise Node2SeqError(
            "backend='native'",
            "numba is not installed",
            "Use backend='auto', or pip install 'node2seq[native]'",
        )
    if x.device.type != "cpu" or dtype not in NATIVE_DTYPES:
        raise Node2SeqError(
            f"backend='native' with {dtype} features on {x.device}",
            "its loops work in float32 and float64 on a CPU",
            "Use backend='auto', which takes another backend where it has to",
        )
    return loops


def _triton_for(x: Tensor, dtype: torch.dtype) -> ModuleType:
    """The fused kernels, or an error if they cannot work on ``x``."""
    fused = fused_kernels()
    if fused is None:
        raise Node2SeqError(
            "backend='triton'", "Triton is not installed", "Use backend='auto', or pip install triton"
        )
    # Triton's interpreter runs the kernels on a CPU, for tests.
    runs_there = x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
    if not runs_there or dtype != torch.float32:
        raise Node2SeqError(
            f"backend='triton' with {dtype} features on {x.device}",
            "its kernels work in float32 on an NVIDIA GPU",
            "Use backend='auto', which takes another backend where it has to",
        )
    return fused


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is under way."""
    return not torch.compiler.is_compiling() and _functorch.peek_interpreter_stack() is not None


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor is one that a transform of ``torch.func`` differentiates or batches."""
    return is_transformed() and _functorch.is_functorch_wrapped_tensor(tensor)


def is_tracing() -> bool:
    """Whether values cannot be looked at: while compiling, exporting, capturing a CUDA graph, or within a
    transform of ``torch.func``.
    """
    if torch.compiler.is_compiling() or is_transformed():
        return True
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def is_exporting() -> bool:
    """Whether what is traced has to run without this package.

    PyTorch's function of that name is no help: up to 2.11 it says so whenever ``torch.compile`` asks.
    """
    return torch.compiler._is_exporting_flag

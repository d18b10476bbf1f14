"""Dropout as a function of (seed, step, layer, element), not a draw from a shared stream.

What a run drops then does not depend on what runs beside it, on how batches are cut, or on where it was
interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from node2seq.ops.dispatch import fastest_for, is_exporting

WORD = 2**32
_LARGEST = 2**31 - 1
_IDS_PER_GRAPH = 2**24
# Odd multipliers with well-mixed bits, as signed 32-bit integers: products wrap around.
SPREAD = 0x9E3779B1 - WORD
MIX_1 = 0x7FEB352D
MIX_2 = 0x846CA68B - WORD


def _mix(word: Tensor) -> Tensor:
    """Scrambles 32-bit words so that words next to each other have nothing in common."""
    # The masks cut off copies of the sign bit, which a shift of signed words brings in from the left.
    word = (word ^ (word >> 16 & 0xFFFF)) * MIX_1
    word = (word ^ (word >> 15 & 0x1FFFF)) * MIX_2
    return word ^ (word >> 16 & 0xFFFF)


def _as_word(value: Tensor) -> Tensor:
    """Folds a 64-bit integer into 32 bits."""
    return (value ^ (value >> 32)).to(torch.int32)


def counter_dropout(
    x: Tensor,
    p: float | Tensor,
    seed: Tensor,
    step: Tensor,
    layer: int,
    nodes: Tensor | None = None,
    whole_rows: bool = False,
) -> Tensor:
    """Drops each element with probability ``p`` and scales the rest by 1 / (1 − p).

    With R seeds it does so for R runs: each drops what it would drop alone.

    Args:
        x (torch.Tensor): The features of N nodes, [N, C]; or those of each of R runs, [R, N, C]; or, with one
            seed, those of B graphs, [B, N, C], each of which drops other elements.
        p (float or torch.Tensor): The probability, in [0, 1); or one for each of R runs, [R], float64.
        seed (torch.Tensor): The seed, int64; or one for each of R runs, [R]: the result is [R, N, C] then.
        step (torch.Tensor): The number of the training step, int64, like ``seed``.
        layer (int): Which dropout of the network this is.
        nodes (torch.Tensor, optional): The global ids of the rows where ``x`` is a part of a larger graph.
        whole_rows (bool): Whether a node is dropped as a whole, or element by element.
    """
    if not isinstance(p, Tensor) and p == 0:
        return x
    if x.dim() == 3 and not seed.dim():
        if nodes is not None:  # ids apart from those of the other graphs
            graph = torch.arange(x.size(0), device=x.device)[:, None]
            nodes = (nodes + graph * _IDS_PER_GRAPH).view(-1)
        return counter_dropout(x.flatten(0, 1), p, seed, step, layer, nodes, whole_rows).view(x.shape)
    is_tracing, fuses = torch.compiler.is_compiling(), x.is_cuda and x.dtype == torch.float32
    if fuses and is_tracing and not is_exporting():
        rate, rates = (0.0, p) if isinstance(p, Tensor) else (p, None)
        return _drop_compiled(x, rate, rates, seed, step, layer, nodes, whole_rows)[0]
    kernels = None if is_tracing else fastest_for(x)
    if kernels is not None:
        # A module counts its steps up in place: the backward pass needs this one.
        now = {"seed": seed.clone(), "step": step.clone(), "layer": layer}
        drop = partial(kernels.drop, p=p, **now, nodes=nodes, whole_rows=whole_rows)
        return _InOnePass.apply(x, drop)  # pyright: ignore[reportReturnType]
    if nodes is None:
        nodes = torch.arange(x.size(-2), device=x.device)
    least, scale = least_word(p), scale_of(p, x.dtype)
    keep = _keep_traced if is_tracing else _keep
    if isinstance(least, int):
        least = torch.full((1,), least, dtype=torch.int32, device=x.device)
    kept = keep(nodes, 1 if whole_rows else x.size(-1), least, seed.reshape(-1), step.reshape(-1), layer)
    kept = kept if seed.dim() else kept[0]
    return torch.where(kept, (x * scale).to(x.dtype), 0.0)


class _InOnePass(torch.autograd.Function):
    """Linear in x, so that the backward pass is the same once more, with the words computed again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, drop: Callable[[Tensor], Tensor]) -> Tensor:
        out = drop(x)
        ctx.drop, ctx.is_shared = drop, out.dim() > x.dim()
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        out: Any = _InOnePass.apply(grad, ctx.drop)
        return out.sum(0) if ctx.is_shared else out, None


def least_word(p: float | Tensor) -> int | Tensor:
    """The smallest of the 2^32 words, seen as signed integers, that does not drop its element."""
    if isinstance(p, Tensor):
        return ((p.double() * WORD).round() - WORD // 2).clamp(max=_LARGEST).to(torch.int32)
    return min(round(p * WORD) - WORD // 2, _LARGEST)


def scale_of(p: float | Tensor, dtype: torch.dtype) -> float | Tensor:
    """What the kept elements are multiplied by; with one for each run, [R, 1, 1]."""
    if isinstance(p, Tensor):
        # At least float32, as PyTorch multiplies by a number.
        return (1.0 / (1.0 - p.double())).to(torch.promote_types(dtype, torch.float32))[:, None, None]
    return 1.0 / (1.0 - p)


def streams(seed: Tensor, step: Tensor, layer: int) -> Tensor:
    """A word for each run, which the words of its elements are made from, [R]."""
    stream = _mix(_as_word(seed) * SPREAD + layer)
    return _mix(stream ^ _mix(_as_word(step) * SPREAD + 1))


def _keep(nodes: Tensor, channels: int, least: Tensor, seed: Tensor, step: Tensor, layer: int) -> Tensor:
    """Whether to keep each element of each run, [R, N, C]: whether its word is at least ``least``."""
    stream = streams(seed, step, layer)
    element = nodes.to(torch.int32)[:, None] * channels + torch.arange(
        channels, dtype=torch.int32, device=nodes.device
    )
    word = _mix(element * SPREAD + stream[:, None, None])
    return word >= least[:, None, None]


# One opaque step of a traced graph, whose result is kept for the backward pass. What a compiler can see
# through it works out again there, from a step that was counted up since: other elements would be dropped.
_keep_traced = torch.library.custom_op("node2seq::keep", _keep, mutates_args=())


@_keep_traced.register_fake
def _(nodes: Tensor, channels: int, least: Tensor, seed: Tensor, step: Tensor, layer: int) -> Tensor:  # noqa: ARG001
    return nodes.new_empty(seed.numel(), nodes.numel(), channels, dtype=torch.bool)


@torch.library.custom_op("node2seq::drop", mutates_args=())
def _drop_compiled(
    x: Tensor,
    rate: float,
    rates: Tensor | None,
    seed: Tensor,
    step: Tensor,
    layer: int,
    nodes: Tensor | None,
    whole_rows: bool,
) -> tuple[Tensor, Tensor]:
    """The fused kernel as one opaque step; and the seed and the step as they were, for the backward pass."""
    p = rate if rates is None else rates
    dropped = counter_dropout(x, p, seed, step, layer, nodes, whole_rows)
    return dropped.contiguous(), torch.stack([seed, step])


@_drop_compiled.register_fake
def _(
    x: Tensor, _rate: float, _rates: Tensor | None, seed: Tensor, *_: int | Tensor | None
) -> tuple[Tensor, Tensor]:
    shape = (seed.numel(), *x.shape) if seed.dim() and x.dim() == 2 else x.shape
    return x.new_empty(shape), seed.new_empty((2, *seed.shape))


def _keep_state(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    x, rate, rates, _, _, layer, nodes, whole_rows = inputs
    ctx.save_for_backward(rates, output[1], nodes)
    ctx.is_shared, ctx.options = output[0].dim() > x.dim(), (rate, layer, whole_rows)


def _drop_gradient(ctx: Any, grad: Tensor, _state: Tensor) -> tuple[Tensor | None, ...]:
    """Linear in x, so that the backward pass is the same once more."""
    rates, (seed, step), nodes = ctx.saved_tensors
    rate, layer, whole_rows = ctx.options
    grad, _ = _drop_compiled(grad, rate, rates, seed, step, layer, nodes, whole_rows)
    return grad.sum(0) if ctx.is_shared else grad, *[None] * 7


_drop_compiled.register_autograd(_drop_gradient, setup_context=_keep_state)


def pair_word(seed: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """A random 32-bit word for each pair of ids, the same whenever the same seed and pair are asked for."""
    return _mix(_mix(_as_word(first) * SPREAD + _mix(_as_word(seed))) ^ (_as_word(second) * SPREAD))

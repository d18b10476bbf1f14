"""Counter-based dropout in one pass: words, choice and scale together, and no mask kept for the backward."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops import dropout
from node2seq.ops.triton.launch import Tile, cdiv, launch

_TILE = Tile(1024, 4)
SPREAD = tl.constexpr(dropout.SPREAD)
MIX_1 = tl.constexpr(dropout.MIX_1)
MIX_2 = tl.constexpr(dropout.MIX_2)


@triton.jit
def mix(word):
    """As the function of that name in :mod:`node2seq.ops.dropout`, bit for bit."""
    word = (word ^ ((word >> 16) & 0xFFFF)) * MIX_1
    word = (word ^ ((word >> 15) & 0x1FFFF)) * MIX_2
    return word ^ ((word >> 16) & 0xFFFF)


@triton.jit
def as_word(value):
    """Folds a 64-bit integer into 32 bits."""
    return (value ^ (value >> 32)).to(tl.int32)


@triton.jit
def least_word(p):
    """The smallest word that does not drop its element; halves are rounded to even, as PyTorch does."""
    dropped = p * 4294967296.0
    whole = dropped.to(tl.int64)
    rest = dropped - whole.to(tl.float64)
    whole += ((rest > 0.5) | ((rest == 0.5) & ((whole & 1) == 1))).to(tl.int64)
    return tl.minimum(whole - 2147483648, 2147483647)


@triton.jit
def store_run(out, value, element, inside, run, p, seed, step, layer, PER_RUN: tl.constexpr):
    """What one run keeps of some elements."""
    rate = tl.load(p + run) if PER_RUN else tl.load(p)
    stream = mix(as_word(tl.load(seed + run)) * SPREAD + layer)
    stream = mix(stream ^ mix(as_word(tl.load(step + run)) * SPREAD + 1))
    word = mix(element * SPREAD + stream)
    scale = (1.0 / (1.0 - rate)).to(tl.float32)
    tl.store(out, tl.where(word.to(tl.int64) >= least_word(rate), value * scale, 0.0), mask=inside)


@triton.jit(do_not_specialize=["layer", "size", "runs"])
def drop_kernel(
    x,  # [N, C] or [R, N, C]
    out,  # [R, N, C]
    p,  # [R], or one
    seed,  # [R]
    step,  # [R]
    nodes,  # [N], or anything
    layer,
    C,
    size,
    runs,
    SHARED: tl.constexpr,
    PER_RUN: tl.constexpr,
    HAS_NODES: tl.constexpr,
    WHOLE_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some elements, of one run or, where all runs share their features, of every run."""
    flat = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = flat < size
    element = flat.to(tl.int32)
    if HAS_NODES or WHOLE_ROWS:
        row = flat // C
        element = row.to(tl.int32)
        if HAS_NODES:
            element = tl.load(nodes + row, mask=inside, other=0).to(tl.int32)
        if not WHOLE_ROWS:
            element = element * C + (flat - row * C).to(tl.int32)
    if SHARED:
        value = tl.load(x + flat, mask=inside, other=0.0)
        for run in range(runs):
            at = out + tl.cast(run, tl.int64) * size + flat
            store_run(at, value, element, inside, run, p, seed, step, layer, PER_RUN)
    else:
        run = tl.program_id(1)
        at = run.to(tl.int64) * size + flat
        value = tl.load(x + at, mask=inside, other=0.0)
        store_run(out + at, value, element, inside, run, p, seed, step, layer, PER_RUN)


def drop(
    x: Tensor,
    p: float | Tensor,
    seed: Tensor,
    step: Tensor,
    layer: int,
    nodes: Tensor | None,
    whole_rows: bool,
) -> Tensor:
    """What :func:`node2seq.ops.counter_dropout` does, for float32, bit for bit; no gradient."""
    x = x.contiguous()
    rate = p.double() if isinstance(p, Tensor) else torch.full((1,), p, dtype=torch.float64, device=x.device)
    is_shared = seed.dim() > 0 and x.dim() == 2
    out = x.new_empty(seed.numel(), *x.shape) if is_shared else torch.empty_like(x)
    runs, size = seed.numel(), x.size(-1) * x.size(-2)
    launch(
        drop_kernel,
        (cdiv(size, _TILE.block), 1 if is_shared else runs),
        x,
        out,
        rate,
        seed,
        step,
        seed if nodes is None else nodes.contiguous(),
        layer,
        x.size(-1),
        size,
        runs,
        SHARED=is_shared,
        PER_RUN=rate.numel() > 1,
        HAS_NODES=nodes is not None,
        WHOLE_ROWS=whole_rows,
        BLOCK=_TILE.block,
        num_warps=_TILE.warps,
    )
    return out

"""Counter-based dropout in one pass: words, choice and scale together, and no mask kept for the backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from node2seq.ops import dropout
from node2seq.ops.native import kernels
from node2seq.ops.native.pool import run

# What rows are cut into, for threads to take the next when they are done with one.
_PARTS = 16


def drop(
    x: Tensor,
    p: float | Tensor,
    seed: Tensor,
    step: Tensor,
    layer: int,
    nodes: Tensor | None,
    whole_rows: bool,
) -> Tensor:
    """What :func:`node2seq.ops.counter_dropout` does, bit for bit, for float32 and float64."""
    stream = dropout.streams(seed.reshape(-1), step.reshape(-1), layer)
    return _Drop.apply(x, p, stream, seed.dim() > 0, nodes, whole_rows)  # pyright: ignore[reportReturnType]


class _Drop(torch.autograd.Function):
    """Linear in x, so that the backward pass is the same once more, with the words worked out anew."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        p: float | Tensor,
        stream: Tensor,
        is_stacked: bool,
        nodes: Tensor | None,
        whole_rows: bool,
    ) -> Tensor:
        ctx.is_shared = is_stacked and x.dim() == 2
        ctx.options = (p, stream, is_stacked, nodes, whole_rows)
        runs, (rows, channels) = stream.numel(), x.shape[-2:]
        features = x.contiguous().view(-1, rows, channels)
        out = features.new_empty(runs, rows, channels)
        node = torch.arange(rows) if nodes is None else nodes
        least = torch.as_tensor(dropout.least_word(p)).long().expand(runs) + dropout.WORD // 2
        scale = torch.as_tensor(dropout.scale_of(p, x.dtype), dtype=x.dtype).reshape(-1).expand(runs)
        words = (stream.long() % dropout.WORD).numpy().view("uint64")
        thresholds = least.contiguous().numpy().view("uint64")
        run(
            kernels.drop,
            [runs * rows * part // _PARTS for part in range(_PARTS + 1)],
            features,
            node.contiguous(),
            whole_rows,
            words,
            thresholds,
            scale.contiguous(),
            out,
        )
        return out if is_stacked else out[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        out: Any = _Drop.apply(grad, *ctx.options)
        return out.sum(0) if ctx.is_shared else out, None, None, None, None, None

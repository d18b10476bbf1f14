"""Counter-based dropout in one pass: words, choice and scale together, and no mask kept for the backward."""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops import dropout
from node2seq.ops.native import kernels
from node2seq.ops.native.runtime import run

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
    """What :func:`node2seq.ops.counter_dropout` does, for float32 and float64, bit for bit; no gradient."""
    stream = dropout.streams(seed.reshape(-1), step.reshape(-1), layer)
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
    return out if seed.dim() else out[0]

"""Dropout as a module that counts its own steps."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from node2seq.errors import Node2SeqError
from node2seq.nn.steps import step_of_pass
from node2seq.ops.dropout import counter_dropout
from node2seq.ops.sparse import SparseRows

Features = TypeVar("Features", Tensor, SparseRows)


class Dropout(nn.Module):
    """Counter-based dropout that counts its own steps.

    The seed is drawn from PyTorch's global generator when the module is made or reset. Seed and step are
    buffers: a state dict is all that it takes to resume exactly where a run was interrupted.

    Under :mod:`torch.utils.checkpoint` a recomputed pass drops the same elements as the first one, in
    compiled code too. This needs ``preserve_rng_state=True``, the default; without it, the backward pass
    raises an error. A checkpointed pass draws one number from PyTorch's global generator. Two passes that
    start from the same generator state, before either is recomputed, drop the same elements.

    Args:
        p (float or torch.Tensor): The probability of dropping an element; or one for each of R runs, [R],
            float64, next to as many seeds and steps.
        layer (int): Which dropout of the network this is.
        whole_rows (bool): Whether to drop nodes as a whole.
    """

    p: float | Tensor
    seed: Tensor
    step: Tensor

    def __init__(self, p: float | Tensor, layer: int, whole_rows: bool = False) -> None:
        if not isinstance(p, Tensor) and not 0.0 <= p < 1.0:
            raise Node2SeqError(
                f"dropout {p!r}", "it is the probability of dropping an element", "Pass a number in [0, 1)"
            )
        super().__init__()
        if isinstance(p, Tensor):
            self.register_buffer("p", p, persistent=False)
        else:
            self.p = p
        self.layer = layer
        self.whole_rows = whole_rows
        runs = p.shape if isinstance(p, Tensor) else ()
        self.register_buffer("seed", torch.zeros(runs, dtype=torch.int64))
        self.register_buffer("step", torch.zeros(runs, dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a new seed and starts counting from zero."""
        self.seed.copy_(torch.randint(2**62, self.seed.shape))
        self.step.zero_()

    @property
    def drops(self) -> bool:
        """Whether the next call may drop anything."""
        return self.training and (isinstance(self.p, Tensor) or self.p != 0)

    def forward(self, x: Features, nodes: Tensor | None = None) -> Features:
        """Drops elements of ``x`` while training."""
        if not self.drops:
            return x
        step, count = step_of_pass(self.seed, self.step)
        how = (self.p, self.seed, step, self.layer, nodes, self.whole_rows)
        x = x.drop(*how) if isinstance(x, SparseRows) else counter_dropout(x, *how)
        self.step.add_(count)
        return x

    def extra_repr(self) -> str:
        """The settings."""
        p = self.p.tolist() if isinstance(self.p, Tensor) else self.p
        return f"p={p}, layer={self.layer}" + (", whole_rows=True" if self.whole_rows else "")


def make_dropouts(*probabilities: float, start: int = 0) -> nn.ModuleList:
    """One dropout for each probability, numbered from ``start``, so that no two drop the same elements."""
    return nn.ModuleList(Dropout(p, layer) for layer, p in enumerate(probabilities, start))

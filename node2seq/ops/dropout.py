"""Dropout as a function of (seed, step, layer, element), not a draw from a shared stream.

What a run drops then does not depend on what runs beside it, on how batches are cut, or on where it was
interrupted.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_WORD = 2**32
# Odd multipliers with well-mixed bits, as signed 32-bit integers: products wrap around.
_SPREAD = 0x9E3779B1 - _WORD
_MIX_1 = 0x7FEB352D
_MIX_2 = 0x846CA68B - _WORD


def _mix(word: Tensor) -> Tensor:
    """Scrambles 32-bit words so that words next to each other have nothing in common."""
    # The masks cut off copies of the sign bit, which a shift of signed words brings in from the left.
    word = (word ^ (word >> 16 & 0xFFFF)) * _MIX_1
    word = (word ^ (word >> 15 & 0x1FFFF)) * _MIX_2
    return word ^ (word >> 16 & 0xFFFF)


def _as_word(value: Tensor) -> Tensor:
    """Folds a 64-bit integer into 32 bits."""
    return (value ^ (value >> 32)).to(torch.int32)


def counter_dropout(
    x: Tensor, p: float, seed: Tensor, step: Tensor, layer: int, nodes: Tensor | None = None
) -> Tensor:
    """Drops each element with probability ``p`` and scales the rest by 1 / (1 − p).

    Args:
        x (torch.Tensor): The features of N nodes, or of R runs as one disjoint union, [R * N, C].
        p (float): The probability, in [0, 1).
        seed (torch.Tensor): The seed, int64: one for all rows, or one for each of R runs, [R].
        step (torch.Tensor): The number of the training step, int64, like ``seed``.
        layer (int): Which dropout of the network this is.
        nodes (torch.Tensor, optional): The global ids of the rows where ``x`` is a part of a larger graph.
    """
    if p == 0.0:
        return x
    if nodes is None:
        nodes = torch.arange(x.size(0) // seed.numel(), device=x.device)
    keep = _keep_traced if torch.compiler.is_compiling() else _keep
    kept = keep(nodes, x.size(-1), round(p * _WORD), seed, step, layer)
    return torch.where(kept.view(x.shape), x * (1.0 / (1.0 - p)), 0.0)


def _keep(nodes: Tensor, channels: int, dropped: int, seed: Tensor, step: Tensor, layer: int) -> Tensor:
    """Whether to keep each element, [R, N, C]; ``dropped`` of the 2^32 words do not."""
    stream = _mix(_as_word(seed.reshape(-1)) * _SPREAD + layer)
    stream = _mix(stream ^ _mix(_as_word(step.reshape(-1)) * _SPREAD + 1))
    element = nodes.to(torch.int32)[:, None] * channels + torch.arange(
        channels, dtype=torch.int32, device=nodes.device
    )
    word = _mix(element * _SPREAD + stream[:, None, None])
    return word >= dropped - _WORD // 2


# One opaque step of a compiled graph, whose result is kept for the backward pass. What the compiler can see
# through it works out again there, from a step that was counted up since: other elements would be dropped.
_keep_traced = torch.library.custom_op("node2seq::keep", _keep, mutates_args=())


@_keep_traced.register_fake
def _(nodes: Tensor, channels: int, dropped: int, seed: Tensor, step: Tensor, layer: int) -> Tensor:  # noqa: ARG001
    return nodes.new_empty(seed.numel(), nodes.numel(), channels, dtype=torch.bool)


def pair_word(seed: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """A random 32-bit word for each pair of ids, the same whenever the same seed and pair are asked for."""
    return _mix(_mix(_as_word(first) * _SPREAD + _mix(_as_word(seed))) ^ (_as_word(second) * _SPREAD))


class Dropout(nn.Module):
    """Counter-based dropout that counts its own steps.

    The seed is drawn from PyTorch's global generator when the module is made or reset. Seed and step are
    buffers: a state dict is all that it takes to go on exactly where a run was interrupted.

    Args:
        p (float): The probability of dropping an element.
        layer (int): Which dropout of the network this is.
    """

    seed: Tensor
    step: Tensor

    def __init__(self, p: float, layer: int) -> None:
        super().__init__()
        self.p = p
        self.layer = layer
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a new seed and starts counting from zero."""
        self.seed.fill_(int(torch.randint(2**62, ())))
        self.step.zero_()

    def forward(self, x: Tensor, nodes: Tensor | None = None) -> Tensor:
        """Drops elements of ``x`` while training."""
        if not self.training or self.p == 0.0:
            return x
        x = counter_dropout(x, self.p, self.seed, self.step, self.layer, nodes)
        self.step.add_(1)
        return x

    def extra_repr(self) -> str:
        """The settings."""
        return f"p={self.p}, layer={self.layer}"

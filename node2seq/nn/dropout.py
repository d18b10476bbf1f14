"""Dropout as a module that counts its own steps.

Each pass counts on, and a recomputed pass finds its own step again: :mod:`torch.utils.checkpoint` recomputes
a pass within the backward pass, and first puts PyTorch's random generator back to where it stood. So a pass
that may be recomputed draws a ticket from the generator and keeps its step under the ticket; when it is
recomputed it draws the same ticket. Other passes draw nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from contextlib import nullcontext
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch._C import _autograd  # pyright: ignore[reportAttributeAccessIssue]

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.ops.dispatch import is_transformed, is_wrapped
from node2seq.ops.dropout import counter_dropout
from node2seq.ops.linear import SparseRows
from node2seq.ops.plan_cache import TensorTable
from node2seq.ops.sequences import lasting

# How many passes of one dropout may wait for their backward pass, and how many may be recomputed once more.
_MOST_WAITING = 4096
_MOST_RECOMPUTED = 64
# Where PyTorch runs those random ops of a compiled graph that its backward pass recomputes.
_RANDOM_OPS = "torch._prims.rng_prims"


class _Passes(NamedTuple):
    """The steps of one dropout's passes by their tickets, and the version of its counter at first."""

    waiting: dict[Hashable, Tensor]
    recomputed: dict[Hashable, Tensor]
    version: int


_passes: TensorTable[_Passes] = TensorTable()  # by the dropout's seed


def step_of_pass(seed: Tensor, counter: Tensor) -> tuple[Tensor, int | Tensor]:
    """The step of this pass, and what to add to the counter: one, or zero if the pass is recomputed.

    Args:
        seed (torch.Tensor): What the dropout is known by.
        counter (torch.Tensor): The number of its passes so far.
    """
    if torch.compiler.is_compiling() and not ops.is_exporting():
        return _step_compiled(seed, counter, torch.is_grad_enabled())
    return _find(seed, counter, _is_in_function())


# Tagged as random: the compiler recomputes it in checkpoints only, and puts the generator back first.
@torch.library.custom_op(
    "node2seq::step",
    mutates_args=(),
    tags=(torch.Tag.nondeterministic_seeded, torch.Tag.cudagraph_unsafe),
)
def _step_compiled(seed: Tensor, counter: Tensor, records: bool) -> tuple[Tensor, Tensor]:
    # A compiled graph that records gradients is an autograd function itself.
    step, count = _find(seed, counter, not records and _is_in_function(), _is_recomputed_op())
    return step.clone(), counter.new_full((), count)


@_step_compiled.register_fake
def _(seed: Tensor, counter: Tensor, records: bool) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.empty_like(counter), counter.new_empty(())


def _find(
    seed: Tensor, counter: Tensor, is_in_function: bool, is_recomputed_op: bool = False
) -> tuple[Tensor, int]:
    is_recomputing = torch._C._current_graph_task_id() != -1  # a backward pass is running
    has_hooks = _autograd._top_saved_tensors_default_hooks(True) is not None  # as in other checkpoints
    if not (is_recomputing or has_hooks or is_in_function or is_recomputed_op):
        return counter, 1
    passes = _passes.get(seed)
    if passes is None:
        passes = _Passes({}, {}, counter._version)
        _passes.set(seed, passes)
    ticket = _draw(counter.device if is_recomputed_op else torch.device("cpu"))
    if is_recomputing:
        if ticket in passes.waiting:
            _keep(passes.recomputed, ticket, passes.waiting.pop(ticket), _MOST_RECOMPUTED)
        if ticket not in passes.recomputed:
            raise Node2SeqError(
                "dropout within a backward pass",
                "it must drop the same elements as in the forward pass, which cannot be identified",
                "Use torch.utils.checkpoint with preserve_rng_state=True",
            )
        return passes.recomputed[ticket], 0
    if ticket in passes.waiting:  # the same generator state: nothing will tell the two passes apart
        return passes.waiting[ticket], 0
    if is_recomputed_op:
        # The graph saves the counter for its backward pass, though only the ticket is used there. Autograd
        # would refuse a counter that later passes have changed.
        _autograd._unsafe_set_version_counter((counter,), (passes.version,))
    step = counter.clone()
    _keep(passes.waiting, ticket, step, _MOST_WAITING)
    return step, 1


def _keep(steps: dict[Hashable, Tensor], ticket: Hashable, step: Tensor, most: int) -> None:
    steps[ticket] = step
    if len(steps) > most:
        steps.pop(next(iter(steps)))


def _is_in_function() -> bool:
    """Whether this is the forward of an autograd function, where reentrant checkpoints run."""
    return not torch._C._is_fwd_grad_enabled() and not torch.is_inference_mode_enabled()


def _is_recomputed_op() -> bool:
    """Whether this op belongs to a compiled checkpoint."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != _RANDOM_OPS:
        frame = frame.f_back
    return frame is not None


def _draw(device: torch.device) -> Hashable:
    """A ticket from the generator of a device, without waiting for it."""
    if device.type != "cuda":
        return int(torch.randint(2**62, (), device="cpu"))
    generator = torch.cuda.default_generators[device.index]
    offset = generator.get_offset()
    generator.set_offset(offset + 4)
    return generator.initial_seed(), offset


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
        x = x.drop(*how) if isinstance(x, SparseRows) else counter_dropout(ops.dense(x), *how)
        # Within a transform of torch.func, a module may change only what is passed in.
        with lasting() if is_transformed() and not is_wrapped(self.step) else nullcontext():
            self.step.add_(count)
        return x

    def extra_repr(self) -> str:
        """The settings."""
        p = self.p.tolist() if isinstance(self.p, Tensor) else self.p
        return f"p={p}, layer={self.layer}" + (", whole_rows=True" if self.whole_rows else "")


def make_dropouts(*probabilities: float, start: int = 0) -> nn.ModuleList:
    """One dropout for each probability, numbered from ``start``, so that no two drop the same elements."""
    return nn.ModuleList(Dropout(p, layer) for layer, p in enumerate(probabilities, start))

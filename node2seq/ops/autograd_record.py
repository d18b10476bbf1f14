"""What autograd records: whether it does, and within custom ops what a forward op leaves to its backward op.

PyTorch wants the two to be functions of their tensors, and so they are: a backward op that finds no record
makes it anew. It finds it by a token, an empty tensor that goes from one to the other, and the record is gone
with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks

_records: dict[int, Record] = {}  # by the id of their token


class Record:
    """A function's result and what its gradient needs, apart from what the function was given.

    That is left out, since the memory of a compiled graph's tensors is used again as soon as the compiler
    thinks it may: it hands the same values to the backward op.

    Args:
        function (callable): What to record; takes ``given``.
        given (sequence): Its arguments.
        wanted (sequence): Which of them want a gradient.
    """

    def __init__(
        self, function: Callable[..., Tensor], given: Sequence[Tensor], wanted: Sequence[bool]
    ) -> None:
        self._given = [tensor.contiguous() for tensor in given]
        with _autograd(), torch.enable_grad(), saved_tensors_hooks(self._pack, self._unpack):
            leaves = [
                tensor.detach().requires_grad_(needs)
                for tensor, needs in zip(self._given, wanted, strict=True)
            ]
            out = function(*leaves)
            self._edge = get_gradient_edge(out) if out.requires_grad else None
        self._leaves = [leaf for leaf in leaves if leaf.requires_grad]
        self._given = []
        self.out = out.detach().contiguous()

    def keep(self, token: Tensor) -> Tensor:
        """Lays the record down under a token, and gives out the result."""
        _records[id(token)] = self
        weakref.finalize(token, _records.pop, id(token), None).atexit = False
        out = self.out
        del self.out
        return out

    def gradients(self, given: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
        """The gradients of those that want one, once."""
        if self._edge is None:
            return [torch.zeros_like(leaf) for leaf in self._leaves]
        self._given = [tensor.contiguous() for tensor in given]
        with _autograd():
            return [
                *torch.autograd.grad(
                    self._edge, self._leaves, grad, allow_unused=True, materialize_grads=True
                )
            ]

    def _pack(self, saved: Tensor) -> Any:
        storage = saved.untyped_storage().data_ptr()
        for number, tensor in enumerate(self._given):
            if storage and storage == tensor.untyped_storage().data_ptr():
                if saved.dtype != tensor.dtype:
                    return saved.clone()
                offset = saved.storage_offset() - tensor.storage_offset()
                return number, saved.shape, saved.stride(), offset
        return saved

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        number, shape, stride, offset = packed
        tensor = self._given[number]
        return tensor.as_strided(shape, stride, tensor.storage_offset() + offset)


def record_of(token: Tensor) -> Record | None:
    """The record under a token, which is taken away: its gradients can be asked for once."""
    return _records.pop(id(token), None)


def is_recorded(*tensors: Tensor | None) -> bool:
    """Whether autograd has to know of what is made of these; if not, it can be left out, which is quicker."""
    if forward_ad._current_level >= 0:  # derivatives are under way that no tensor's flag tells of
        return True
    needs = any(tensor is not None and tensor.requires_grad for tensor in tensors)
    return needs and torch.is_grad_enabled()


def _autograd() -> AbstractContextManager[object]:
    """Switches autograd on again, which PyTorch keeps out of custom ops."""
    keys = torch._C.DispatchKey
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (
        keys.AutogradFunctionality,
        keys.AutogradOther,
        keys.AutogradNestedTensor,
        keys.ADInplaceOrView,
    ):
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)

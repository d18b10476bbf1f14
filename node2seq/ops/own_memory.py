"""What custom ops give out lies as their fakes say: contiguous, from the start of memory that is its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


def in_own_memory(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copies those of the tensors a function returns that are parts of others; all others stay themselves.

    Generated code counts on the alignment of a new tensor, and writes to its memory once it has read it:
    no two results may share theirs, nor may a result share it with an argument.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        returned = function(*arguments)
        taken = {_memory(tensor) for tensor in _tensors(arguments)} - {0}
        if isinstance(returned, Tensor):
            return _own(returned, taken)
        return type(returned)(_own(tensor, taken) for tensor in returned)

    return wrapped


def _own(tensor: Tensor, taken: set[int]) -> Tensor:
    """The tensor if it starts a memory that is not taken, or a copy; its memory is taken from then on."""
    if tensor.storage_offset() or not tensor.is_contiguous() or _memory(tensor) in taken:
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    taken |= {_memory(tensor)} - {0}
    return tensor


def _memory(tensor: Tensor) -> int:
    """Where a tensor's memory starts; 0 if it has none."""
    return tensor.untyped_storage().data_ptr()


def _tensors(arguments: Iterable[Any]) -> Iterable[Tensor]:
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from _tensors(argument)

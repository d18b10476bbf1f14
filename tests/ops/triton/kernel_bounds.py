"""Every address that a kernel touches lies within a tensor that it was given: watched in the interpreter.

A GPU notices a load behind the end of a tensor only where no other memory lies. Here each tensor of a launch
is copied to a place of its own, far from all others, and every lane that is not masked is looked at.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

# Untouched pages take no memory.
_APART = 2**26
_PLACES = 64


class Watch:
    """Where the tensors of the running launch lie, and what has been looked at."""

    def __init__(self) -> None:
        self._arena = mmap.mmap(-1, _APART * _PLACES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._starts = self._ends = np.zeros(0, dtype=np.int64)
        self.kernel = ""
        self.accesses = 0

    def place(self, args: list[Any], kernel: str) -> list[Any]:
        """The arguments of a launch, with copies of its tensors."""
        self.kernel = kernel
        storages: dict[int, torch.UntypedStorage] = {}
        placed = [self._copied(arg, storages) if isinstance(arg, Tensor) else arg for arg in args]
        tensors = [arg for arg in placed if isinstance(arg, Tensor) and arg.numel()]
        assert all(tensor.is_contiguous() for tensor in tensors)
        self._starts = np.array([tensor.data_ptr() for tensor in tensors])
        self._ends = self._starts + np.array([tensor.nbytes for tensor in tensors])
        return placed

    def _copied(self, tensor: Tensor, storages: dict[int, torch.UntypedStorage]) -> Tensor:
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return tensor
        if storage.data_ptr() not in storages:
            assert storage.nbytes() <= _APART // 2
            # In the middle, with room on both sides.
            offset = len(storages) * _APART + _APART // 4
            copy = torch.frombuffer(self._arena, dtype=torch.uint8, count=storage.nbytes(), offset=offset)
            copy.untyped_storage().copy_(storage)
            storages[storage.data_ptr()] = copy.untyped_storage()
        copy = tensor.new_empty(0)
        return copy.set_(
            storages[storage.data_ptr()], tensor.storage_offset(), tensor.size(), tensor.stride()
        )

    def look(self, pointers: Any, mask: Any, action: str) -> None:
        """Raises an error if a lane that is not masked points to none of the tensors."""
        address = pointers.data[np.broadcast_to(mask.data, pointers.data.shape).astype(bool)].astype(np.int64)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        is_inside = (address[:, None] >= self._starts) & (address[:, None] + size <= self._ends)
        lost = address[~is_inside.any(1)]
        if lost.size:
            distance = min((int(lost[0]) - self._starts).tolist(), key=abs, default=None)
            raise IndexError(
                f"{self.kernel}: {lost.size} of {address.size} lanes {action} outside of every tensor,"
                f" the first one {distance} bytes from the start of the nearest"
            )
        self.accesses += address.size


@contextmanager
def watched() -> Iterator[Watch]:
    """Within it, a kernel that leaves the bounds of its tensors ends in an error."""
    from triton.runtime import interpreter

    watch = Watch()
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    init, load, store = executor._init_args_hst, builder.create_masked_load, builder.create_masked_store

    def init_watched(self: Any, args: Any, kwargs: Any) -> Any:
        return init(self, watch.place(list(args), self.fn.__name__), kwargs)

    def load_watched(self: Any, ptrs: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        watch.look(ptrs, mask, "load")
        return load(self, ptrs, mask, *args, **kwargs)

    def store_watched(self: Any, ptrs: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        watch.look(ptrs, mask, "store")
        return store(self, ptrs, value, mask, *args, **kwargs)

    with (
        patch.object(executor, "_init_args_hst", init_watched),
        patch.object(builder, "create_masked_load", load_watched),
        patch.object(builder, "create_masked_store", store_watched),
    ):
        yield watch
